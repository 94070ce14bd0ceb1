"""A machine of which no provider returns a possible creation time has no known age or cost."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.builders.sentences import tells
from tests.rigs.repeats import slow_but
from tests.rigs.trial import Trial, fleet_yaml

STRANGER = "own_f0777"
KEYS = "machine: {cores: 1, memory: 1GiB, price: 0.01 EUR/h}, image: trixie, workers: {max: 3}"
LISTING = """#!/bin/sh
printf '[' && cat listed 2>/dev/null; echo ']'
"""
NEW = """#!/bin/sh
printf '{"name": "%s", "type": "own", "labels": %s, "address": "192.0.2.9", "created_at": "%s"}' \\
    "$FLEET_MACHINE" "$FLEET_LABELS" "$(date -u -d "$(cat ahead)" +%FT%TZ)" > listed
"""


def fleet_of(hooks: str) -> str:
    text = fleet_yaml(pools={"own": f"{{provider: desk, {KEYS}}}"}, queue="{kind: tickets}")
    text = text.replace("architecture: amd64}", "architecture: amd64, provides: [deb]}")
    return text.replace("kind: sim, boot: 1s", f"kind: hooks, {hooks}")


RESALLOC = fleet_of(
    "interface: resalloc, list_exit: ignored, delete: ['true'], list: [cat, vms], "
    'new: [sh, -c, "echo $RESALLOC_NAME >> vms; echo host"]'
)


@pytest.fixture
def begun(project: Path) -> Trial:
    """Return a fleet of Resalloc's commands without machines."""
    trial = Trial(project)
    trial.write(RESALLOC)
    (project / "vms").write_text("")
    trial.init()
    return trial


def listed(trial: Trial) -> dict[str, Any]:
    said = trial.do("machine", "list", "--json")[1]
    (machine,) = json.loads(said[said.index("{") :])["machines"]
    found: dict[str, Any] = machine
    return found


def check_unknown(trial: Trial, name: str) -> None:
    machine = listed(trial)
    assert (machine["worker"], machine["created_at"], machine["cost_so_far"]) == (name, None, None)
    _, said = trial.do("explain", "worker", name)
    assert tells(said, "creation", "unknown")
    assert "1970" not in said


def money(trial: Trial) -> Decimal:
    entries = trial.store().dump()["ledger"]
    return sum((Decimal(entry["nanos"]) for entry in entries), Decimal(0)).scaleb(-9)


def test_leaked_machine_has_no_cost_when_its_age_is_unknown(begun: Trial) -> None:
    (begun.folder / "vms").write_text(f"{STRANGER}\n")

    begun.do("apply")

    check_unknown(begun, STRANGER)
    assert begun.told("ticket", "list", "--json").strip() == "[]"
    assert money(begun) < Decimal("0.001")
    _, orphans = begun.do("state", "orphans", "--json")
    (orphan,) = json.loads(orphans)["orphans"]
    assert (orphan["since"], orphan["goes"]) == (None, False)


def test_recorded_machine_is_kept_when_its_age_is_lost(begun: Trial) -> None:
    number = begun.told("ticket", "open", "--tag", "deb", "--user", "ada").split()[0]
    begun.apply()
    begun.apply()
    (begun.folder / ".fleet/hook-machines.json").unlink()

    begun.do("apply")

    check_unknown(begun, "own_f0001")
    assert tells(begun.told("ticket", "show", number), "state", "ready")
    assert (begun.folder / "vms").read_text() == "own_f0001\n"


def test_recorded_machine_is_busy_when_age_and_store_are_lost(begun: Trial) -> None:
    begun.told("ticket", "open", "--tag", "deb", "--user", "ada")
    begun.apply()
    begun.apply()
    for name in ("hook-machines.json", "store.db"):
        (begun.folder / ".fleet" / name).unlink()
    begun.told("state", "init")
    number = begun.told("ticket", "open", "--tag", "deb", "--user", "eve").split()[0]

    begun.do("apply")

    tickets = {each["owner"]: each for each in begun.json("ticket", "list")}
    assert tickets["unknown"]["machine"] == "own_f0001"
    assert (str(tickets["eve"]["id"]), tickets["eve"]["machine"]) == (number, "")


@pytest.mark.parametrize("ahead", slow_but(["2 hours"], ["6 minutes", "2 hours", "400 days"]))
def test_machine_in_use_is_kept_when_its_clock_is_ahead(project: Path, ahead: str) -> None:
    """As by `date +%FT%TZ` without `-u`, east of Greenwich."""
    trial = Trial(project)
    trial.write(fleet_of("new: [sh, new.sh], delete: [rm, listed], list: [sh, list.sh]"))
    for name, text in (("new.sh", NEW), ("list.sh", LISTING), ("ahead", ahead)):
        (project / name).write_text(text)
    trial.init()
    trial.told("ticket", "open", "--tag", "deb", "--user", "ada")
    trial.apply()
    trial.apply()
    check_unknown(trial, "trial-own-0001")
    (project / ".fleet/store.db").unlink()
    trial.told("state", "rebuild", "--apply")
    trial.told("ticket", "open", "--tag", "deb", "--user", "eve")

    trial.do("apply")

    tickets = {each["owner"]: each for each in trial.json("ticket", "list")}
    assert tickets["unknown"]["machine"] == "trial-own-0001"
    assert tickets["eve"]["machine"] == ""
