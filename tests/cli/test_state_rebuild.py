"""`fleet state orphans` and `rebuild`: what one witness lost is seen, and made anew from marks."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.ports.engines import skip_without_cli
from tests.rigs.trial import BUILDERS, ONE, TWO, Trial, fleet_yaml

POOLS = {"builders": BUILDERS}
PRICE = Decimal("0.5")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fleet that has made two machines; it is copied, not changed."""
    trial = Trial(tmp_path_factory.mktemp("template"))
    trial.write(fleet_yaml(pools=POOLS))
    trial.init()
    trial.wait_for("1", "2")
    trial.apply()
    return trial.folder


@pytest.fixture
def used(template: Path, project: Path) -> Trial:
    """Return such a fleet."""
    shutil.copytree(template, project, dirs_exist_ok=True)
    return Trial(project)


def lose(trial: Trial, *names: str) -> None:
    for name in names or ("store.db", "embedded.db"):
        (trial.folder / ".fleet" / name).unlink()


def spent(trial: Trial) -> Decimal:
    """Return what the ledger was charged so far."""
    entries = trial.store().dump()["ledger"]
    return sum((Decimal(entry["nanos"]) for entry in entries), Decimal(0)).scaleb(-9)


HOURLY = (
    f"boot: 1s, billing: {{increment: 1h}}, types: {{ccx33: {{cores: 8, memory: 32GiB, "
    f"disk: 240GiB, price: {PRICE} EUR/h, spot: 0.2 EUR/h}}}}"
)


def charged(trial: Trial, *lost: str) -> Decimal:
    """Return the money that the ledger holds after these files were lost and rebuilt."""
    now = datetime.now(UTC)
    if now - timedelta(hours=3) < now.replace(day=1, hour=0, minute=0, second=0, microsecond=0):
        pytest.skip("the machines are older than this month")
    lose(trial, *lost)
    _, shown = trial.do("state", "rebuild", "--json")
    _, said = trial.do("state", "rebuild", "--apply")
    money = spent(trial)
    assert Decimal(json.loads(shown[shown.index("{") :])["charged"]) == money
    assert tells(said, f"{money:.2f}", "EUR")
    return money


def test_rebuild_charges_from_creation_when_machines_differ_in_age(used: Trial) -> None:
    used.write(fleet_yaml(pools=POOLS, desk=HOURLY))
    used.age(minutes=150)
    used.wait_for("1", "2", "3")
    used.apply()
    used.age(seconds=30)

    assert charged(used) == (3 + 3 + 1) * PRICE


def test_rebuild_charges_a_removed_pool_from_creation(used: Trial) -> None:
    used.age(minutes=90)
    used.write(fleet_yaml(pools={"others": BUILDERS}, desk=HOURLY))

    assert charged(used) == 2 * 2 * PRICE


def test_rebuild_charges_the_spot_price_when_stacks_are_lost(project: Path) -> None:
    trial = Trial(project)
    market = BUILDERS.replace("machine: ccx33", "machine: {type: ccx33, market: [spot]}")
    trial.write(fleet_yaml(pools={"builders": market}, desk=HOURLY))
    trial.init()
    trial.wait_for("1")
    trial.apply()
    trial.age(seconds=30)

    assert charged(trial) == Decimal("0.2")


def test_rebuild_charges_this_month_only_when_a_machine_is_older(used: Trial) -> None:
    desk = HOURLY.replace("billing: {increment: 1h}, ", "")
    used.write(fleet_yaml(pools=POOLS, desk=desk))
    used.age(days=40)
    now = datetime.now(UTC)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    hours = Decimal((now - month) / timedelta(hours=1))

    lose(used)
    used.do("state", "rebuild", "--apply")

    assert abs(spent(used) - 2 * PRICE * hours) < PRICE / 60


@pytest.mark.engine
def test_rebuild_imports_machines_into_pulumi_stack(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_cli()
    monkeypatch.setenv("PASSPHRASE", "a passphrase for tests")
    trial = Trial(project)
    state = "state: {passphrase: {env: PASSPHRASE}}"
    trial.write(fleet_yaml(pools=POOLS, desk="boot: 1s, engine: pulumi", more=state))
    trial.init()
    trial.wait_for("1", "2")
    trial.apply()
    for path in (".pulumi", "pulumi", "store.db"):
        (project / ".fleet" / path).rename(project / f"old-{path}")
    before = [machine.created_at for machine in trial.made()]

    trial.told("state", "rebuild", "--apply")

    assert trial.recorded() == [ONE, TWO]
    assert [machine.created_at for machine in trial.made()] == before
    assert trial.settles()
