"""Plans rest on Hetzner's own price list, kept in the store; else on the shipped table."""

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fleet.program import main
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from tests.builders.sentences import tells

FLEET = """\
fleet: trial
providers:
  hetzner: {kind: hcloud, location: fsn1, token: {env: HCLOUD_TOKEN}}
state: {passphrase: {env: FLEET_PASS}}
queues:
  work: {kind: tickets}
images:
  trixie: {existing: {hetzner: debian-13}, provides: [plain]}
pools:
  builders: {provider: hetzner, machine: MACHINE, image: trixie, workers: {max: 4}}
"""
SHIPPED = "0.2227"
"""A ccx33 and its address, per hour, by the shipped table."""


class Asked:
    """A fleet in the current folder, and the Hetzner that it asks."""

    def __init__(self, api: SimulatedHetzner, capsys: pytest.CaptureFixture[str]) -> None:
        self.api = api
        self._capsys = capsys

    def run(self, *args: str) -> str:
        main([*args])
        return self._capsys.readouterr().out

    def plan(self, *args: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.run("plan", "--json", *args))
        return said

    def charge(self, net: str) -> None:
        """Let every server type cost so much everywhere."""
        for sold in self.api.state.resources["server_types"].values():
            for price in sold["prices"]:
                price["price_hourly"] = {"net": net, "gross": str(Decimal(net) * 2)}
                price["price_monthly"] = {"net": str(Decimal(net) * 624), "gross": "1"}

    def sell(self, name: str) -> None:
        """Sell a ccx33 under another name too."""
        types = self.api.state.resources["server_types"]
        known = next(each for each in types.values() if each["name"] == "ccx33")
        types[999] = {**known, "id": 999, "name": name, "cores": 9}

    def times_asked(self) -> int:
        return sum(each.path.endswith("/pricing") for each in self.api.requests)


@pytest.fixture
def asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Asked]:
    monkeypatch.chdir(tmp_path)
    write("ccx33")
    with SimulatedHetzner() as api:
        monkeypatch.setenv("HCLOUD_ENDPOINT", api.endpoint)
        monkeypatch.setenv("HCLOUD_TOKEN", api.token)
        asked = Asked(api, capsys)
        asked.run("state", "init")
        asked.run("ticket", "open", "--tag", "plain")
        yield asked


def write(machine: str) -> None:
    Path("fleet.yaml").write_text(FLEET.replace("MACHINE", machine), encoding="utf-8")


def age(by: timedelta) -> None:
    """Let the list that is kept have been read so much earlier."""
    store = Store(sqlite_url(Path.cwd() / ".fleet/store.db"), "trial")
    kept = store.prices.read()["hetzner"]
    store.prices.write({"hetzner": kept.altered(read_at=kept.read_at - by)})


def test_plan_uses_hetzner_prices_instead_of_catalogue(
    asked: Asked,
) -> None:
    asked.charge("0.5000000000")

    plan = asked.plan()

    assert plan["cost_after"] == "0.5008"
    (source,) = plan["prices"]
    assert (source["provider"], source["own"], source["because"]) == ("hetzner", True, "")
    assert source["as_of"][:10] == plan["time"][:10]


def test_type_known_only_to_hetzner_is_created(asked: Asked) -> None:
    asked.sell("ccx34")
    write("ccx34")

    plan = asked.plan()

    assert [each["inputs"]["type"] for each in plan["actions"]] == ["ccx34"]
    assert plan["cost_after"] == SHIPPED
    assert not {each["rule"] for each in plan["warnings"]} & {
        "unknown-machine-type",
        "missing-price",
    }


def test_type_no_longer_sold_by_hetzner_is_not_created(asked: Asked) -> None:
    types = asked.api.state.resources["server_types"]
    for number in [key for key, each in types.items() if each["name"] == "ccx33"]:
        del types[number]

    plan = asked.plan()

    assert plan["actions"] == []
    assert plan["pools"][0]["not_known"] == ["price"]


def test_hetzner_prices_are_read_once_a_day(asked: Asked) -> None:
    asked.plan()
    asked.charge("0.5000000000")
    second = asked.plan()
    age(timedelta(hours=23))
    third = asked.plan()
    age(timedelta(hours=2))
    fourth = asked.plan()

    assert asked.times_asked() == 2
    assert second["cost_after"] == third["cost_after"] == SHIPPED
    assert fourth["cost_after"] == "0.5008"


def test_plan_uses_stored_prices_with_age_when_hetzner_is_down(asked: Asked) -> None:
    asked.charge("0.5000000000")
    asked.plan()
    age(timedelta(hours=49))
    asked.api.fail(Fault("GET", "/pricing", status=503))

    plan = asked.plan()
    asked.api.fail(Fault("GET", "/pricing", status=503))
    text = asked.run("plan")

    assert plan["cost_after"] == "0.5008"
    (source,) = plan["prices"]
    assert source["own"]
    assert source["age_seconds"] >= 49 * 3600
    assert "503" in source["because"]
    assert tells(text, source["as_of"], "2 d", "1 h")


def test_prices_check_compares_and_stores_new_prices(asked: Asked) -> None:
    asked.plan()
    asked.charge("0.5000000000")

    first = json.loads(asked.run("prices", "check", "--json"))["checks"][0]
    second = json.loads(asked.run("prices", "check", "--json"))["checks"][0]

    assert first["own"]
    assert first["prices"][0]["differences"][0] == "0.5 EUR/h"
    assert second["prices"][0]["differences"] == []
    assert asked.plan()["cost_after"] == "0.5008"
