"""Keys without effect: always named."""

from fleet.checks.not_yet_supported import KEYS, check
from fleet.schema.load import load
from fleet.schema.model import Fleet
from tests.fakes.files import FakeFiles

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
    from tests.rigs.process import ROOT

    text = (ROOT / "tests/fixtures/whole.yaml").read_text(encoding="utf-8")
    fleet = load("fleet.yaml", FakeFiles({"fleet.yaml": text})).fleet
    assert fleet is not None

    told = {tuple(map(str, finding.path)) for finding in check(fleet)}

    unseen = [key for key in KEYS if not any(_is_at(key, path) for path in told)]
    assert unseen == []


def _is_at(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return len(pattern) == len(path) and all(
        step in ("*", name) for step, name in zip(pattern, path, strict=True)
    )
