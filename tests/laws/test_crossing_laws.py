"""The laws of what leaves a process: what one side writes, the other reads as the same value."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import fleet
from fleet.images.records import BuildOrder
from fleet.schema.pools import ImageRecipe
from fleet.schema.units import ConfigSection, Written

NAMES = st.from_regex(r"[a-z][a-z0-9]{1,8}", fullmatch=True)
DURATIONS = st.builds("{}{}".format, st.integers(1, 9999), st.sampled_from("smhd"))
SIZES = st.builds("{}{}".format, st.integers(1, 9999), st.sampled_from(["MiB", "GiB", "TiB"]))
URLS = st.builds("https://{}.example.org/debian".format, NAMES)
PLACES = st.one_of(NAMES, st.builds("s3://{}-bucket/images".format, NAMES))
PROMOTE: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["manual", "tested"]),
    st.fixed_dictionaries(
        {},
        optional={"candidate": st.builds("{}%".format, st.integers(1, 100)), "after": DURATIONS},
    ),
)
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "suite": st.sampled_from(["bookworm", "trixie", "sid"]),
    "architecture": st.sampled_from(["amd64", "arm64"]),
    "provides": st.lists(st.builds("worker:{}".format, NAMES), max_size=3),
    "source": st.builds("Types: deb\nURIs: https://{}/ü\n".format, NAMES),
    "enable_backends": st.lists(st.sampled_from(["unshare", "qemu", "incus"]), max_size=3),
    "enable_tasks": st.lists(st.sampled_from(["autopkgtest", "sbuild", "mmdebstrap"]), max_size=3),
    "packages": st.lists(NAMES, max_size=3),
    "worker_version": st.just("0.16.2~bpo13+1"),
    "swap": SIZES,
    "api_url": URLS,
    "mirror": URLS,
    "snapshot": st.booleans(),
    "rebuild": st.fixed_dictionaries({"every": DURATIONS}, optional={"keep": st.integers(1, 100)}),
    "publish": st.lists(PLACES, max_size=3),
    "promote": PROMOTE,
    "version": st.just("20261121T203000Z"),
}
NEEDED = ("suite", "architecture")
RECIPES = st.fixed_dictionaries(
    {key: KEYS[key] for key in NEEDED},
    optional={key: each for key, each in KEYS.items() if key not in NEEDED},
).map(ImageRecipe.model_validate)


def test_every_key_of_a_recipe_is_drawn() -> None:
    assert KEYS.keys() == ImageRecipe.model_fields.keys()


@given(recipe=RECIPES)
def test_section_round_trips(recipe: ImageRecipe) -> None:
    written = json.dumps(recipe.as_written())

    assert ImageRecipe.model_validate_json(written) == recipe


@given(recipe=RECIPES)
def test_build_order_round_trips(recipe: ImageRecipe) -> None:
    order = BuildOrder(
        image="trixie",
        version="20261121T203000Z",
        recipe=recipe,
        built_at=datetime(2026, 11, 21, 20, 30, tzinfo=UTC),
        built_by="ci",
        commit="4f2a",
    )

    assert BuildOrder.model_validate_json(order.model_dump_json()) == order


def models() -> Iterator[type[BaseModel]]:
    """Yield every model of the program that is no section of fleet.yaml."""
    for module in pkgutil.walk_packages(fleet.__path__, "fleet."):
        if not module.name.endswith("__main__"):
            found = vars(importlib.import_module(module.name))
            own = [each for each in found.values() if is_a(each, BaseModel)]
            yield from (
                each
                for each in own
                if each.__module__ == module.name and not is_a(each, ConfigSection)
            )


def is_a(value: object, kind: type) -> bool:
    return isinstance(value, type) and issubclass(value, kind)


def holds_section(annotation: object) -> bool:
    return is_a(annotation, ConfigSection) or any(map(holds_section, get_args(annotation)))


def test_sections_in_models_are_marked_as_written() -> None:
    holders = [
        (model.__name__, name, field.metadata)
        for model in models()
        for name, field in model.model_fields.items()
        if holds_section(field.annotation)
    ]

    assert sorted({name for name, _, _ in holders}) == ["BuildOrder"]
    assert [each for each in holders if Written not in each[2]] == []
