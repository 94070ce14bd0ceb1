"""Laws of payers: each machine is paid whole by who caused it, and no plan passes a limit."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from fleet.model.facts import Demand, Ledger, LedgerEntry, Machine, QueueReading, World
from fleet.model.plan import BudgetVerdict, Delete, Plan
from fleet.model.prices import Life, Tariff
from fleet.planner.inventory import PoolInventory
from fleet.planner.ledger import charge_all
from fleet.schema.model import Fleet, Pool
from fleet.simulate.replay import Replay, SimulationInputs, decide
from tests.builders import a_pool, a_sim_fleet
from tests.builders.recording import a_job

START = datetime(2026, 11, 2, 6, tzinfo=UTC)
HOURS = 10
PRICE = Decimal(6)
TEAMS = "xy"
SECONDS = {"1s": 1, "1m": 60, "1h": 3600}
BILLINGS = st.fixed_dictionaries(
    {"increment": st.sampled_from([*SECONDS])}, optional={"minimum": st.just("10m")}
)
JOBS = st.lists(
    st.tuples(
        st.integers(0, 6 * 3600),
        st.sampled_from([60, 600, 1800, 7200]),
        st.sampled_from(TEAMS),
    ),
    min_size=1,
    max_size=8,
)
POOLS = st.fixed_dictionaries(
    {"min": st.integers(0, 1), "target_wait": st.sampled_from([None, "30m", "2h"])}
)
FILTERS = st.sampled_from(["team", "owner", "tags"])


@dataclass
class Story:
    """What one fleet did, and what it was charged for."""

    entries: list[LedgerEntry] = field(default_factory=list)
    budgets: list[BudgetVerdict] = field(default_factory=list)
    """Those in which a plan took something."""
    machines: dict[tuple[str, datetime], Machine] = field(default_factory=dict)
    gone: dict[tuple[str, datetime], datetime] = field(default_factory=dict)
    until: datetime = START

    def watch(self, fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory]) -> Plan:
        """Decide as fleet does, and note it."""
        self.until = world.time
        self.entries += charge_all(fleet, world, inventory).entries
        self.machines |= {
            (m.name, m.created_at): m for _, m in world.machines() if m.created_at is not None
        }
        plan = decide(fleet, world, inventory)
        self.budgets += [each for each in plan.budgets if each.planned]
        deleted = {each.worker for each in plan.actions if isinstance(each, Delete)}
        for key in self.machines.keys() - self.gone.keys():
            if key[0] in deleted:
                self.gone[key] = world.time
        return plan

    def bills(self, billing: Mapping[str, str]) -> dict[str, Decimal]:
        """Return what each pool was billed for its machines."""
        minimum = 600 if "minimum" in billing else 0
        tariff = Tariff(PRICE, SECONDS[billing["increment"]], minimum)
        found: defaultdict[str, Decimal] = defaultdict(Decimal)
        for key, machine in self.machines.items():
            life = Life(tariff, key[1], START.replace(day=1))
            found[machine.pool] += life.billed(key[1], self.gone.get(key, self.until))
        return dict(found)

    def paid(self, by: str) -> dict[str | None, Decimal]:
        """Return what each payer was charged, pools or teams."""
        found: defaultdict[str | None, Decimal] = defaultdict(Decimal)
        for entry in self.entries:
            found[getattr(entry, by)] += entry.money
        return dict(found)


def own_pools(pool: Mapping[str, object]) -> dict[str, object]:
    """Return a pool for each team."""
    return {f"p{team}": _a_pool(pool, team) for team in TEAMS}


def one_pool(pool: Mapping[str, object]) -> dict[str, object]:
    """Return a pool that all teams share."""
    return {"all": _a_pool(pool, *TEAMS)}


def _a_pool(pool: Mapping[str, object], *provides: str) -> Pool:
    return a_pool(
        **{"provider": "desk", "machine": "mighty", "max": 6, **pool}, provides=[*provides]
    )


def story_of(
    jobs: list[tuple[int, int, str]],
    billing: dict[str, str],
    budgets: Mapping[str, object],
    pools: Mapping[str, object],
    queue: str = "world",
) -> Story:
    """Return what a fleet did with these jobs."""
    sold = {"cores": 8, "memory": "32GiB", "disk": "80GiB", "price": f"{PRICE} EUR/h"}
    fleet = a_sim_fleet(
        fleet="trial",
        providers={"desk": {"kind": "sim", "billing": billing, "types": {"mighty": sold}}},
        queues={"work": {"kind": queue} | ({"path": "world.json"} if queue == "world" else {})},
        images={"trixie": {"existing": {"desk": "trixie"}}},
        pools=pools,
        tags={team: {"exclusive": len(pools) > 1} for team in TEAMS},
        budgets=budgets,
        cadence="10m",
    )
    empty = QueueReading(demand=Demand(read_at=START), workers=None)
    first = World(
        fleet="trial",
        time=START,
        queues={"work": empty},
        ledger=Ledger(charged_until=START),
    )
    story = Story()
    replay = Replay(SimulationInputs(fleet, skips=False), first, lambda _, __: None, story.watch)
    for number, (at, seconds, team) in enumerate(sorted(jobs)):
        said = {"team": team, "owner": f"o{team}", "required": [team]}
        when = START + timedelta(seconds=at)
        replay.feed(a_job(number, when, seconds, expected_seconds=seconds, **said))
    replay.finish(START + timedelta(hours=HOURS))
    return story


def limit_of(kind: str, team: str, amount: int) -> dict[str, object]:
    value = {"team": team, "owner": f"o{team}", "tags": [team]}[kind]
    return {kind: value, "per_day": f"{amount} EUR"}


@given(JOBS, BILLINGS, st.sampled_from(["1m", "15m", "2h"]))
def test_each_team_pays_the_whole_bill_of_its_machines(
    jobs: list[tuple[int, int, str]], billing: dict[str, str], idle: str
) -> None:
    budgets = {"x": limit_of("team", "x", 500)}

    story = story_of(jobs, billing, budgets, own_pools({"retire": {"idle_after": idle}}))

    paid = story.paid("team")
    assert None not in paid
    assert {f"p{team}": money for team, money in paid.items()} == story.bills(billing)


@given(JOBS, BILLINGS, POOLS, st.integers(6, 40))
def test_teams_that_share_machines_pay_their_bill_together(
    jobs: list[tuple[int, int, str]],
    billing: dict[str, str],
    pool: dict[str, object],
    amount: int,
) -> None:
    budgets = {team: limit_of("team", team, amount) for team in TEAMS}

    story = story_of(jobs, billing, budgets, one_pool(pool))

    assert sum(story.paid("team").values()) == sum(story.bills(billing).values())
    for each in story.budgets:
        assert each.used is not None
        assert each.used <= each.limit + Decimal("0.0001")


@given(JOBS, st.sampled_from(["1s", "1m"]), FILTERS, POOLS, st.integers(1, 30))
@example(
    [(1, 600, "x"), (1, 600, "x"), (601, 1800, "x"), (601, 7200, "x")],
    "1s",
    "team",
    {"min": 1, "target_wait": None},
    20,
)
@example(
    [(0, 600, "x"), (1, 7200, "x"), (1200, 600, "x")],
    "1m",
    "owner",
    {"min": 1, "spare": 1, "target_wait": None},
    19,
)
def test_no_payer_of_tickets_is_billed_more_than_its_limit(
    jobs: list[tuple[int, int, str]],
    increment: str,
    kind: str,
    pool: dict[str, object],
    amount: int,
) -> None:
    """Work takes as long as is expected, and fleet itself assigns it."""
    assert_limits_hold(jobs, {"increment": increment}, kind, pool, amount)


@given(JOBS, BILLINGS, FILTERS, st.sampled_from([None, "30m", "2h"]), st.integers(1, 30))
@example([(0, 60, "x")] * 3, {"increment": "1h"}, "team", None, 6)
def test_no_payer_of_tickets_exceeds_its_limit_by_a_paid_hour(
    jobs: list[tuple[int, int, str]],
    billing: dict[str, str],
    kind: str,
    target_wait: str | None,
    amount: int,
) -> None:
    """The last run that can delete a machine gives it no work that the limit cannot pay."""
    assert_limits_hold(jobs, billing, kind, {"target_wait": target_wait}, amount)


def assert_limits_hold(
    jobs: list[tuple[int, int, str]],
    billing: dict[str, str],
    kind: str,
    pool: dict[str, object],
    amount: int,
) -> None:
    """Check that each team with a pool of its own is billed no more than its limit."""
    budgets = {team: limit_of(kind, team, amount) for team in TEAMS}

    story = story_of(jobs, billing, budgets, own_pools(pool), "tickets")

    paid = story.paid("team")
    assert all(money <= amount for team, money in paid.items() if team)
