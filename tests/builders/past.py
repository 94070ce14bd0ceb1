"""Build what lies behind a fleet: eight days of samples, charges, versions, failed tries."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal

from fleet.explain.costs import PowerfulBuild
from fleet.explain.history import history_of
from fleet.model.facts import Charge, Ledger, PlaceFacts, World
from fleet.model.history import MomentFigures, RunSample
from fleet.model.images import DueCause, DueImage, DueReason, DueReport, Publication, Version
from fleet.model.plan import Blocked, BudgetVerdict, Plan
from fleet.planner.inventory import attempts_of
from fleet.schema.model import Fleet
from fleet.site.charges import RecentCharges, money_of
from fleet.site.files import Shown
from fleet.site.versions import image_stories
from tests.builders import NOW, a_fleet, a_pool, a_world, ago, an_attempt
from tests.builders.telling import a_lively_plan
from tests.builders.versioning import a_version

UNREAD = MomentFigures(None, None, None, None, None, None)


def a_past_fleet() -> Fleet:
    """Return the fleet of `a_lively_plan`, with budgets and a second image."""
    return a_fleet(
        images={
            "trixie": {"suite": "trixie", "architecture": "amd64", "publish": ["hetzner"]},
            "sid": {"suite": "sid", "architecture": "amd64"},
        },
        pools={
            "builders": a_pool(max=20, budget={"per_month": "200 EUR"}),
            "powerful": a_pool(machine="ccx63", max=2),
            "arm": a_pool(machine="cax41", max=8),
            "legacy": {"static": ["builder-01"]},
        },
        budgets={
            "all": {"per_month": "500 EUR"},
            "security": {"team": "security", "per_month": "40 EUR"},
        },
    )


def charges(share: Decimal = Decimal(1)) -> tuple[Charge, ...]:
    """Return a month's charges, each payer's of the hour, the day and the month."""
    payers: list[tuple[str, str, str, dict[str, object]]] = [
        ("builders", "41.1234567", "3.42", {"scope": "debian", "team": "java"}),
        ("builders", "28.0049999", "0.21", {"scope": "debian", "team": "security"}),
        ("builders", "12.3", "0.5", {"scope": "debian"}),
        ("builders", "9.8765", "1.1", {}),
        ("powerful", "93.04", "13.95", {"scope": "debian", "team": "browsers"}),
        ("powerful", "4.5", "0.3", {}),
        ("arm", "17.25", "0", {"scope": "ports", "team": "arm"}),
        ("arm", "0.004", "0", {}),
    ]
    return tuple(
        Charge.model_validate(
            {"pool": pool, "seconds": (0, 3600, 36000 * nth), **payer}
            | {"money": (Decimal(0), Decimal(today) * share, Decimal(month))}
        )
        for nth, (pool, month, today, payer) in enumerate(payers, 1)
    )


def a_past_plan() -> Plan:
    """Return `a_lively_plan` with budgets, and a limit that keeps a build back."""
    plan = a_lively_plan()
    month = {"period": "month", "unit": "EUR", "reserved": "4.8", "planned": "0.4"}
    budgets = [
        {"budget": "builders", "path": ("pools", "builders", "budget", "per_month")}
        | {"limit": "200", "spent": "91.30"},
        {"budget": "all", "path": ("budgets", "all", "per_month")}
        | {"limit": "500", "spent": "206.10"},
        {"budget": "security", "path": ("budgets", "security", "per_month")}
        | {"limit": "40", "spent": "28.00"},
    ]
    held = Blocked(
        pool="powerful",
        because="tag worker:class:powerful is at limits.total (1); debian/10217 holds it",
        path=("tags", "worker:class:powerful", "limits", "total"),
    )
    first, *rest = plan.unserved
    return plan.altered(
        budgets=tuple(BudgetVerdict.model_validate(month | each).with_rest() for each in budgets),
        unserved=(first.altered(blocked=(held,)), *rest),
    )


def a_past_world() -> World:
    """Return the world behind it: a ledger, versions of images, tries to make machines."""
    return a_world(
        ledger=Ledger(charged_until=ago(minutes=10), charges=charges()),
        images=tuple(version.fact for version in versions()),
        attempts=(
            an_attempt(at=ago(days=2), result="out-of-stock", detail="ccx33 is out in fsn1"),
            an_attempt(at=ago(hours=30), result="failed"),
            an_attempt(at=ago(hours=3)),
            an_attempt(worker="debian-ci-builders-0005"),
        ),
    )


def versions() -> tuple[Version, ...]:
    """Return versions of `trixie` in most states, the oldest first."""
    states: list[tuple[int, dict[str, object]]] = [
        (9, {"state": "retired"}),
        (5, {"state": "previous"}),
        (2, {"state": "current"}),
        (1, {"state": "failed", "why": "task install debusine-worker: no such package"}),
        (0, {"state": "candidate", "share": 20}),
    ]
    return tuple(
        a_version(
            version=f"{ago(days=days):%Y%m%dT060000Z}",
            built_at=ago(days=days, hours=2),
            since=ago(days=days),
            publications={
                "hetzner": Publication(
                    id=f"trixie-{4 - nth}", at=ago(days=days), verified=more["state"] != "failed"
                )
            },
            **more,
        )
        for nth, (days, more) in enumerate(states, 1)
    )


def samples(plan: Plan, *, days: float = 8, minutes: int = 10) -> tuple[RunSample, ...]:
    """Return what runs saw every few minutes; in one night nothing, and for a day there was none.

    The pools of a plan are busy by day and idle by night, each in its own way.
    """
    return tuple(_samples(plan, days, minutes))


def _samples(plan: Plan, days: float, minutes: int) -> Iterator[RunSample]:
    count = int(days * 24 * 60 / minutes)
    for nth in range(count, -1, -1):
        age = timedelta(minutes=minutes * nth)
        hour = (NOW - age).hour
        if timedelta(days=3) < age < timedelta(days=3, hours=20):
            continue
        unread = timedelta(days=1) < age < timedelta(days=1, hours=4)
        pools = {
            pool.pool: UNREAD if unread else _figures(number, hour, nth, pool.max)
            for number, pool in enumerate(plan.pools)
        }
        yield RunSample(at=NOW - age, fleet=UNREAD if unread else _total(pools), pools=pools)


def _figures(pool: int, hour: int, nth: int, most: int) -> MomentFigures:
    wave = max(0, 8 - abs(hour - 13 - pool)) + (nth // 7 + pool) % 3
    busy = min(most, wave * most // 10)
    starting = min(most - busy, (nth // 5) % 4 == 0)
    idle = min(most - busy - starting, 1 + (nth // 11) % 2)
    waiting = max(0, (wave - 6) * 4 + nth % 5) if busy else 0
    nanos = (busy + starting + idle) * 120_000_000 * (1 + 4 * (most == 2))
    return MomentFigures(busy, idle, starting, 0, waiting, nanos)


def _total(pools: Mapping[str, MomentFigures]) -> MomentFigures:
    return MomentFigures(
        *(sum(filter(None, column)) for column in zip(*pools.values(), strict=True))
    )


def a_shown_past() -> Shown:
    """Return a site with something to say on every page."""
    fleet, world, plan = a_past_fleet(), a_past_world(), a_past_plan()
    week = RecentCharges(
        since=ago(days=7, hours=1), until=ago(minutes=10), charges=charges(Decimal(4))
    )
    due = DueReport(
        fleet="debian-ci",
        time=NOW,
        images=(
            DueImage(
                image="sid",
                steps=("build", "test"),
                causes=(
                    DueCause(
                        reason=DueReason.NEVER_BUILT, because="no version of it was ever built"
                    ),
                ),
            ),
            DueImage(image="trixie", serving=versions()[2].version),
        ),
    )
    return Shown(
        plan,
        history=history_of(fleet, plan, samples(plan)),
        money=money_of(fleet, world, week),
        images=image_stories(fleet, world, plan, versions(), due),
        attempts=attempts_of(fleet, world),
        powerful=tuple(_powerful(plan)),
    )


def _powerful(plan: Plan) -> Iterator[PowerfulBuild]:
    """Yield a build of Chromium that runs for six of its 24 hours, and one of unknown length."""
    for worker in plan.workers:
        if worker.running and worker.pool == "powerful":
            place = PlaceFacts(
                pool="builders",
                type="ccx33",
                market="on-demand",
                start=NOW,
                seconds=154_611,
                cost=Decimal("9.56"),
            )
            day = (ago(hours=6), ago(hours=-18), Decimal("8.21"), Decimal("32.85"))
            yield PowerfulBuild(worker, "chromium", *day, place)
            yield PowerfulBuild(worker, None, None, None, None, None, None)
