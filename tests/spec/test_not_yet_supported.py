"""Keys without effect: always named, and never relied upon to protect anything."""

import pytest

from fleet.checks.not_yet_supported import KEYS, check, unenforced_protections
from fleet.schema.load import load
from fleet.schema.model import Fleet
from tests.fakes_files import FakeFiles

POOLS = """
pools:
  builders: {provider: p, machine: m, image: plain, workers: {max: 1}}
  powerful: {provider: p, machine: m, image: plain, provides: [power], workers: {max: 1}}
  gpu: {provider: p, machine: m, image: gpu, workers: {max: 1}}
  legacy: {static: [a], provides: [power]}
images:
  plain: {suite: trixie, architecture: amd64}
  gpu: {suite: trixie, architecture: amd64, provides: ["gpu:a100"]}
"""


def a_fleet(text: str) -> Fleet:
    fleet = load("fleet.yaml", FakeFiles({"fleet.yaml": f"fleet: x\n{text}"})).fleet
    assert fleet is not None
    return fleet


def test_what_was_not_written_is_not_warned_about() -> None:
    assert list(check(a_fleet(POOLS))) == []


def test_every_key_without_effect_stands_in_the_whole_of_fleet_yaml() -> None:
    from tests.process import ROOT

    text = (ROOT / "tests/fixtures/whole.yaml").read_text(encoding="utf-8")
    fleet = load("fleet.yaml", FakeFiles({"fleet.yaml": text})).fleet
    assert fleet is not None

    told = {tuple(map(str, finding.path)) for finding in check(fleet)}

    unseen = [key.path for key in KEYS if not any(_is_at(key.path, path) for path in told)]
    assert unseen == [("pools", "*", "previously")]


def _is_at(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return len(pattern) == len(path) and all(
        step in ("*", name) for step, name in zip(pattern, path, strict=True)
    )


@pytest.mark.parametrize(
    ("text", "path", "pools"),
    [
        ("tags: {power: {limits: {total: 2}}}", ("tags", "power", "limits"), ("powerful",)),
        ("tags: {'gpu:*': {limits: {total: 2}}}", ("tags", "gpu:*", "limits"), ("gpu",)),
        (
            "tags: {'*': {limits: {total: 2}}}",
            ("tags", "*", "limits"),
            ("builders", "gpu", "powerful"),
        ),
        (
            "budgets: {all: {per_day: 9 EUR}}",
            ("budgets",),
            ("builders", "gpu", "powerful"),
        ),
        (
            "guards: {boot_failures: {stop_after: 3}}",
            ("guards", "boot_failures"),
            ("builders", "gpu", "powerful"),
        ),
    ],
)
def test_a_protection_that_is_not_enforced_names_the_pools_it_was_for(
    text: str, path: tuple[str, ...], pools: tuple[str, ...]
) -> None:
    found = unenforced_protections(a_fleet(text + POOLS))

    assert found == ((path, pools),)


def test_a_name_under_tags_is_no_glob_but_for_its_end() -> None:
    text = POOLS.replace("[power]", "['p[o]wer']")

    assert unenforced_protections(a_fleet("tags: {power: {limits: {total: 2}}}" + text)) == ()
    assert unenforced_protections(a_fleet("tags: {'p[o]wer': {limits: {total: 2}}}" + text)) == (
        (("tags", "p[o]wer", "limits"), ("powerful",)),
    )


def test_a_class_that_a_machine_reaches_is_provided_by_its_pool() -> None:
    machine = "machine: {cores: 64, memory: 256GiB, disk: 900GiB, price: 1 EUR/h}"
    text = POOLS.replace("machine: m, image: gpu", f"{machine}, image: gpu")

    found = unenforced_protections(
        a_fleet("tags: {'worker:class:big': {limits: {total: 2}}}" + text)
    )

    assert found == ((("tags", "worker:class:big", "limits"), ("gpu",)),)


def test_a_budget_of_a_pool_concerns_that_pool() -> None:
    text = POOLS.replace("image: gpu, w", "image: gpu, budget: {per_day: 1 EUR}, w")

    assert unenforced_protections(a_fleet(text)) == ((("pools", "gpu", "budget"), ("gpu",)),)


@pytest.mark.parametrize(
    "text", ["tags: {other: {limits: {total: 2}}}", "powerful: []", "derive: [{ask: source}]"]
)
def test_what_protects_no_pool_stops_nothing(text: str) -> None:
    assert unenforced_protections(a_fleet(text + POOLS)) == ()
