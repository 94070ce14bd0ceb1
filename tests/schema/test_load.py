"""Loading: a fleet, or everything that is wrong with it at once, in the order of the file."""

from datetime import date
from pathlib import Path
from typing import get_args

import pytest

from fleet.schema.load import Loaded, branches, fields_of, follow, load
from fleet.schema.model import (
    CommandSecret,
    EnvSecret,
    ExchangeRate,
    ExistingImage,
    FileSecret,
    Fleet,
    Hooks,
    HooksProvider,
    Pool,
    StateSettings,
)
from fleet.schema.units import ConfigSection
from tests.builders.sentences import tells
from tests.fakes.files import FakeFiles
from tests.rigs.process import ROOT


def loaded(text: str) -> Loaded:
    return load("fleet.yaml", FakeFiles({"fleet.yaml": text}))


def told(text: str) -> list[str]:
    return [f"{f.span}: {f.rule}: {f.message}" for f in loaded(text).findings]


def all_sections(of: type[ConfigSection] = ConfigSection) -> set[type[ConfigSection]]:
    below = {each for each in of.__subclasses__() if each.__module__.startswith("fleet.schema.")}
    return below.union(*(all_sections(each) for each in below))


@pytest.mark.parametrize("name", ["starter", "whole"])
def test_documented_files_are_valid(name: str) -> None:
    text = (ROOT / f"tests/fixtures/{name}.yaml").read_text(encoding="utf-8")

    result = loaded(text)

    assert result.findings == ()
    assert result.fleet is not None


def test_valid_file_is_loaded_with_numbers_in_one_unit() -> None:
    fleet = loaded(
        "fleet: x\ncadence: 5m\nsizes: {s: {cores: 1, memory: 2GiB, disk: 1TiB}}\n"
        "guards: {refuse: {delete: {share: 20%}, cost_increase: 0.35 EUR/h}}\n"
    ).fleet

    assert fleet is not None
    assert (fleet.cadence, fleet.sizes["s"].memory, fleet.sizes["s"].disk) == (300, 2048, 1 << 20)
    assert fleet.guards.refuse.delete.share == 20
    assert str(fleet.guards.refuse.cost_increase) == "0.35 EUR"


def test_load_reports_every_mistake_in_the_order_of_the_file() -> None:
    text = "fleet: X\ncadence: soon\npols: {}\npools: {a: {static: []}}\n"

    places = [finding.partition(": ")[0] for finding in told(text)]
    assert places == ["fleet.yaml:1:8", "fleet.yaml:2:10", "fleet.yaml:3:1", "fleet.yaml:4:21"]
    for finding, words in zip(
        told(text),
        (
            ("wrong-value", "20", "'X'"),
            ("wrong-value", "30m", "s, m, h, d", "'soon'"),
            ("unknown-key", "'pols'"),
            ("wrong-value", "1", "empty list"),
        ),
        strict=True,
    ):
        assert all(word in finding for word in words)


MISTAKES = (Path(__file__).parent / "mistakes.txt").read_text("utf-8").splitlines()[1:]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_one_finding_as_in_its_line(mistake: str) -> None:
    """Of a union only the branch that was meant is reported."""
    written, _, expected = mistake.partition(" -> ")
    place, rule, words = expected.split(": ", 2)
    if written.startswith("pool: "):
        keys = {"provider": "p", "machine": "m", "image": "i", "workers": "{max: 1}"}
        keys.pop(written.split(": ")[1], None)
        rest = ", ".join(f"{key}: {value}" for key, value in keys.items())
        written = f"pools: {{a: {{{written.removeprefix('pool: ')}, {rest}}}}}"

    (only,) = told(f"fleet: x\n{written}\n")

    assert only.startswith(f"fleet.yaml:{place}: {rule}: ")
    assert [each for each in words.split(" | ") if each not in only] == []


def test_error_names_keys_when_a_section_was_expected() -> None:
    (found,) = loaded("fleet: x\nguards: {throttle: {create: 3000}}\n").findings

    assert found.rule == "wrong-type"
    assert tells(found.hint, "count, free_below, share")


def test_remaining_parts_are_checked_when_one_is_invalid() -> None:
    result = loaded("fleet: x\npools: {good: {static: [a]}, bad: {static: 3}, worse: {}}\n")

    assert result.fleet is None
    assert result.rest is not None
    assert set(result.rest.pools) == {"good"}


def test_file_without_mapping_has_no_remainder() -> None:
    assert loaded("3\n").rest is None


@pytest.mark.parametrize("section", sorted(all_sections(), key=str))
def test_union_tag_is_not_a_field_of_its_model(section: type[ConfigSection]) -> None:
    unions = [field.annotation for field in fields_of(section).values()]
    tagged = [branch for union in unions for branch in branches_below(union).items()]

    assert [tag for tag, branch in tagged if tag in names_in(branch)] == []


def branches_below(annotation: object) -> dict[str, object]:
    found = branches(annotation)
    for part in get_args(annotation):
        found |= branches_below(part)
    return found


def names_in(branch: object) -> set[str]:
    return {
        name
        for part in (branch, *get_args(branch))
        if isinstance(part, type) and issubclass(part, ConfigSection)
        for name in fields_of(part)
    }


def test_every_key_has_a_description() -> None:
    without = [
        f"{section.__name__}.{name}"
        for section in all_sections()
        for name, field in fields_of(section).items()
        if not field.description
    ]

    assert without == []


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (("pools", "a", "pool-dynamic", "workers", "max"), ("pools", "a", "workers", "max")),
        (("providers", "h", "hcloud", "token", "secret-env", "env"), None),
        (("tags", "t", "asked_by", 2, "asker-names", "groups", 0), None),
        (("derive", 0, "from"), ("derive", 0, "from")),
    ],
)
def test_union_tags_are_removed_from_error_paths(
    place: tuple[str | int, ...], path: tuple[str | int, ...] | None
) -> None:
    tags = {"hcloud", "secret-env", "asker-names"}
    expected = path or tuple(step for step in place if step not in tags)

    assert follow(Fleet, place).path == expected


def test_wrong_key_is_marked() -> None:
    (finding,) = loaded("fleet: x\npools: {b@d: {static: [a]}}\n").findings

    assert (finding.at, str(finding.span)) == ("key", "fleet.yaml:2:9")


def test_hooks_are_sections() -> None:
    assert follow(Fleet, ("pools", "a", "pool-hooks", "hooks")).model is Hooks


def test_pool_with_own_commands_has_own_provider_and_image() -> None:
    fleet = loaded(
        "fleet: x\n"
        "providers: {b: {kind: sim}}\n"
        "pools:\n"
        "  b: {provider: hooks, machine: {cores: 1, memory: 1GiB}, reuse: {opportunity: 5m},"
        " hooks: {new: [n], delete: [d], list: [l], release: [r]}}\n"
    ).fleet
    assert fleet is not None

    pool = fleet.pools["b"]
    assert isinstance(pool, Pool)
    hooks, image = fleet.providers[pool.provider], fleet.images[pool.image]
    assert isinstance(hooks, HooksProvider)
    assert isinstance(image, ExistingImage)
    assert (pool.provider, hooks.new, hooks.release) == ("b-2", ["n"], ["r"])
    assert image.existing == {"b-2": "b"}
    assert (pool.workers.max, pool.reuse is not None) == (1, True)


def test_parsed_parts_are_accepted() -> None:
    first = loaded(
        "fleet: x\nstate: {passphrase: {file: f}}\n"
        "providers: {h: {kind: hcloud, location: l, token: {command: [c]}}}\n"
        "queues: {q: {kind: debusine, url: 'https://h', scopes: [s], token: {env: T},"
        " admin: {dsn: {env: D}}}}\n"
        "tags: {t: {asked_by: [user, {users: [u]}], otherwise: {after: 2h, drop: true}}}\n"
        "images: {a: {suite: s, architecture: amd64}, b: {existing: {h: '1'}}}\n"
        "pools:\n"
        "  a: {provider: h, machine: {type: m}, image: a, workers: {max: 1},"
        " replace: {at_a_time: 20%}, budget: {per_day: 1 EUR}}\n"
        "  b: {provider: hooks, machine: {}, hooks: {new: [n], delete: [d], list: [l]}}\n"
        "  c: {static: [s]}\n"
        "approvals: [{guard: delete, pool: a, count: 1, reason: r, expires: 2026-12-01}]\n"
    ).fleet
    assert first is not None

    sections = ("fleet", "state", "providers", "queues", "tags", "images", "pools", "approvals")
    parts = {name: getattr(first, name) for name in sections}

    assert Fleet.model_validate(parts) == first


def test_remainder_of_an_entirely_invalid_file_is_empty() -> None:
    result = loaded("fleet: [x]\ninclude: [3]\nmoney: 3\npools: {a: {static: [3]}}\n")

    assert result.rest is not None
    assert result.rest.fleet == "unnamed"
    assert result.rest.pools == {}


def test_file_without_fleet_name_is_still_checked() -> None:
    result = loaded("pools: {a: {static: [b]}}\n")

    assert result.rest is not None
    assert set(result.rest.pools) == {"a"}


@pytest.mark.parametrize(
    "reference",
    [EnvSecret(env="A"), FileSecret(file="f"), CommandSecret(command=["c"])],
    ids=["env", "file", "command"],
)
def test_parsed_secret_reference_is_accepted(reference: ConfigSection) -> None:
    assert StateSettings.model_validate({"passphrase": reference}).passphrase == reference


def test_parsed_date_is_accepted() -> None:
    rate = ExchangeRate.model_validate({"rate": 0.92, "as_of": date(2026, 11, 1)})

    assert rate.as_of == date(2026, 11, 1)
