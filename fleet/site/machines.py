"""The list of workers, and a page for each worker and each pool."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, TypeVar

from fleet.model.facts import Unknown
from fleet.report.document import Column, ColumnKind, Table, row
from fleet.report.status import PoolStatus
from fleet.schema.findings import yaml_key
from fleet.site.history import HistoryPlots, past_of
from fleet.site.links import INACTIVE, WORKERS
from fleet.site.money import budget_row
from fleet.site.pages import MOST_LISTED, Page, Shown, in_sheets
from fleet.site.rendering import BROKEN
from fleet.site.versions import ImageStory
from fleet.words import figures as words


def workers(shown: Shown) -> Iterator[Page]:
    """Yield the list of workers, on several pages if needed, and a page for each worker."""
    listed = shown.status.workers
    sheets, parts = in_sheets(listed, MOST_LISTED, WORKERS, lambda worker: worker.pool)
    shared = {
        "sheets": sheets,
        "counts": Counter(map(words.state, listed)).most_common(),
        "broken": [worker for worker in listed if worker.state in BROKEN],
    }
    for number, (sheet, part) in enumerate(zip(sheets, parts, strict=True), 1):
        yield Page(sheet.path, "workers.html", {**shared, "workers": part, "number": number})
    pools = {pool.pool: pool for pool in shown.status.pools}
    builds = {build.worker: build for build in shown.waits.running}
    for worker in listed:
        build = builds.get(worker.worker)
        values = {"worker": worker, "pool": pools.get(worker.pool), "build": build}
        yield Page(shown.addresses.of_worker(worker), "worker.html", values)
    exists = (each for each in shown.plan.workers if each.inactive and each.verdict != "create")
    inactive = sorted(exists, key=lambda each: (each.pool, each.worker))
    yield Page(f"{INACTIVE}/index.html", "inactive.html", {"inactive": inactive})


def pools(shown: Shown) -> Iterator[Page]:
    """Yield a page for each pool."""
    status = shown.status
    workers = _group_by_pool(status.workers, lambda worker: (worker.pool,))
    changes = _group_by_pool(shown.plan.actions, lambda action: (action.pool,))
    waiting = _group_by_pool(status.waiting, lambda entry: entry.pools)
    for pool in status.pools:
        fitting = waiting.get(pool.pool, [])
        values = {
            "pool": pool,
            "workers": workers.get(pool.pool, []),
            "changes": changes.get(pool.pool, []),
            "fitting": fitting,
            "past": _plot_history(shown, pool),
            "no_past": shown.history.unknown if isinstance(shown.history, Unknown) else "",
            "binding": tuple(_binding(shown, pool.pool, {entry.signature for entry in fitting})),
            "budgets": [
                budget_row(each, None if isinstance(shown.money, Unknown) else shown.money)
                for each in shown.plan.budgets
                if each.path[:2] == ("pools", pool.pool) and not each.coming
            ],
            "image": _image(shown, pool),
            "failures": _failures(shown, pool.pool),
        }
        yield Page(shown.addresses.pools[pool.pool], "pool.html", values)


_T = TypeVar("_T")


def _group_by_pool(
    things: Iterable[_T], pools_of: Callable[[_T], Iterable[str]]
) -> dict[str, list[_T]]:
    found: dict[str, list[_T]] = {}
    for thing in things:
        for pool in pools_of(thing):
            found.setdefault(pool, []).append(thing)
    return found


def _plot_history(shown: Shown, pool: PoolStatus) -> HistoryPlots | None:
    """Return the plots of a pool; None if its history is unknown."""
    if isinstance(shown.history, Unknown):
        return None
    return past_of(shown.history.pools[pool.pool], shown.plan.currency, pool.max)


class Binding(NamedTuple):
    """A constraint on the growth of a pool, and the key of fleet.yaml that sets it."""

    because: str
    path: str
    requests: int
    """Number of requests that wait because of the constraint; 0 for a guard."""


def _binding(shown: Shown, pool: str, fitting: Collection[str]) -> Iterator[Binding]:
    """Yield the constraints of a pool: first constraints on requests, then guards.

    `fitting` has the signatures of the requests that the pool can serve.
    """
    held: dict[tuple[str, str], int] = {}
    for unserved in shown.plan.unserved:
        own = [(each.because, each.path) for each in unserved.blocked if each.pool == pool]
        if not own and unserved.signature in fitting:
            own = [(unserved.because, unserved.path)]
        for because, path in own:
            key = (because, yaml_key(path) if path else "")
            held[key] = held.get(key, 0) + unserved.count
    for (because, where), count in sorted(held.items(), key=lambda each: -each[1]):
        yield Binding(because, where, count)
    for guard in shown.plan.guards:
        if guard.pool == pool and guard.result != "passed":
            yield Binding(guard.because, yaml_key(guard.path) if guard.path else "", 0)


def _image(shown: Shown, pool: PoolStatus) -> ImageStory | None:
    if isinstance(shown.images, Unknown):
        return None
    return next((each for each in shown.images if each.image == pool.image), None)


class Failures(NamedTuple):
    """The results of the latest attempts to create machines for a pool."""

    tries: int
    failed: int
    latest: Table
    """The failed attempts, the newest first."""


_FAILED = frozenset({"failed", "gone", "out-of-stock", "quota", "name-taken", "error"})
_MOST_FAILURES = 20


def _failures(shown: Shown, pool: str) -> Failures:
    tries = [each for each in shown.attempts if each.pool == pool]
    failed = [each for each in tries if each.result in _FAILED]
    newest = sorted(failed, key=lambda each: each.at, reverse=True)
    rows = [
        row(
            words.time(each.at),
            each.result,
            each.worker,
            each.type if each.market == "on-demand" else f"{each.type} ({each.market})",
            each.detail or "-",
        )
        for each in newest[:_MOST_FAILURES]
    ]
    columns = [
        *map(Column, ("When", "Result", "Worker", "Type")),
        Column("Detail", ColumnKind.PROSE),
    ]
    return Failures(len(tries), len(failed), Table(columns, rows))
