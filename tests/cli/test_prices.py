"""`fleet prices check`: what plans rest on, beside what a provider says today."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from fleet.cli.main import main
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from tests.builders.sentences import tells

FLEET = """\
fleet: trial
money: {exchange: {USD: {rate: 0.92, as_of: 2026-11-01}}}
providers:
  hetzner: {kind: hcloud, location: fsn1, token: {env: HCLOUD_TOKEN}}
  aws: {kind: aws, region: eu-central-1}
  desk: {kind: sim}
queues:
  work: {kind: world, path: world.json}
images:
  trixie: {existing: {hetzner: debian-13, aws: ami-1, desk: trixie}}
pools:
  builders: {provider: hetzner, machine: ccx33, image: trixie, workers: {max: 4}}
  big: {provider: hetzner, machine: ccx63, image: trixie, workers: {max: 4}}
  far: {provider: aws, machine: c7a.8xlarge, image: trixie, workers: {max: 4}}
  desk: {provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}
"""
TODAY = datetime.now(UTC).date()
AGE = {"aws": (TODAY - date(2025, 3, 2)).days, "hcloud": (TODAY - date(2026, 9, 29)).days}
SAME = f"""\
hetzner (hcloud, catalogue of 2026-09-29, {AGE["hcloud"]} days old)
  same  ccx33  0.2219 EUR/h
  same  ccx63  1.3678 EUR/h
  same  IPv4 address  0.0008 EUR/h
  same  GiB of disk  0.0000917 EUR/h
"""


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedHetzner]:
    """Return Hetzner's prices, asked by the fleet in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("fleet.yaml").write_text(FLEET, encoding="utf-8")
    with SimulatedHetzner() as api:
        monkeypatch.setenv("HCLOUD_ENDPOINT", api.endpoint)
        monkeypatch.setenv("HCLOUD_TOKEN", api.token)
        yield api


def said(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    code = main(["prices", "check", *args])
    return code, capsys.readouterr().out


def test_prices_that_are_those_of_the_catalogue_are_the_same(
    api: SimulatedHetzner, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys)

    assert api.endpoint
    assert code == 0
    assert text.endswith(SAME)


def test_what_nobody_can_ask_is_said_plainly(
    api: SimulatedHetzner, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = said(capsys)

    assert api.endpoint
    head, first, *lines = text.splitlines()
    assert tells(head, "aws (aws", "2025-03-02", f"{AGE['aws']} days")
    assert tells(first, "not checked", "https://aws.amazon.com/")
    assert tells(lines[lines.index("desk (sim)") + 1], "not checked", "fleet.yaml")


def test_a_price_that_differs_is_told_and_fails(
    api: SimulatedHetzner, capsys: pytest.CaptureFixture[str]
) -> None:
    for sold in api.state.resources["server_types"].values():
        for price in sold["prices"]:
            dearer = Decimal(price["price_hourly"]["net"]) * 2
            price["price_hourly"] = {"net": f"{dearer:.10f}", "gross": "1"}

    code, text = said(capsys)

    assert code == 1
    assert tells(text, "ccx33", "0.2219 EUR/h", "0.4438 EUR/h")


def test_as_json_it_is_the_same_report(
    api: SimulatedHetzner, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, "--json")

    checks = {each["provider"]: each for each in json.loads(text)["checks"]}
    assert api.endpoint
    assert code == 0
    assert [each["what"] for each in checks["hetzner"]["prices"]][:2] == ["ccx33", "ccx63"]
    assert checks["hetzner"]["as_of"] == "2026-09-29"


def test_a_provider_that_does_not_answer_fails(
    api: SimulatedHetzner, capsys: pytest.CaptureFixture[str]
) -> None:
    api.fail(Fault("GET", "/pricing", status=503))

    code, text = said(capsys)

    assert code == 1
    assert tells(text, "/pricing", "status 503")


def test_a_token_that_is_missing_fails(
    api: SimulatedHetzner,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HCLOUD_TOKEN")

    code, text = said(capsys)

    assert api.endpoint
    assert code == 1
    assert "not checked: secret {env: HCLOUD_TOKEN}" in text
