"""Open accounts: machines cost 1 EUR/h, and it is 08:00 on a Saturday."""

from collections.abc import Sequence
from decimal import Decimal

from fleet.model.facts import Charge, Ledger, Work, Worker, World
from fleet.model.plan import BudgetVerdict
from fleet.planner.begin import begin_pool_plans
from fleet.planner.budgets import BudgetAccount, open_accounts
from fleet.planner.demand import Fit, Ordered, Payer, Place, RequestGroup
from fleet.planner.inventory import take_inventory
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_sim_fleet, a_sim_world, a_worker

NEW = Place(key="builders/ccx33/on-demand", pool="builders", makes=True, type="ccx33")
FREE = Place(key="builders", pool="builders", makes=False, room=1)
MACHINE = {"type": "ccx33", "price": "1 EUR/h"}
HOUR = 3600
TAIL = Decimal(90 + 15 * 60 + 2 * 600) / HOUR
"""Boot, idle_after and two runs: what a machine costs beside its work, in hours."""


def a_budgeted_fleet(pool_budget: dict[str, str] | None = None, **overrides: object) -> Fleet:
    """Return a fleet whose pool has this budget; `pool` and `budgets` may be given."""
    pool = overrides.pop("pool", {})
    assert isinstance(pool, dict)
    budget = {"budget": pool_budget} if pool_budget else {}
    pools = {"builders": a_pool(provider="desk", machine=MACHINE, **budget, **pool)}
    return a_sim_fleet(**({"pools": pools} | overrides))


def a_group(
    seconds: int | None = HOUR, *, scope: str = "debian", share: float = 1, count: int = 0
) -> RequestGroup:
    """Return requests of a scope that run for so long, on a new or a free machine."""
    fit = Fit(seconds=seconds, longest=seconds, share=share)
    fits = {NEW.key: fit, FREE.key: fit}
    return RequestGroup(
        id="g",
        rank=(0,),
        requests=tuple(Ordered((0, 0, "q", n, "g", n), f"g{n}", seconds) for n in range(count)),
        fits=fits,
        payer=Payer(scope=scope),
        tags=frozenset({"big"}),
    )


def a_ledger(*charges: Charge) -> Ledger:
    return Ledger(charged_until=NOW, charges=charges)


def a_charge(money: str, hours: int = 0, **overrides: object) -> Charge:
    """Return what was charged in this hour, day and month alike."""
    seconds = (hours * HOUR,) * 3
    defaults = {"pool": "builders", "seconds": seconds, "money": (money,) * 3}
    return Charge.model_validate(defaults | overrides)


def a_spent_world(*workers: Worker, charges: Sequence[Charge] = (), **overrides: object) -> World:
    defaults: dict[str, object] = {"ledger": a_ledger(*charges)}
    return a_sim_world(*workers, **(defaults | overrides))  # type: ignore[arg-type]  # builders take any field


def accounts(fleet: Fleet, world: World, *groups: RequestGroup) -> list[BudgetAccount]:
    pool_plans = begin_pool_plans(fleet, world, take_inventory(fleet, world))
    return list(open_accounts(pool_plans.books, groups or (a_group(),), (NEW, FREE)))


def a_busy(seconds: int | None = HOUR, **work: object) -> Worker:
    """Return a worker whose work has just begun and is expected to run for so long."""
    defaults = {"scope": "debian", "started_at": NOW, "expected_seconds": seconds}
    return a_worker(busy=True, work=Work.model_validate(defaults | work))


def these(*values: object) -> tuple[object, ...]:
    """Return these figures, to be compared with whole numbers too."""
    return values


def rounded(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.0001"))


def a_budget_verdict(**overrides: object) -> BudgetVerdict:
    """Return the verdict on the budget of `builders` for today: 4 of 10 EUR are left."""
    defaults = {
        "budget": "builders",
        "path": ("pools", "builders", "budget", "per_day"),
        "period": "day",
        "unit": "EUR",
        "limit": Decimal(10),
        "spent": Decimal("3.5"),
        "reserved": Decimal("1.5"),
        "planned": Decimal(1),
    }
    return BudgetVerdict.model_validate(defaults | overrides).with_rest()
