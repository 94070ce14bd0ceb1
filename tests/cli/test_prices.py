"""`fleet prices check`: what plans rest on, beside what a provider says today."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from fleet.program import main
from simulators.hetzner.server import SimulatedHetzner
from tests.builders.sentences import tells
from tests.fakes.aws import aws_environment
from tests.fakes.aws_prices import SimulatedPrices

FLEET = """\
fleet: trial
money: {exchange: {USD: {rate: 0.92, as_of: 2026-11-01}}}
providers:
  hetzner: {kind: hcloud, location: fsn1, token: {env: HCLOUD_TOKEN}}
  aws: {kind: aws, region: eu-central-1}
  desk: {kind: sim}
  here: {kind: local, run: [worker], types: {small: {cores: 2, memory: 4GiB}}}
queues:
  work: {kind: world, path: world.json}
images:
  trixie: {existing: {hetzner: debian-13, aws: ami-1, desk: trixie, here: trixie}}
pools:
  builders: {provider: hetzner, machine: ccx33, image: trixie, workers: {max: 4}}
  big: {provider: hetzner, machine: ccx63, image: trixie, workers: {max: 4}}
  far:
    machine: {type: c7a.8xlarge, market: [spot, on-demand]}
    provider: aws
    image: trixie
    workers: {max: 4}
  desk: {provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}
  here: {provider: here, machine: small, image: trixie, workers: {max: 1}}
"""


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedPrices]:
    """Return AWS's prices, which every fleet here asks too."""
    with SimulatedPrices() as aws:
        for name, value in aws_environment(aws.url).items():
            monkeypatch.setenv(name, value)
        yield aws


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


def test_prices_check_fails_when_aws_prices_differ(
    api: SimulatedHetzner, aws: SimulatedPrices, capsys: pytest.CaptureFixture[str]
) -> None:
    for sold in aws.market.products:
        sold.price = f"{Decimal(sold.price) * 2:f}"
    aws.market.spot = [("c7a.8xlarge", "eu-central-1a", "2.5")]

    code, text = said(capsys, "--json")

    checks = {each["provider"]: each for each in json.loads(text)["checks"]}
    told = {each["what"]: each["differences"] for each in checks["aws"]["prices"]}
    assert api.endpoint
    assert code == 1
    assert told == {
        "c7a.8xlarge": ["3.74816 USD/h"],
        "c7a.8xlarge on spot": ["2.5 USD/h"],
        "IPv4 address": ["0.01 USD/h"],
        "GiB of disk": ["0.1904 USD/month"],
    }


def test_prices_check_fails_when_aws_no_longer_sells_a_type(
    api: SimulatedHetzner, aws: SimulatedPrices, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.market.products = [each for each in aws.market.products if each.service != "AmazonEC2"]

    code, text = said(capsys, "--json")

    checks = {each["provider"]: each for each in json.loads(text)["checks"]}
    told = {each["what"] for each in checks["aws"]["prices"] if each["differences"]}
    assert api.endpoint
    assert code == 1
    assert told == {"c7a.8xlarge", "c7a.8xlarge on spot", "GiB of disk"}


def test_prices_check_names_missing_policy_of_credentials(
    api: SimulatedHetzner, aws: SimulatedPrices, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.market.refused = "AccessDeniedException"

    code, text = said(capsys)

    assert api.endpoint
    assert code == 1
    assert tells(text, "not checked", "docs/how-to/run-on-aws.md")


def test_prices_check_fails_when_hetzner_prices_differ(
    api: SimulatedHetzner, capsys: pytest.CaptureFixture[str]
) -> None:
    for sold in api.state.resources["server_types"].values():
        for price in sold["prices"]:
            dearer = Decimal(price["price_hourly"]["net"]) * 2
            price["price_hourly"] = {"net": f"{dearer:.10f}", "gross": "1"}

    code, text = said(capsys)

    assert code == 1
    assert tells(text, "ccx33", "0.2219 EUR/h", "0.4438 EUR/h")
