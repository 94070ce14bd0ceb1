"""Owners take turns at `workers.max`, also where `reuse` keeps a machine for one of them."""

import json
from pathlib import Path

import pytest
import time_machine

from tests.rigs.clocked import Clocked
from tests.rigs.repeats import slow_after, slow_but

FLEET = """\
fleet: trial
cadence: 1m
providers:
  desk: {kind: sim, boot: 30s}
queues:
  tickets: {kind: tickets}
images:
  builder: {existing: {desk: b-1}, provides: [plain]}
pools:
  powerful:
    provider: desk
    machine: ccx63
    image: builder
    provides: [big, other]
    workers: {max: MOST}
REUSE
"""
REUSE = "    reuse: {opportunity: 15m, max_uses: 99, max_age: 8h}"


class Story(Clocked):
    """A fleet in the current folder, whose clients hold each machine for some runs."""

    def __init__(self, clock: time_machine.Traveller, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(clock, capsys)
        self.served: list[str] = []
        """Users in the order in which they got machines."""
        self._since: dict[str, int] = {}

    def begin(self, most: int, reuse: str = REUSE) -> None:
        self.write(FLEET, most=str(most), reuse=reuse)

    def open(
        self, user: str, count: int = 1, sandbox: str = "", tags: str = "big", team: str = ""
    ) -> None:
        own = ["--sandbox", sandbox or f"{user}/ping", *(("--team", team) if team else ())]
        own += [f"--tag={tag}" for tag in tags.split(",")]
        for _ in range(count):
            self.run("ticket", "open", "--user", user, *own)

    def step(self, holds: int = 2) -> None:
        """Run once, a minute later; who has had a machine for so many runs gives it back."""
        self.later(1)
        self.run("apply")
        for ticket in json.loads(self.run("ticket", "list", "--json")):
            number, user = str(ticket["id"]), ticket["owner"]
            if ticket["state"] != "ready":
                continue
            if number not in self._since:
                self.served.append(user)
            self._since[number] = self._since.get(number, 0) + 1
            if self._since[number] >= holds:
                self.run("ticket", "close", number, "--user", user)

    def step_until_served(self, count: int, most: int, holds: int = 2) -> None:
        """Run until so many tickets got machines, at most this often."""
        for _ in range(most):
            if len(self.served) >= count:
                return
            self.step(holds)


@pytest.mark.parametrize(
    ("most", "reuse"),
    slow_after(1, [(1, REUSE), (2, REUSE), (1, "")]),
    ids=["one", "two", "no reuse"],
)
def test_new_owner_waits_for_one_turn_when_another_has_many(
    story: Story, most: int, reuse: str
) -> None:
    story.begin(most, reuse)
    story.open("ada", 12)
    for _ in range(6):
        story.step()
    before = len(story.served)
    story.open("ben")

    story.step_until_served(before + most + 1, most=14)

    # Whoever has a machine keeps it, and one ticket of ada may get the one that is free.
    assert "ben" in story.served[: before + most + 1]


def test_machine_is_reused_when_no_other_owner_waits(story: Story) -> None:
    story.begin(1)
    story.open("ada", 4)

    story.step_until_served(4, most=14)

    assert story.served == ["ada"] * 4
    machines = json.loads(story.run("plan", "--json"))["workers"]
    assert [each["worker"] for each in machines] == ["trial-powerful-0001"]


def deletions(story: Story) -> list[str]:
    """Return the machines that a plan deletes."""
    actions = json.loads(story.run("plan", "--json"))["actions"]
    return [each["worker"] for each in actions if each["action"] == "delete"]


@pytest.mark.parametrize(
    "stop", slow_but(["freeze"], ["freeze", "freeze of the pool", "observe", "pause"])
)
def test_tickets_are_served_when_no_machine_may_be_deleted(story: Story, stop: str) -> None:
    story.begin(1)
    story.open("ada", 6)
    for _ in range(4):
        story.step()
    if stop.startswith("freeze"):
        pool = ("--pool", "powerful") if stop != "freeze" else ()
        story.run("freeze", "--deletes", "--for", "3h", "--reason", "looked at", *pool)
    else:
        change("    machine:", f"    mode: {stop}\n    machine:")
    story.open("ben")
    before = len(story.served)

    story.step_until_served(before + 3, most=8)

    # The machine cannot go: it serves its sandbox rather than none.
    assert story.served[before:].count("ada") >= 2


def change(old: str, new: str) -> None:
    """Change fleet.yaml."""
    path = Path("fleet.yaml")
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def deletions_in(story: Story, runs: int, holds: int = 2) -> list[str]:
    """Return the machines that the plans of the next runs delete."""
    gone = []
    for _ in range(runs):
        gone += deletions(story)
        story.step(holds)
    return gone


def test_one_machine_is_deleted_when_two_pools_are_full(story: Story) -> None:
    story.begin(1)
    path = Path("fleet.yaml")
    text = path.read_text(encoding="utf-8")
    path.write_text(text + text[text.index("  powerful:") :].replace("powerful", "second"))
    story.open("ada", 12)
    for _ in range(3):
        story.step()
    story.open("ben")

    assert len(deletions_in(story, 8)) == 1
    assert "ben" in story.served[:5]


SECOND = """\
  second:
    provider: desk
    machine: ccx63
    image: builder
    provides: [big, only]
    workers: {max: 2}
"""
TOTAL = ("images:", "tags: {big: {limits: {total: 1}}}\nimages:")
PER_TEAM = ("images:", "tags: {big: {limits: {per: {team: 1}}}}\nimages:")
QUEUE = ("kind: tickets", "kind: tickets, limits: {total: 1}")
TWO = (
    "images:",
    "tags: {big: {limits: {total: 1}}, other: {limits: {total: 1}}}\nimages:",
)
MONEY = ("images:", "budgets: {all: {per_day: 40 EUR}}\nimages:")
HOURS = ("images:", "budgets: {all: {machine_hours_per_hour: 1}}\nimages:")


LIMITS = {
    "a tag in total": (TOTAL, "big", REUSE, 4),
    "a tag in total, another pool, no reuse": (TOTAL, "big,only", "", 4),
    "a tag per team, another pool": (PER_TEAM, "big,only", REUSE, 4),
    "a queue in total": (QUEUE, "big,other", REUSE, 4),
    "two limits": (TWO, "big,other", REUSE, 4),
    "a budget of hours, another pool": (HOURS, "big,only", "", 4),
    "a tag in total, a full pool": (TOTAL, "big,other", REUSE, 1),
    "a tag per team, a full pool": (PER_TEAM, "big,other", REUSE, 1),
    "a queue in total, a full pool": (QUEUE, "big,other", REUSE, 1),
    "two limits, a full pool": (TWO, "big,other", REUSE, 1),
    "a budget of a day, a full pool": (MONEY, "big,other", REUSE, 1),
}


@pytest.mark.parametrize(
    ("limit", "tags", "reuse", "most"), slow_after(1, LIMITS.values()), ids=LIMITS
)
def test_new_owner_waits_for_one_turn_when_a_limit_is_reached(
    story: Story, limit: tuple[str, str], tags: str, reuse: str, most: int
) -> None:
    story.begin(most, reuse)
    change(*limit)
    with Path("fleet.yaml").open("a", encoding="utf-8") as file:
        file.write(SECOND)
    story.open("ada", 8, tags="big,other", team="blue")
    for _ in range(6):
        story.step()
    before = len(story.served)
    story.open("ben", tags=tags, team="blue")

    story.step_until_served(before + 2, most=9)

    assert "ben" in story.served[before : before + 2]


@pytest.mark.parametrize("stop", slow_but(["pause"], ["freeze", "observe", "pause", "slow boot"]))
def test_machine_is_reused_when_no_other_is_created(story: Story, stop: str) -> None:
    story.begin(4)
    change(*TOTAL)
    story.open("ada", 8)
    for _ in range(4):
        story.step()
    if stop == "freeze":
        story.run("freeze", "--creates", "--for", "3h", "--reason", "looked at")
    elif stop == "slow boot":
        change("boot: 30s", "boot: 30m")
    else:
        change("    machine:", f"    mode: {stop}\n    machine:")
    story.open("ben")
    before = len(story.served)

    story.step_until_served(before + 3, most=12)

    # The limit is not kept free for a machine that never comes.
    assert story.served[before:].count("ada") >= 2


FIRST = "trial-powerful-0001"


def states(story: Story) -> dict[str, tuple[str, str]]:
    """Return what a plan does with each worker, and why."""
    workers = json.loads(story.run("plan", "--json"))["workers"]
    return {each["worker"]: (each["verdict"], each["reason"]) for each in workers}


def held_and_released(story: Story, *, closed: bool) -> None:
    """Have the machine of a ticket held for two runs; the ticket ends meanwhile, or later."""
    story.open("ada")
    for _ in range(2):
        story.step(holds=99)
    story.run("hold", FIRST, "--for", "1h", "--reason", "looked at")
    story.step(holds=99)
    if closed:
        story.run("ticket", "close", "1", "--user", "ada")
    story.step(holds=99)
    story.run("hold", FIRST, "--end")
    story.step(holds=99)
    if not closed:
        story.run("ticket", "close", "1", "--user", "ada")


@pytest.mark.parametrize("closed", slow_but([False], [False, True]))
def test_released_machine_serves_the_next_ticket(story: Story, *, closed: bool) -> None:
    story.begin(1)
    held_and_released(story, closed=closed)

    story.open("ada")
    story.step(holds=99)

    assert states(story) == {FIRST: ("keep", "busy")}
