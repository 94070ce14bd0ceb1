"""A `new` that is refused: which name or pool the next run takes instead."""

import json
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.racks import a_rack, made
from tests.rigs.repeats import slow_but
from tests.rigs.trial import Trial

FAILS = "cat > /dev/null; {}; exit 1"


def strange(trial: Trial, *names: str, fleet: str = "debian") -> None:
    """Have machines of another fleet be there."""
    (trial.folder / "machines").mkdir(exist_ok=True)
    for name in names:
        machine = {
            "name": name,
            "type": "own",
            "created_at": "2026-11-21T08:00:00Z",
            "labels": {"fleet": fleet, "pool": "ci-b"},
        }
        (trial.folder / "machines" / name).write_text(json.dumps(machine), encoding="utf-8")


TAKEN = (
    'cat > /dev/null; test ! -e "machines/$FLEET_MACHINE" || '
    "{ echo uniqueness_error: server name is already used >&2; exit 1; }; . ./new.sh"
)


def test_listed_name_is_skipped_when_another_fleet_uses_it(project: Path) -> None:
    trial = a_rack(project, TAKEN)
    strange(trial, "rack-first-0001", "rack-first-0002")

    trial.told("apply")

    assert "rack-first-0003" in made(trial)


@pytest.mark.parametrize(
    "said",
    slow_but(
        ["echo name-taken"],
        [
            "echo uniqueness_error: server name is already used >&2",
            "echo \"operation failed: domain '$FLEET_MACHINE' already exists with uuid 1\" >&2",
            "echo name-taken",
        ],
    ),
)
def test_next_name_is_used_when_command_new_refuses_the_first(said: str, project: Path) -> None:
    new = f"case $FLEET_MACHINE in *-0001) cat > /dev/null; {said}; exit 1;; esac; . ./new.sh"
    trial = a_rack(project, new)

    codes = [trial.do("apply")[0] for _ in range(2)]

    assert codes == [1, 0]
    assert made(trial) == ["rack-first-0002"]


def test_free_name_is_found_when_many_are_taken(project: Path) -> None:
    new = """cat > /dev/null
test "${FLEET_MACHINE##*-}" -gt 0030 || { echo name-taken; exit 1; }; . ./new.sh"""
    trial = a_rack(project, new)

    for _ in range(9):
        if trial.do("apply")[0] == 0:
            break

    assert len([name for name in made(trial) if name.startswith("rack-first")]) == 1


@pytest.mark.parametrize(
    "said",
    slow_but(
        ["echo No valid host was found >&2"],
        [
            "echo out-of-stock",
            "echo quota",
            "echo Quota exceeded for cores >&2",
            "echo No valid host was found >&2",
            "echo ZONE_RESOURCE_POOL_EXHAUSTED >&2",
        ],
    ),
)
def test_next_pool_serves_when_command_new_states_a_shortage(said: str, project: Path) -> None:
    trial = a_rack(project, FAILS.format(said))

    trial.do("apply")
    trial.told("apply")

    assert made(trial) == ["rack-works-0001"]


def test_plain_error_counts_once_when_command_new_states_it(project: Path) -> None:
    trial = a_rack(project, FAILS.format("echo error; echo Quota exceeded >&2"))

    for _ in range(3):
        trial.do("apply")

    assert made(trial) == []


def test_stated_outcome_is_in_the_message(project: Path) -> None:
    trial = a_rack(project, FAILS.format("echo out-of-stock; echo the rack is full >&2"))

    _, said = trial.do("apply")

    assert tells(said, "rack-first-0001", "out-of-stock", "the rack is full")
