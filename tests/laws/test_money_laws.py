"""Laws of money: they hold however time is cut and whatever Hypothesis buys."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fleet.guard import guard
from fleet.model.facts import Charge, Demand, Ledger, LedgerEntry, Work, Worker, World
from fleet.model.plan import Create
from fleet.model.prices import Life, Tariff
from fleet.planner.begin import begin_pool_plans
from fleet.planner.budgets import BudgetAccount, open_accounts
from fleet.planner.demand import Fit, Place, RequestGroup
from fleet.planner.durations import USUAL
from fleet.planner.inventory import take_inventory
from fleet.planner.ledger import charge_all, periods
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_pool,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    a_world,
    some_inputs,
)

ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"])
STEPS = st.sampled_from(["1s", "1m", "1h"])
CADENCE = timedelta(minutes=10)
NEW = Place(key="builders/ccx33/on-demand", pool="builders", makes=True, type="ccx33")


@st.composite
def billings(draw: st.DrawFn) -> dict[str, object]:
    """Return how the simulated provider bills."""
    billing: dict[str, object] = {"increment": draw(STEPS)}
    if draw(st.booleans()):
        billing["minimum"] = "2m"
    if draw(st.booleans()):
        billing["hours_per_month"] = draw(st.sampled_from([1, 20, 624]))
    return billing


def a_fleet_of(billing: dict[str, object], zone: str, **overrides: object) -> Fleet:
    return a_sim_fleet(
        providers={"desk": {"kind": "sim", "billing": billing}},
        money={"time_zone": zone},
        **overrides,
    )


MOMENTS = st.integers(0, 15 * 86400).map(
    lambda second: datetime(2026, 10, 20, tzinfo=UTC) + timedelta(seconds=second)
)
"""Around the end of a month and the days on which clocks change."""


@st.composite
def machine_lives(draw: st.DrawFn) -> tuple[datetime, datetime, Work | None]:
    """Return when a machine was made, when its work began, and the work."""
    made = draw(MOMENTS)
    begun = made + draw(st.timedeltas(timedelta(0), timedelta(days=3)))
    scope = draw(st.sampled_from([None, "debian", "kali"]))
    return made, begun, Work(scope=scope, started_at=begun) if scope else None


def seen_at(
    moment: datetime,
    lives: list[tuple[datetime, datetime, Work | None]],
    since: datetime | None,
) -> World:
    """Return the world as it was then: machines that were made, work that had begun."""
    machines, workers = [], []
    for number, (made, begun, work) in enumerate(lives):
        name = f"m{number}"
        if made <= moment:
            machines.append(a_machine(name=name, id=name, created_at=made))
            busy = work is not None and begun <= moment
            workers.append(a_worker(name=name, busy=busy, work=work if busy else None))
    names = [machine.name for machine in machines]
    stack = a_stack(
        provider="desk",
        workers=tuple(some_inputs(name=name) for name in names),
        ids={name: name for name in names},
    )
    return a_world(
        time=moment,
        providers={"desk": a_listing(*machines, workers=tuple(workers), read_at=moment)},
        stacks={"builders": stack},
        ledger=Ledger(charged_until=since),
    )


def charged(fleet: Fleet, world: World) -> tuple[LedgerEntry, ...]:
    return charge_all(fleet, world, take_inventory(fleet, world)).entries


def sums(entries: list[LedgerEntry]) -> dict[tuple[datetime, str | None], tuple[int, Decimal]]:
    """Return seconds and money by hour and payer, without what came to nothing."""
    seconds: Counter[tuple[datetime, str | None]] = Counter()
    money: dict[tuple[datetime, str | None], Decimal] = {}
    for entry in entries:
        key = (entry.hour, entry.scope)
        seconds[key] += entry.seconds
        money[key] = money.get(key, Decimal(0)) + entry.money
    return {key: (seconds[key], money[key]) for key in money if seconds[key] or money[key]}


@given(
    billings(),
    ZONES,
    st.lists(machine_lives(), min_size=1, max_size=3),
    st.lists(MOMENTS, min_size=2, max_size=6),
)
def test_frequent_charges_sum_to_single_charge(
    billing: dict[str, object],
    zone: str,
    lives: list[tuple[datetime, datetime, Work | None]],
    moments: list[datetime],
) -> None:
    fleet = a_fleet_of(billing, zone)
    runs = sorted(set(moments))

    often = [
        entry
        for before, now in pairwise(runs)
        for entry in charged(fleet, seen_at(now, lives, since=before))
    ]
    once = charged(fleet, seen_at(runs[-1], lives, since=runs[0]))

    assert sums(often) == sums(list(once))


@given(billings(), ZONES, st.lists(machine_lives(), min_size=1, max_size=3), MOMENTS, MOMENTS)
def test_payers_pay_the_billed_cost_of_machines(
    billing: dict[str, object],
    zone: str,
    lives: list[tuple[datetime, datetime, Work | None]],
    one: datetime,
    other: datetime,
) -> None:
    fleet = a_fleet_of(billing, zone)
    month = periods(fleet, max(one, other))[2].start
    since, until = max(min(one, other), month), max(one, other)
    price, hours = Decimal("0.0777"), billing.get("hours_per_month")
    tariff = Tariff(
        price=price,
        increment={"1s": 1, "1m": 60, "1h": 3600}[str(billing["increment"])],
        minimum=120 if "minimum" in billing else 0,
        cap=price * int(str(hours)) if hours else None,
    )

    entries = charged(fleet, seen_at(until, lives, since=since))

    assert sum(entry.money for entry in entries) == sum(
        Life(tariff, made, month).billed(since, until) for made, _, _ in lives if made < until
    )
    assert sum(entry.seconds for entry in entries) == sum(
        Life(tariff, made, month).seconds(since, until) for made, _, _ in lives if made < until
    )


def most_that_fits(accounts: tuple[BudgetAccount, ...], most: int = 30) -> int:
    """Return how many machines with one request each no row stops."""
    left = [most]
    for account in accounts:
        each = account.row.machines.get(NEW.key, 0) + account.row.requests.get(("g", NEW.key), 0)
        if each:
            left.append(int(account.row.room // Decimal(each)))
    return min(left)


def steps_begun(created: datetime, gone: datetime, window: tuple[datetime, datetime]) -> int:
    """Count, one by one, the hours of a machine that begin in a window."""
    count, step = 0, created
    while step < gone:
        count += window[0] <= step < window[1]
        step += timedelta(hours=1)
    return count


@given(
    minute=st.integers(0, 23 * 60 + 59),
    amount=st.integers(1, 40),
    hours=st.integers(0, 40),
    spent=st.integers(0, 12),
    busy=st.booleans(),
)
def test_rows_respect_limit_of_each_period(
    *, minute: int, amount: int, hours: int, spent: int, busy: bool
) -> None:
    """Machines are billed by the hour; the bill is counted hour by hour, as an invoice does."""
    now = NOW.replace(hour=0) + timedelta(minutes=minute)
    budget = {"per_hour": f"{amount} EUR", "per_day": f"{amount + 60} EUR"}
    pool = a_pool(
        provider="desk", machine={"type": "ccx33", "price": "1 EUR/h"}, budget=budget, max=99
    )
    fleet = a_fleet_of({"increment": "1h"}, "UTC", pools={"builders": pool})
    work = Work(started_at=now, expected_seconds=hours * 3600)
    worker: Worker = a_worker(busy=busy, work=work if busy else None, since=now)
    spending = Charge(pool="builders", seconds=(0, 0, 0), money=(spent, spent, spent))
    created = now - timedelta(minutes=25)
    world = a_sim_world(
        worker,
        time=now,
        ledger=Ledger(charged_until=now, charges=(spending,)),
        providers={
            "desk": a_listing(
                a_machine(id=f"sim-{worker.name}", created_at=created), workers=(worker,)
            )
        },
    )
    group = RequestGroup(id="g", rank=(0,), requests=(), fits={NEW.key: Fit(longest=hours * 3600)})
    accounts = open_accounts(
        begin_pool_plans(fleet, world, take_inventory(fleet, world)).books, [group], [NEW]
    )
    made = most_that_fits(accounts)

    for period in periods(fleet, now)[:2]:
        allowed = amount if period.name == "hour" else amount + 60
        for window, before in (
            ((now, period.end), spent),
            ((period.end, period.next_end), 0),
        ):
            held = steps_begun(created, released(created, now, hours if busy else 0), window)
            new = steps_begun(now, released(now, now + timedelta(seconds=90), hours), window)
            assert before + held + made * new <= max(allowed, before + held)


def released(created: datetime, begins: datetime, hours: int) -> datetime:
    """Return when a machine is gone: drained and deleted in two runs, within its paid hour."""
    idle_over = begins + timedelta(hours=hours, minutes=15)
    run = begins
    while run < idle_over:
        run += CADENCE
    seconds = int((run + CADENCE - created).total_seconds())
    return created + timedelta(hours=-(-seconds // 3600))


# what a plan says its machines cost

LENGTHS = st.sampled_from([None, 1, 600, 1799, 3600, 20_000, 86_400])
PRICES = {"ccx13": Decimal("0.0200"), "ccx33": Decimal("0.0777")}
STEP_SECONDS = {"1s": 1, "1m": 60, "1h": 3600}


@given(
    STEPS,
    st.none() | st.sampled_from(["10m", "2h", "1d"]),
    st.none() | st.integers(0, 5),
    st.lists(LENGTHS, min_size=1, max_size=8),
    st.sampled_from(["ccx13", "ccx33"]),
)
def test_shown_cost_is_billed_cost_of_created_machines(
    step: str, wait: str | None, most: int | None, lengths: list[int | None], kind: str
) -> None:
    throttle = {} if most is None else {"throttle": {"create": {"count": most}}}
    fleet = a_sim_fleet(
        providers={"desk": {"kind": "sim", "billing": {"increment": step}}},
        pools={"builders": a_pool(provider="desk", machine=kind, max=20, target_wait=wait)},
        guards=throttle,
        cadence="10m",
    )
    requests = [a_request(id=f"{n}", expected_seconds=each) for n, each in enumerate(lengths)]
    world = a_sim_world(requests=tuple(requests))

    plan = guard(fleet, reconcile(fleet, world))

    demand = world.queues["debian"].demand
    assert isinstance(demand, Demand)
    known = {f"debian/{each.id}": each.expected_seconds for each in demand.requests}
    made = [action for action in plan.actions if isinstance(action, Create)]
    total, assumed = Decimal(0), 0
    for create in made:
        assumed += sum(known[key] is None for key in create.serves)
        work = sum(USUAL if known[key] is None else known[key] or 0 for key in create.serves)
        tail = 90 + 15 * 60 + 2 * 600  # boot.expected, retire.idle_after, two runs
        increment = STEP_SECONDS[step]
        billed = -(-(tail + work) // increment) * increment
        assert create.until_idle is not None
        assert abs(create.until_idle - PRICES[kind] * billed / 3600) < Decimal("0.000000002")
        total += create.until_idle
    if not made:
        assert plan.optimum is None
        return
    assert plan.optimum is not None
    assert plan.optimum.cost == total.quantize(Decimal("0.0001"))
    assert (plan.optimum.machines, plan.optimum.assumed) == (len(made), assumed)
    if plan.optimum.is_optimal:
        assert plan.optimum.bound - Decimal("0.0002") <= plan.optimum.cost
        assert not plan.withheld
