"""A machine that its provider no longer lists: when it is gone, and what keeps it."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine

from tests.rigs.trial import Trial, fleet_yaml

AT_SIM = "boot: 1s, gone: {lists: 3, after: 1s}"
POOL = "{provider: desk, machine: ccx13, image: trixie, workers: {max: 1}}"
ONE = "trial-own-0001"
LIST = """\
[ ! -e broken ] || exit 1
comma=
printf '['
for file in machines/*; do
  [ -e "$file" ] && [ ! -e hidden ] || continue
  printf '%s' "$comma"
  cat "$file"
  comma=,
done
echo ']'
"""
SCRIPTS = {
    "new": """\
cat > /dev/null
mkdir -p machines
cat > "machines/$FLEET_MACHINE" <<END
{"name": "$FLEET_MACHINE", "type": "$FLEET_TYPE", "image": "$FLEET_IMAGE",
 "created_at": "$(date -u +%FT%TZ)", "labels": $FLEET_LABELS}
END
""",
    "delete": 'echo "$FLEET_MACHINE" >> deleted; rm -f "machines/$FLEET_MACHINE"\n',
    "list": LIST,
    "livecheck": 'test -s "machines/$FLEET_MACHINE"\n',
}


def ticket_fleet(pool: str = POOL, desk: str = AT_SIM, queue: str = "{kind: tickets}") -> str:
    text = fleet_yaml(pools={"own": pool}, desk=desk, queue=queue)
    return text.replace("architecture: amd64}", "architecture: amd64, provides: [deb]}")


def own_commands(more: str) -> str:
    """Return a fleet whose machines are files that commands write."""
    hooks = "".join(
        f", {name}: [./{name}.sh]" for name in SCRIPTS if name in more or name != "livecheck"
    )
    pool = POOL.replace("ccx13", "{cores: 2, memory: 8GiB, price: 0.1 EUR/h}")
    more = more.replace("livecheck ", "")
    return ticket_fleet(pool).replace(f"kind: sim, {AT_SIM}", f"kind: hooks{hooks}, {more}")


def write_scripts(folder: Path) -> None:
    for name, text in SCRIPTS.items():
        path = folder / f"{name}.sh"
        path.write_text(f"#!/bin/sh\nset -eu\n{text}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def opened(trial: Trial) -> str:
    return trial.told("ticket", "open", "--tag", "deb", "--user", "ada").split()[0]


def state_of(trial: Trial, number: str) -> str:
    said = trial.told("ticket", "show", number)
    (line,) = [each for each in said.splitlines() if each.strip().startswith("state")]
    return line.split()[1].rstrip(":")


def absences(trial: Trial) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = trial.world().get("absences", [])
    return found


@pytest.fixture
def serving(project: Path) -> tuple[Trial, str]:
    """Return a simulated fleet whose one machine has a ticket, and that ticket."""
    return Trial(project).begun(begin_serving), "1"


def begin_serving(trial: Trial) -> None:
    trial.write(ticket_fleet())
    number = opened(trial)
    trial.apply()
    trial.age(seconds=2)
    trial.apply()
    assert (number, state_of(trial, number)) == ("1", "ready")


@pytest.fixture
def own(project: Path) -> Trial:
    write_scripts(project)
    return Trial(project)


def serve_one(trial: Trial, text: str) -> str:
    trial.write(text)
    trial.init()
    number = opened(trial)
    trial.apply()
    trial.apply()
    assert state_of(trial, number) == "ready"
    return number


def run_after_a_second(clock: time_machine.Traveller, trial: Trial, count: int = 1) -> None:
    for _ in range(count):
        trial.do("apply")
        clock.shift(1.1)


def test_unknown_list_does_not_count_as_missing_machine(
    clock: time_machine.Traveller, own: Trial
) -> None:
    number = serve_one(own, own_commands("gone: {lists: 3, after: 1s}"))
    (own.folder / "hidden").touch()
    run_after_a_second(clock, own)
    (own.folder / "broken").touch()
    run_after_a_second(clock, own, 4)
    unknown = state_of(own, number)
    (own.folder / "broken").unlink()
    run_after_a_second(clock, own)

    assert unknown == state_of(own, number) == "ready"
    run_after_a_second(clock, own)
    assert state_of(own, number) == "failed"


def test_busy_machine_is_not_deleted_when_its_lists_were_wrong(
    clock: time_machine.Traveller, own: Trial
) -> None:
    number = serve_one(own, own_commands("gone: {lists: 2, after: 1s}"))
    (own.folder / "hidden").touch()
    run_after_a_second(clock, own, 3)
    (own.folder / "hidden").unlink()
    own.do("apply")

    assert state_of(own, number) == "failed"
    assert (own.folder / "machines" / ONE).exists()
    assert not (own.folder / "deleted").exists()


def test_failing_livecheck_counts_when_a_machine_is_not_listed(
    clock: time_machine.Traveller, own: Trial
) -> None:
    number = serve_one(own, own_commands("livecheck livecheck_every: 1s, livecheck_failures: 2"))
    (own.folder / "machines" / ONE).unlink()
    run_after_a_second(clock, own)
    once = state_of(own, number)

    run_after_a_second(clock, own)

    assert (once, state_of(own, number)) == ("ready", "failed")
    assert own.recorded() == []


def test_absence_count_restarts_when_clock_was_ahead(
    clock: time_machine.Traveller,
    serving: tuple[Trial, str],
) -> None:
    trial, number = serving
    trial.cloud.delete("sim-1")
    trial.do("apply")
    (absence,) = trial.store().absences()
    ahead = absence.altered(since=datetime.now(UTC) + timedelta(days=1), lists=9)
    trial.store().record_absences([ahead])

    trial.do("apply")

    assert state_of(trial, number) == "ready"
    run_after_a_second(clock, trial, 2)
    assert state_of(trial, number) == "failed"
