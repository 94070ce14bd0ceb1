"""Render the status site: an overview, and a page for each pool and worker.

Two names never share a part, no part leads upwards, and none is as long as a file name may be.

It works from a file, a web server or any path below one. Text passes templates that escape it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from fleet.model.plan import Plan, WorkerVerdict
from fleet.report import words
from fleet.report.json import value_to_json
from fleet.report.status import PoolStatus, Status, shown_budgets, status_of
from fleet.report.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment

    from fleet.explain.values import WorkerFacts


_LONGEST = 120
_TAKEN = frozenset({".", "..", "index.html"})
_WORKERS = "-/status/workers"
_POOLS = "-/status/pools"
_QUEUE = "-/status/queue"
_MOST_LISTED = 500


def site(plan: Plan, facts: Mapping[str, WorkerFacts] = MappingProxyType({})) -> dict[str, str]:
    """Return every file of the status site as relative path and text."""
    status = status_of(plan, facts)
    environment = _environment()
    pages = _pages(status)
    shared = {
        "plan": plan,
        "status": status,
        "tiles": tiles(status, plan),
        "budgets": shown_budgets(plan.budgets),
        "most": _MOST_LISTED,
    }

    def page(path: str, template: str, **values: object) -> str:
        place = _Place(path, pages)
        return environment.get_template(template).render(here=place, **shared, **values)

    files = {
        "index.html": page("index.html", "index.html"),
        f"{_WORKERS}/index.html": page(f"{_WORKERS}/index.html", "workers.html"),
        f"{_QUEUE}/index.html": page(f"{_QUEUE}/index.html", "queue.html"),
        "status.json": value_to_json(status),
        "style.css": environment.get_template("style.css").render(),
    }
    pools = {pool.pool: pool for pool in status.pools}
    for worker in status.workers:
        path = pages.workers[_key(worker)]
        files[path] = page(path, "worker.html", worker=worker, pool=pools.get(worker.pool))
    for pool in status.pools:
        path = pages.pools[pool.pool]
        files[path] = page(
            path,
            "pool.html",
            pool=pool,
            workers=[worker for worker in status.workers if worker.pool == pool.pool],
            changes=[action for action in plan.actions if action.pool == pool.pool],
            fitting=[entry for entry in status.waiting if pool.pool in entry.pools],
        )
    return dict(sorted(files.items()))


@dataclass(frozen=True)
class _Pages:
    """Where each worker and pool has its page."""

    workers: Mapping[tuple[str, str], str]
    pools: Mapping[str, str]


class _Place:
    """One page's view of the others: links that hold wherever the site is put."""

    def __init__(self, path: str, pages: _Pages) -> None:
        self._path = path
        self._pages = pages
        self.up = "../" * path.count("/")

    def to(self, path: str) -> str:
        """Return the link to a page of the site."""
        return self.up + link(path)

    def to_worker(self, worker: WorkerVerdict) -> str:
        """Return the link to a worker's own page."""
        return self.to(self._pages.workers[_key(worker)])

    def to_pool(self, name: str) -> str | None:
        """Return the link to a pool's page; None where the pool has none."""
        path = self._pages.pools.get(name)
        return self.to(path) if path else None

    def is_at(self, path: str) -> bool:
        """Return whether this page has this path."""
        return self._path == path


def _pages(status: Status) -> _Pages:
    workers = path_parts([_key(worker) for worker in status.workers])
    pools = path_parts([(pool.pool, "") for pool in status.pools])
    return _Pages(
        workers={key: f"{_WORKERS}/{part}/index.html" for key, part in workers.items()},
        pools={name: f"{_POOLS}/{part}/index.html" for (name, _), part in pools.items()},
    )


def _key(worker: WorkerVerdict) -> tuple[str, str]:
    return worker.worker, f"{worker.pool} {worker.registry or ''}"


class Tile(NamedTuple):
    """A figure and what it counts; `wordy` ones are set smaller."""

    figure: str
    text: str
    wordy: bool = False


def tiles(status: Status, plan: Plan) -> tuple[Tile, ...]:
    """Return the tiles; what could not be read is never counted as zero."""
    withheld = words.withheld(plan)
    changes = f"in this plan{f'; guards withhold {withheld}' if withheld else ''}"
    return (
        _workers(status),
        _waiting(status),
        _money(status),
        Tile(words.changes(plan), changes, wordy=True),
    )


def _workers(status: Status) -> Tile:
    count = len(status.workers)
    noun = "worker" if count == 1 else "workers"
    states = Counter(words.state(worker) for worker in status.workers)
    kinds = ["busy", "idle", "starting", *([words.UNKNOWN] if states[words.UNKNOWN] else [])]
    counted = ", ".join(f"{states[kind]:,} {kind}" for kind in kinds)
    if not status.unlisted:
        return Tile(f"{count:,}", f"{noun}: {counted}")
    where = words.named("pool", status.unlisted)
    if not count:
        return Tile(words.UNKNOWN, f"workers: {where} could not be read", wordy=True)
    return Tile(f"at least {count:,}", f"{noun}: {counted}; {where} could not be read", wordy=True)


def _waiting(status: Status) -> Tile:
    total = sum(entry.count for entry in status.waiting)
    served = sum(entry.served for entry in status.waiting)
    noun = "request waits" if total == 1 else "requests wait"
    parts = [f"{served:,} {words.HAVE_A_MACHINE}", f"{total - served:,} do not"]
    text = f"{noun}: {', '.join(parts)}" if total else noun
    where = list(_not_whole(status))
    if not where:
        return Tile(f"{total:,}", text)
    if not total:
        return Tile(words.UNKNOWN, f"waiting requests: {'; '.join(where)}", wordy=True)
    return Tile(f"at least {total:,}", f"{text}; {'; '.join(where)}", wordy=True)


def _not_whole(status: Status) -> Iterator[str]:
    """Yield the queues that were not read, or only partly."""
    if status.unread:
        yield f"{words.named('queue', status.unread)} could not be read"
    sampled = [estimate.queue for estimate in status.estimates]
    if sampled:
        yield f"{words.named('queue', sampled)} only partly read"


def _money(status: Status) -> Tile:
    text = f"{status.currency} an hour now"
    now, after = status.cost_per_hour, status.cost_per_hour_after
    if now is None or after is None:
        least = status.cost_per_hour_at_least
        figure = f"at least {least:.2f}" if least else words.UNKNOWN
        return Tile(figure, text, wordy=True)
    return Tile(f"{now:.2f}", f"{text}, {after:.2f} after this plan" if now != after else text)


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fleet.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_visible,
    )
    environment.globals.update(
        before_after=words.before_after,
        rates=words.rates,
        rate=words.rate,
        many=words.many,
        place=words.place,
        since=words.since,
        time=words.time,
        bar=_bar,
        look=_look,
        cost_of=words.cost_of,
        size_of=words.size_of,
        costs_of=lambda workers: [words.cost_of(worker) for worker in workers],
        named=words.named,
        state_of=words.state,
    )
    return environment


def _visible(value: object) -> object:
    """Escape invisible characters; markup made by templates passes."""
    return clean(value) if type(value) is str else value


def _look(state: str) -> str:
    """Return the class that a state is shown with; what is seldom and harmless has none."""
    if state in ("disconnected", "failed", "never-registered", "unrecorded", "missing", "unknown"):
        return "wrong"
    return state if state in ("busy", "idle", "starting", "draining") else "plain"


def _bar(pool: PoolStatus) -> tuple[tuple[str, float, float], ...]:
    """Return the parts of a pool's bar: kind, where it begins and how wide, of 100."""
    if pool.busy is None:
        counts = [("other", pool.machines or 0)]
    else:
        counts = [
            ("busy", pool.busy),
            ("idle", pool.idle or 0),
            ("starting", pool.starting or 0),
            ("other", pool.other or 0),
        ]
    whole = max(pool.max, sum(count for _, count in counts), 1)
    parts = []
    begin = 0.0
    for kind, count in counts:
        width = round(100 * count / whole, 2)
        if count:
            parts.append((kind, round(begin, 2), width))
        begin += width
    return tuple(parts)


def path_parts(names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a part for each (name, qualifier); the qualifier shows only where a name repeats."""
    repeats = Counter(name for name, _ in set(names))
    return {
        (name, qualifier): path_part(name)
        if repeats[name] == 1
        else f"{path_part(name)}~~{path_part(qualifier)}"
        for name, qualifier in names
    }


def path_part(name: str) -> str:
    """Return a name as one part of a path, odd characters percent-encoded."""
    # quote() leaves ~ alone; encoded, it is free to mark what was shortened
    part = quote(name, safe="").replace("~", "%7E")
    if not part:
        return "~"
    if part.lower() in _TAKEN:
        return f"%{ord(part[0]):02X}{part[1:]}"
    if len(part) > _LONGEST:
        return f"{part[:_LONGEST]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return part


def link(path: str) -> str:
    """Return a path of the site as a relative link."""
    return quote(path, safe="/~")
