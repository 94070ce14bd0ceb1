"""Pages of workers (also deleted ones), pools and images."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

from fleet.explain.history import DAYS
from fleet.model.facts import Unknown
from fleet.model.log import LogEntry
from fleet.report.document import Column, ColumnKind, Row, Table, row
from fleet.schema.findings import yaml_key
from fleet.site.history import past_of
from fleet.site.money import budget_row
from fleet.site.pages import GONE, IMAGES, INACTIVE, MOST_LISTED, WORKERS, Page, Shown, in_sheets
from fleet.site.rendering import BROKEN
from fleet.words import figures as words
from fleet.words.runs import add_code


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
    listed, history = shown.images, shown.history
    images = {} if isinstance(listed, Unknown) else {each.image: each for each in listed}
    for pool in status.pools:
        fitting = waiting.get(pool.pool, [])
        past, unread = None, ""
        if isinstance(history, Unknown):
            unread = history.unknown
        else:
            past = past_of(history.pools[pool.pool], shown.plan.currency, pool.max)
        values = {
            "pool": pool,
            "workers": workers.get(pool.pool, []),
            "changes": changes.get(pool.pool, []),
            "fitting": fitting,
            "past": past,
            "no_past": unread,
            "binding": [*_binding(shown, pool.pool, {entry.signature for entry in fitting})],
            "budgets": [
                budget_row(each, None if isinstance(shown.money, Unknown) else shown.money)
                for each in shown.plan.budgets
                if each.path[:2] == ("pools", pool.pool) and not each.coming
            ],
            "image": images.get(pool.image or ""),
            **_count_failures(shown, pool.pool),
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


def _binding(shown: Shown, pool: str, fitting: Collection[str]) -> Iterator[tuple[str, str, int]]:
    """Yield each limit on the growth of a pool: reason, key of fleet.yaml, waiting requests.

    Constraints on requests come first, then guards, with 0 requests. `fitting` has the signatures
    of the requests that the pool can serve.
    """
    held: dict[tuple[str, str], int] = {}
    for unserved in shown.plan.unserved:
        own = [(each.because, each.path) for each in unserved.blocked if each.pool == pool]
        if not own and unserved.signature in fitting:
            own = [(unserved.because, unserved.path)]
        for because, path in own:
            key = (because, yaml_key(path) if path != ("pools", pool) else "")
            held[key] = held.get(key, 0) + unserved.count
    for (because, where), count in sorted(held.items(), key=lambda each: -each[1]):
        yield because, where, count
    for guard in shown.plan.guards:
        if guard.pool == pool and guard.result != "passed":
            yield guard.because, yaml_key(guard.path) if guard.path else "", 0


_FAILED = frozenset({"failed", "gone", "out-of-stock", "quota", "name-taken", "error"})
_MOST_FAILURES = 20


def _count_failures(shown: Shown, pool: str) -> dict[str, object]:
    """Return the numbers of the latest creations and of failed ones, and a table of these."""
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
    return {"tries": len(tries), "failed": len(failed), "failures": Table(columns, rows)}


def images(shown: Shown) -> Iterator[Page]:
    """Yield the page of images."""
    found = shown.images
    is_unknown = isinstance(found, Unknown)
    yield Page(
        IMAGES,
        "images.html",
        {
            "images": () if is_unknown else found,
            "because": found.unknown if isinstance(found, Unknown) else "",
        },
    )


def gone(shown: Shown) -> Iterator[Page]:
    """Yield the page of deleted workers, the latest deletion first."""
    log = () if isinstance(shown.log, Unknown) else shown.log
    rows = [*_rows(log)][::-1]
    labels = ("Deleted", "Worker", "Pool", "Created", "Existed for")
    table = Table([*map(Column, labels), Column("Why", ColumnKind.PROSE)], rows[:MOST_LISTED])
    values = {
        "table": table if rows else None,
        "others": len(rows[MOST_LISTED:]),
        "days": DAYS,
        "unknown": shown.log.unknown if isinstance(shown.log, Unknown) else "",
    }
    yield Page(f"{GONE}/index.html", "gone.html", values)


def _rows(log: Iterable[LogEntry]) -> Iterator[Row]:
    created = {}
    for each in log:
        if each.outcome != "done":
            continue
        if each.kind == "create":
            created[each.machine] = each.at
        elif each.kind == "delete" and each.machine:
            begun = created.pop(each.machine, None)
            yield row(
                words.time(each.at),
                each.machine,
                each.pool,
                words.time(begun) if begun else words.UNKNOWN,
                words.duration(each.at - begun) if begun else words.UNKNOWN,
                add_code(each.because, each.reason),
            )
