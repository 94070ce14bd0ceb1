"""Whatever tickets, budgets and machines there are: giving out machines passes no budget."""

from dataclasses import dataclass, field
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.model.facts import World
from fleet.model.tickets import close
from fleet.model.values import amount_of
from fleet.planner.begin import begin_pool_plans
from fleet.planner.budgets import open_accounts
from fleet.planner.inventory import take_inventory
from fleet.schema.model import Fleet
from fleet.tickets.rounds import hand_out_all
from tests.builders.ticketing import a_ticket_fleet
from tests.laws.machine import Farm
from tests.laws.ticket_farm import TicketFarm
from tests.ports.engines import quiet

TAGS = st.sampled_from([("arch_x86_64", "extra_powerful"), ("extra_powerful",), ("arch_x86_64",)])
NAMES = st.sampled_from(["ada", "ben"])
TEAMS = st.sampled_from(["", "blue", "green"])
LIMITS = st.sampled_from(
    [
        {"per_day": "2 EUR"},
        {"per_hour": "0.6 EUR"},
        {"per_month": "5 EUR"},
        {"machine_hours_per_day": 5},
        {"machine_hours_per_hour": 2, "per_day": "4 EUR"},
        {"machine_hours_per_month": 9},
    ]
)
COUNTED = st.sampled_from(
    [{}, {"team": "blue"}, {"owner": "ada"}, {"tags": ["extra_powerful"]}, {"team": "green"}]
)
BUDGETS = st.lists(st.builds(lambda of, most: of | most, COUNTED, LIMITS), min_size=1, max_size=3)
POOL_BUDGETS = st.sampled_from([None, {"per_day": "3 EUR"}, {"per_hour": "1 EUR"}])
TICKETS = st.lists(st.tuples(TAGS, NAMES, TEAMS), max_size=3)


@dataclass
class Step:
    """What happens between two runs."""

    opened: list[tuple[tuple[str, ...], str, str]]
    closed: list[int]
    minutes: int


STEPS = st.lists(
    st.builds(
        Step, TICKETS, st.lists(st.integers(1, 9), max_size=2), st.sampled_from([1, 30, 300, 900])
    ),
    min_size=2,
    max_size=6,
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Return a fleet with a pool on demand, one of usual machines, and budgets."""
    billing = {"billing": {"increment": draw(st.sampled_from(["1s", "1h"]))}}
    budget = draw(POOL_BUDGETS)
    powerful = {
        "provider": "desk",
        "machine": "ccx63",
        "image": "builder",
        "provides": ["extra_powerful"],
        "workers": {"max": 4},
    } | ({"reuse": {"opportunity": "30m"}} if draw(st.booleans()) else {})
    plain = {
        "provider": "shed",
        "machine": "ccx33",
        "image": "builder",
        "workers": {"max": 3, "spare": draw(st.integers(0, 1))},
    } | ({"budget": budget} if budget else {})
    length = draw(st.sampled_from([None, "20m", "4h", "20h"]))
    budgets = draw(BUDGETS)
    return a_ticket_fleet(
        providers={"desk": {"kind": "sim"} | billing, "shed": {"kind": "sim"} | billing},
        images={
            "builder": {
                "existing": {"desk": "b-1", "shed": "b-1"},
                "provides": ["arch_x86_64"],
            }
        },
        pools={"powerful": powerful, "plain": plain},
        tags={"extra_powerful": {"on_demand": True, "exclusive": True}},
        budgets={f"b{number}": each for number, each in enumerate(budgets)},
        durations={"any": length} if length else {},
    )


@dataclass
class Judged:
    """How far each limit is used up: spent and reserved, and what it allows."""

    used: dict[object, Decimal] = field(default_factory=dict)
    allowed: dict[object, Decimal] = field(default_factory=dict)


def judged(fleet: Fleet, world: World) -> Judged:
    found = Judged()
    for account in open_accounts(
        begin_pool_plans(fleet, world, take_inventory(fleet, world)).books, (), ()
    ):
        key = account.row.path, account.coming
        found.used[key] = (amount_of(account.spent) or Decimal(0)) + account.reserved
        found.allowed[key] = account.limit.amount or Decimal(0)
    return found


class BudgetFarm(TicketFarm):
    """A farm that looks at the budgets before and after machines are given out."""

    def observe(self) -> World:
        """Return the world once machines are given out, which may have passed no budget."""
        seen = Farm.observe(self)
        world = hand_out_all(self.fleet, seen, self.sources().of_tickets, quiet, quiet)
        before, after = judged(self.fleet, seen), judged(self.fleet, world)
        for key, used in after.used.items():
            assert used <= max(before.used[key], after.allowed[key]), (key, before, after)
        return world


@settings(max_examples=max(min(40, settings().max_examples), settings().max_examples // 3))
@given(fleets(), STEPS)
def test_assignment_of_machines_respects_every_budget(fleet: Fleet, steps: list[Step]) -> None:
    farm = BudgetFarm(fleet)
    for step in steps:
        for tags, owner, team in step.opened:
            farm.open(tags=tags, owner=owner, submitter=owner, team=team)
        for number in step.closed:
            if number in farm.desk.all:
                farm.desk.change(number, lambda each: close(each, farm.now), farm.now)
        farm.run()
        for name in list(farm.made):
            farm.boot(name)
        farm.pass_time(minutes=step.minutes)
    farm.observe()
