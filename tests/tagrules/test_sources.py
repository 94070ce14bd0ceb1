"""What a pool's workers offer: by machine, image, pool and their own report, and what differs."""

from pathlib import Path

import pytest
import yaml

from fleet.model.images import ImageVersion
from fleet.schema.model import Fleet, Pool
from fleet.tagrules.offers import Offer, find_doubts, offer_of_pool, offer_of_worker
from fleet.tagrules.sources import Doubt, figures_of, pool_sources
from fleet.tagrules.vocabulary import Vocabulary
from tests.builders import a_fleet, a_pool, a_worker
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells


def a_fleet_of(pool: Pool, **overrides: object) -> Fleet:
    return a_fleet(pools={"builders": pool}, **overrides)


CASES = [*read_blocks(Path(__file__).parent / "offers")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_workers_offer_the_tags_of_their_case(case: Block) -> None:
    described, doubts = offered(*case.parts)

    assert described == case.result
    for number, words in case.because:
        assert tells(doubts[int(number)].because, *words.split())


def offered(of_fleet: str, seen: str) -> tuple[str, tuple[Doubt, ...]]:
    """Return what a pool and its worker offer, as text, and the doubts about it."""
    said, reported = (yaml.safe_load(f"{{{text}}}") for text in (of_fleet, seen))
    tags = said.pop("tags", {}) | {name: {"kind": "number"} for name in said.pop("numbers", ())}
    parts = {key: said.pop(key) for key in ("images", "sizes") if key in said}
    pool = said if "static" in said else a_pool(**said)
    fleet = a_fleet(pools={"builders": pool}, tags=tags, **parts)
    given = {"ids": {"hetzner": "1"}, "provides": tuple(reported.get("image", ()))}
    images = [ImageVersion(image="trixie", version="1", **given)] if "image" in reported else []
    worker = a_worker(provides=tuple(reported["worker"])) if "worker" in reported else None
    doubts = find_doubts(fleet, "builders", images, worker)
    found = [describe(offer_of_pool(fleet, "builders", images))]
    if worker:
        found.append(f"worker {describe(offer_of_worker(fleet, 'builders', images, worker))}")
    found += [
        f"{each.kind} {each.tag}" + (f" at {'.'.join(map(str, each.path))}" if each.path else "")
        for each in doubts
    ]
    return "; ".join(found), doubts


def describe(offer: Offer) -> str:
    """Return tags, without the usual type of workers, and numbers, and required tags."""
    tags = sorted(offer.provides - {"worker:type:external"})
    short = [tag.removeprefix("worker:build-").removeprefix("worker:") for tag in tags]
    numbers = [f"{name}={value:f}" for name, value in sorted(offer.numbers)]
    requires = [f"requires {tag}" for tag in sorted(offer.requires)]
    return ", ".join((*short, *numbers, *requires)) or "nothing"


def test_unstated_figure_is_omitted() -> None:
    pool = a_pool(machine={"cores": 8, "memory": "16GiB"})

    assert set(figures_of(a_fleet_of(pool), pool)) == {"cores", "memory_gib"}


def test_exact_tag_precedes_longest_prefix() -> None:
    tags = {
        "worker:*": {"asked_by": ["system"], "exclusive": True},
        "worker:class:*": {"asked_by": ["rules"]},
        "worker:class:big": {"on_demand": True},
    }
    vocabulary = Vocabulary(a_fleet(tags=tags))

    assert vocabulary.asked_by("worker:cap:sbuild")[0] == ["system"]
    assert vocabulary.asked_by("worker:class:small")[1] == ("tags", "worker:class:*", "asked_by")
    assert vocabulary.is_on_demand("worker:class:big")
    assert not vocabulary.is_on_demand("worker:class:small")
    assert vocabulary.is_exclusive("worker:class:big")
    assert vocabulary.asked_by("other") == (None, ())


def test_narrower_rule_inherits_askers_of_wider_one() -> None:
    tags = {"worker:*": {"asked_by": ["system"]}, "worker:class:big": {"on_demand": True}}

    assert Vocabulary(a_fleet(tags=tags)).asked_by("worker:class:big")[0] == ["system"]


TINY = {"tiny": {"cores": 1, "memory": "1GiB", "disk": "1GiB"}}
OF_MACHINE = ("pools", "builders", "machine")


def test_provided_tag_has_its_source_and_key() -> None:
    image = {"trixie": {"suite": "trixie", "architecture": "amd64", "provides": ["sbuild"]}}
    fleet = a_fleet_of(
        a_pool(provides=["x"]), tags={"cores": {"kind": "number"}}, images=image, sizes=TINY
    )

    told = pool_sources(fleet, "builders", ())

    assert [(each.tag, each.source, each.path) for each in told] == [
        ("worker:type:external", "machine", OF_MACHINE),
        ("worker:build-arch:amd64", "machine", OF_MACHINE),
        ("worker:build-arch:i386", "machine", OF_MACHINE),
        ("worker:class:tiny", "machine", OF_MACHINE),
        ("cores=8", "machine", OF_MACHINE),
        ("sbuild", "image", ("images", "trixie", "provides", 0)),
        ("x", "pool", ("pools", "builders", "provides", 0)),
    ]


def test_boot_test_tags_replace_configured_image_tags() -> None:
    image = {"trixie": {"suite": "trixie", "architecture": "amd64", "provides": ["sbuild"]}}
    booted = ImageVersion(image="trixie", version="1", ids={"hetzner": "1"}, provides=("lintian",))

    told = pool_sources(a_fleet(images=image), "builders", [booted])

    assert [(each.tag, each.path) for each in told if each.source == "image"] == [
        ("lintian", ("images", "trixie"))
    ]
