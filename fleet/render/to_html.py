"""This module renders the static status site: path to text, links relative, no scripts.

It works from a file, a web server or any path below one. Names become path parts through
`fleet.render.paths`, and text only through templates that escape it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from fleet.plan import Plan, WorkerVerdict
from fleet.render import words
from fleet.render.budgets_shown import shown
from fleet.render.paths import link, path_parts
from fleet.render.status import PoolStatus, Status, status_of
from fleet.render.terminal import clean
from fleet.render.tiles import tiles
from fleet.render.to_json import value_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment

    from fleet.explain.worker_facts import WorkerFacts

_WORKERS = "-/status/workers"
_POOLS = "-/status/pools"
_QUEUE = "-/status/queue"
_MOST_LISTED = 500


@dataclass(frozen=True)
class _Pages:
    """Where each worker and pool has its page."""

    workers: Mapping[tuple[str, str], str]
    pools: Mapping[str, str]


def site(plan: Plan, facts: Mapping[str, WorkerFacts] = MappingProxyType({})) -> dict[str, str]:
    """Return every file of the status site as relative path and text."""
    status = status_of(plan, facts)
    environment = _environment()
    pages = _pages(status)
    shared = {
        "plan": plan,
        "status": status,
        "tiles": tiles(status, plan),
        "budgets": shown(plan.budgets),
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
        """Say whether this page is the one named."""
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


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fleet.render", "templates"),
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
    """Write invisible characters out; markup made by templates passes, as does their layout."""
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
