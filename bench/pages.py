"""Measure the status pages of a large fleet: 5,000 workers in 100 pools, 20,000 requests wait.

`past_s`: what runs saw in a week, one sample in ten minutes, folded for each pool and the fleet.
`money_s`: a month's charges of 3,000 payers, grouped and projected. `facts_s`: what is known of
each worker. `waits_s`: why all that waits does so, with an answer about each request, as
`fleet status --site` asks them. `site_s`: every page of it.
`largest_*_mb`: the largest page, and the largest of those that tell of the past.
"""

import gc
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from time import perf_counter

from bench.report import Report
from bench.worlds import SCOPES, Size, scene_of, world_of
from fleet.__main__ import COLLECTION
from fleet.explain.case import Case
from fleet.explain.history import history_of
from fleet.explain.objects import facts_of_workers
from fleet.explain.request import waits_of
from fleet.guard import guard
from fleet.model.facts import Charge, Ledger
from fleet.model.history import MomentFigures, RunSample
from fleet.model.plan import Plan
from fleet.reconcile import reconcile
from fleet.site.charges import RecentCharges, money_of
from fleet.site.files import Shown, site

SIZE = Size(20_000, 2_000, 100, 5_000)
PAYERS = 3_000
STEP = timedelta(minutes=10)
WEEK = timedelta(days=7)
OF_THE_PAST = ("index.html", "-/status/pools/", "-/status/money/", "-/status/images/")


def measure() -> Report:
    """Return seconds and megabytes; the pages are to take ten seconds, and 1 MB each."""
    gc.set_threshold(*COLLECTION)
    scene = scene_of(SIZE)
    charges = tuple(_charges(list(scene.fleet.pools)))
    ledger = Ledger(charged_until=scene.time, charges=charges)
    world = world_of(scene).model_copy(update={"ledger": ledger})
    plan = guard(scene.fleet, reconcile(scene.fleet, world))
    samples = tuple(_samples(plan))
    began = perf_counter()
    history = history_of(scene.fleet, plan, samples)
    folded = perf_counter()
    money = money_of(scene.fleet, world, RecentCharges(plan.time - WEEK, plan.time, charges))
    added = perf_counter()
    facts = facts_of_workers(scene.fleet, world)
    known = perf_counter()
    waits = waits_of(Case(scene.fleet, world, plan))
    explained = perf_counter()
    files = site(Shown(plan, facts, history=history, money=money, waits=waits))
    ended = perf_counter()
    pages = {
        path: len(text.encode()) / 1e6 for path, text in files.items() if path[-5:] == ".html"
    }
    return Report(
        name="pages",
        figures={
            "past_s": folded - began,
            "money_s": added - folded,
            "facts_s": known - added,
            "waits_s": explained - known,
            "site_s": ended - explained,
            "all_s": ended - began,
            "pages": len(pages),
            "largest_page_mb": max(pages.values()),
            "largest_of_the_past_mb": max(
                size for path, size in pages.items() if path.startswith(OF_THE_PAST)
            ),
        },
        ratios={},
        targets={
            "largest_page_mb": 1,
            "largest_of_the_past_mb": 1,
        },
    )


def _charges(pools: list[str]) -> Iterator[Charge]:
    for nth in range(PAYERS):
        money = Decimal(1 + nth % 97) / 7
        yield Charge(
            pool=pools[nth % len(pools)],
            scope=SCOPES[nth % len(SCOPES)],
            team=f"team{nth % 500}",
            owner=f"owner{nth}",
            seconds=(60, 3600, 36000),
            money=(money / 100, money / 10, money),
        )


def _samples(plan: Plan) -> Iterator[RunSample]:
    """Yield a week of samples in which figures change with each, as they hardly ever do."""
    for nth in range(WEEK // STEP, -1, -1):
        pools = {
            pool.pool: MomentFigures(
                nth % (1 + pool.max), (nth + number) % 7, nth % 3, 0, nth % 40, 10**8 * (nth % 50)
            )
            for number, pool in enumerate(plan.pools)
        }
        yield RunSample(at=plan.time - nth * STEP, fleet=next(iter(pools.values())), pools=pools)
