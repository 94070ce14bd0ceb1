"""What the tickets of a team are billed with sandboxes, and its limit, from the command line."""

import json
from decimal import Decimal

import pytest
import time_machine

from tests.rigs.clocked import Clocked

FLEET = """\
fleet: trial
cadence: 10m
durations: {any: 10m}
providers:
  desk:
    kind: sim
    boot: 30s
    billing: {increment: BILLED}
    types: {mighty: {cores: 64, memory: 128GiB, disk: 400GiB, price: 6.00 EUR/h}}
queues:
  tickets: {kind: tickets}
images:
  builder: {existing: {desk: b-1}}
pools:
  powerful:
    provider: desk
    machine: mighty
    image: builder
    provides: [big]
    workers: {max: 6, KEEPS}
    reuse: {max_uses: 9, max_age: AGE, opportunity: KEPT}
budgets:
  kde: {ONLY, per_day: LIMIT EUR}
"""


class Story(Clocked):
    """A fleet in the current folder; each ticket holds its machine for ten minutes."""

    def __init__(self, clock: time_machine.Traveller, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(clock, capsys)
        self.served: list[str] = []
        """Tickets in the order in which they got machines."""

    def begin(self, **parts: str) -> None:
        self.write(FLEET, **({"age": "8h"} | parts))

    def open(self, sandbox: str) -> None:
        who = ["--user", "ann", "--team", "kde", *(["--sandbox", sandbox] if sandbox else [])]
        self.run("ticket", "open", "--tag", "big", *who)

    def step(self, times: int = 1) -> None:
        """Run, ten minutes after the run before; tickets that had a machine then give it back."""
        for _ in range(times):
            self.later(10)
            for ticket in json.loads(self.run("ticket", "list", "--json")):
                if ticket["state"] == "ready":
                    self.served.append(str(ticket["id"]))
                    self.run("ticket", "close", str(ticket["id"]), "--user", "ann")
            self.run("apply")

    def billed(self) -> Decimal:
        """Return what the team was charged this month."""
        teams = json.loads(self.run("report", "--month", "2026-11", "--json"))["teams"]
        return sum((Decimal(each["money"]) for each in teams if each["name"] == "kde"), Decimal(0))


@pytest.mark.parametrize(
    ("only", "limit", "billed", "is_never"),
    [
        ("team: kde", 2, "1h", True),
        ("owner: ann", 5, "1h", True),
        ("tags: [big]", 1, "1h", True),
        ("team: kde", 1, "1s", True),
        ("team: kde", 7, "1h", False),
    ],
)
def test_ticket_names_the_key_when_its_budget_never_pays_for_one(
    story: Story, only: str, limit: int, billed: str, *, is_never: bool
) -> None:
    """A machine costs 6 EUR per hour; the first ticket takes what the limit of 7 EUR allows."""
    story.begin(keeps="min: 0", only=only, billed=billed, limit=str(limit), kept="5m")
    story.open("ann/one")
    story.open("ann/two")
    story.run("apply")

    (*_, last) = json.loads(story.run("ticket", "list", "--json"))

    assert ("2026-11-2" in last["because"]) is not is_never
    assert ("raise budgets.kde.per_day" in last["because"]) is is_never
