"""A deletion that is accepted while the machine stays listed: until then it is not deleted."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from tests.builders.sentences import tells
from tests.rigs.racks import a_rack, made

# The clock of these tests does not reach a shell, so it is written to a file.
NEW = """\
. ./new.sh
sed -i "s/\\"20[0-9T:-]*Z\\"/\\"$(cat now)\\"/" "machines/$FLEET_MACHINE"
"""
STAYS = """\
echo >> tries
f="machines/$FLEET_MACHINE"
test ! -e gone || rm -f "$f"
test ! -e "$f" || sed -i 's/{"name"/{"state": "stopping", "name"/' "$f"
"""
FIRST, SECOND = "rack-first-0001", "rack-first-0002"


class Slow:
    """A fleet whose one machine is to be deleted, and a clock that is moved by hand."""

    def __init__(self, folder: Path, clock: time_machine.Traveller, delete: str) -> None:
        self.clock = clock
        self.folder = folder
        self.later(0)
        self.trial = a_rack(folder, NEW, most=1, other="", delete=delete)
        self.trial.told("apply")
        self.later(1)
        self.trial.told("apply")
        self.trial.told("ticket", "close", "1")
        self.trial.told("ticket", "open", "--tag", "any")

    def later(self, minutes: float) -> None:
        """Let time pass."""
        self.clock.shift(timedelta(minutes=minutes))
        (self.folder / "now").write_text(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")

    def outcome(self, minutes: float = 1) -> tuple[int, list[str], list[str]]:
        """Apply so much later; return the exit code, and what is deleted and being deleted."""
        self.later(minutes)
        code, said = self.trial.do("apply", "--json")
        (stack,) = json.loads(said[said.index("{") :])["stacks"]
        return code, stack["deleted"], stack.get("deleting", [])

    def tries(self) -> int:
        """Return how often `delete` was run."""
        path = self.folder / "tries"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def attention(self) -> list[str]:
        """Return what a person has to look at."""
        return list(self.trial.plan()["attention"])


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(datetime(2026, 11, 23, 8, tzinfo=UTC), tick=False) as clock:
        yield clock


@pytest.fixture
def slow(project: Path, clock: time_machine.Traveller) -> Slow:
    return Slow(project, clock, STAYS)


def test_machine_is_deleting_when_provider_still_lists_it(slow: Slow) -> None:
    first = [slow.outcome() for _ in range(3)]

    assert first == [(0, [], [FIRST])] * 3
    assert slow.tries() == 1
    assert slow.attention == []
    assert tells(slow.trial.told("plan"), "deleting", "2026-11-23 08:02 UTC")
    for shown in (("ticket", "show", "2"), ("explain", "request", "2")):
        said = " ".join(slow.trial.told(*shown).split())
        assert tells(said, "pool first", "workers.max", FIRST, "deleting", "2026-11-23 08:02")


def test_machine_is_deleted_when_provider_no_longer_lists_it(slow: Slow) -> None:
    slow.outcome()
    (slow.folder / "machines" / FIRST).unlink()

    assert slow.outcome() == (0, [FIRST], [])
    assert slow.outcome()[0] == 0
    assert len(made(slow.trial)) == 1
    noted = json.loads((slow.folder / ".fleet/hook-machines.json").read_text())
    assert "deleting" not in noted
    log = slow.trial.told("log")
    assert log.count(f" delete {FIRST} (first): done") == 1


@pytest.mark.slow
def test_machine_needs_attention_when_deletion_takes_too_long(slow: Slow) -> None:
    slow.outcome()

    before = slow.outcome(28), slow.tries()
    late = [(slow.outcome(minutes), slow.tries()) for minutes in (2, 1, 9, 1, 18, 2)]

    assert before == ((0, [], [FIRST]), 1)
    assert [code for (code, _, _), _ in late] == [1] * 6
    assert [tries for _, tries in late] == [2, 2, 3, 3, 3, 4]
    (said,) = slow.attention
    assert tells(said, FIRST, "2026-11-23 08:02Z", "timeouts.delete", "30m")
    assert "Action required" in slow.trial.do("status")[1]


def test_machine_is_not_deleted_when_list_after_deletion_is_unknown(
    project: Path, clock: time_machine.Traveller
) -> None:
    slow = Slow(project, clock, 'rm "machines/$FLEET_MACHINE"; touch broken')
    list_ = (project / "list.sh").read_text()
    (project / "list.sh").write_text(f"test ! -e broken || exit 1\n{list_}")

    code, deleted, deleting = slow.outcome()
    (project / "broken").unlink()

    assert (code, deleted, deleting) == (1, [], [])
    assert slow.outcome() == (0, [FIRST], [])
