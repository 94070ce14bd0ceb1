"""Pages of pools and workers: their machines, limits, history, failures and requests."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from fleet.explain.history import DAYS
from fleet.explain.request import RunningBuild
from fleet.model.facts import Unknown
from fleet.model.log import LogEntry
from fleet.model.values import amount_of
from fleet.report.document import (
    MAX_ROWS,
    Block,
    Fold,
    Items,
    Line,
    Section,
    Style,
    StyledText,
    TableOf,
    Title,
    bold,
    facts,
    line,
    link,
)
from fleet.report.plan import changes_section
from fleet.report.status import (
    BROKEN,
    PoolStatus,
    WorkerStatus,
    pool_table,
    state_cell,
    worker_table,
)
from fleet.schema.findings import listed, yaml_key
from fleet.site.history import history_section, unread_line
from fleet.site.money import project_budgets
from fleet.site.pages import IMAGES, WORKERS, Page, Shown, alarm, in_sheets
from fleet.site.versions import ImageStory
from fleet.site.waiting import group_table
from fleet.words import figures as words
from fleet.words.runs import add_code

_UNREAD = "Workers: unknown, could not be read."


def pools(shown: Shown) -> Iterator[Page]:
    """Yield a page for each pool."""
    workers = _group_by_pool(shown.status.workers, lambda worker: (worker.pool,))
    waiting = _group_by_pool(shown.waits.groups, lambda group: group.signature.pools)
    fitting = _group_by_pool(shown.status.waiting, lambda entry: entry.pools)
    history, plan = shown.history, shown.plan
    images = () if isinstance(shown.images, Unknown) else shown.images
    for pool in shown.status.pools:
        name = pool.pool
        own, groups = workers.get(name, []), waiting.get(name, [])
        held = [*_binding(shown, name, {entry.signature for entry in fitting.get(name, ())})]
        budgets = [each for each in shown.plan.budgets if each.path[:2] == ("pools", name)]
        trend = history if isinstance(history, Unknown) else history.pools[name]
        # The changes of a pool are drawn as in the text of a plan.
        of_pool = {
            kind: tuple(each for each in getattr(plan, kind) if each.pool == name)
            for kind in ("actions", "releases", "resumes")
        }
        changes = plan.altered(**of_pool, bases=(), promotions=())
        none = alarm(_UNREAD) if pool.machines is None else line("No workers.")
        blocks: list[Block] = [
            Title(line(name)),
            *pool_figures(shown, pool),
            Section(
                "Limits of its growth",
                [Items(held) if held else line("No request that fits waits without a machine.")],
                "binding",
            ),
            project_budgets(shown, budgets),
            history_section(trend, shown.plan.currency, pool.max),
            *(_image(shown, each) for each in images if each.image == pool.image),
            Section("Failures", _failures(shown, name), "failures"),
            Section(
                "Workers",
                [worker_table(shown.status, own, shown.addresses) if own else none],
                "workers",
            ),
            Section("Changes in this plan", changes_section(changes).blocks, "changes"),
            Section("Waiting requests that fit", [group_table(shown, groups)], "waiting"),
        ]
        yield Page(shown.addresses.pools[name], blocks)


_T = TypeVar("_T")


def _group_by_pool(
    things: Iterable[_T], pools_of: Callable[[_T], Iterable[str]]
) -> dict[str, list[_T]]:
    found: dict[str, list[_T]] = {}
    for thing in things:
        for pool in pools_of(thing):
            found.setdefault(pool, []).append(thing)
    return found


def pool_figures(shown: Shown, pool: PoolStatus) -> list[Block]:
    """Return the machines and the cost of a pool, and the tags that it provides."""
    currency = shown.status.currency
    return [
        pool_table([pool], currency, shown.addresses, heading="Pool"),
        facts(
            ("Provider", pool.provider or "-"),
            ("Machine type", pool.type or "-"),
            ("Image", pool.image or "-"),
            ("Price of one", price(pool.price, f"{currency}/h")),
            ("Provides", listed([f"`{tag}`" for tag in pool.provides]) or "-"),
        ),
    ]


def price(amount: Decimal | None, unit: str) -> str:
    """Return an amount with its unit."""
    return words.UNKNOWN if amount is None else f"{words.rate(amount)} {unit}"


def _binding(shown: Shown, pool: str, fitting: Collection[str]) -> Iterator[Line]:
    """Yield each limit on the growth of a pool: waiting requests, reason, key of fleet.yaml.

    Constraints on requests come first, then guards. `fitting` has the signatures of the requests
    that the pool can serve.
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
        waiting = f"{words.many(count, 'request')}: "
        yield (*bold(waiting), *line(f"{because} ", StyledText(where, Style.CODE)))
    for guard in shown.plan.guards:
        if guard.pool == pool and guard.result != "passed":
            where = yaml_key(guard.path) if guard.path else ""
            yield line(f"{guard.because} ", StyledText(where, Style.CODE))


def _image(shown: Shown, image: ImageStory) -> Section:
    """Return the version of an image that new machines boot."""
    version = image.current
    if version is None:
        is_baked = image.declared == "existing"
        known = "Baked elsewhere; its age is unknown."
        known = known if is_baked else "No tested version of this image yet."
    else:
        pinned = ", pinned" if version.is_pinned else ""
        built = version.record
        age = f", built {words.since(built.built_at, shown.status.time)} ago" if built else ""
        known = f"New machines boot {version.fact.version}: {version.fact.state}{pinned}{age}."
    everything = line(StyledText("All images", target=IMAGES))
    return Section(f"Image {image.image}", [line(known), everything], "image")


_FAILED = frozenset({"failed", "gone", "out-of-stock", "quota", "name-taken", "error"})
_MOST_FAILURES = 20


def _failures(shown: Shown, pool: str) -> list[Block]:
    """Return the numbers of the latest creations and of failed ones, and a table of these."""
    tries = [each for each in shown.attempts if each.pool == pool]
    failed = [each for each in tries if each.result in _FAILED]
    latest = sorted(failed, key=lambda each: each.at, reverse=True)[:_MOST_FAILURES]
    table = (
        TableOf(latest)
        .text("When", lambda each: words.time(each.at))
        .text("Result", lambda each: each.result)
        .text("Worker", lambda each: each.worker)
        .text(
            "Type",
            lambda each: each.type + f" ({each.market})" * (each.market != "on-demand"),
        )
        .prose("Detail", lambda each: each.detail or "-")
    )
    said = f"of the latest {words.many(len(tries), 'attempt')} to make a machine failed."
    count = f"{len(failed):,}" if failed else "None"
    return [
        table,
        line(f"{count} {said}" if tries else "No attempt to make a machine is remembered."),
    ]


def workers(shown: Shown) -> Iterator[Page]:
    """Yield the list of workers, on several pages if needed, and a page for each worker."""
    listed, title = shown.status.workers, "Workers"
    for sheet in in_sheets(listed, MAX_ROWS, WORKERS, title, lambda worker: worker.pool):
        table = worker_table(shown.status, sheet.entries, shown.addresses)
        heading = "Workers by pool" if sheet.links else "All workers"
        everything = Section(heading, [sheet.links, table] if listed else [], "all")
        blocks: list[Block] = [Title(line(sheet.title)), everything]
        if sheet.title == title:
            blocks[1:] = [*_describe_all(shown), everything, *_list_others(shown)]
        yield Page(sheet.path, blocks)
    pools = {pool.pool: pool for pool in shown.status.pools}
    builds = {build.worker: build for build in shown.waits.running}
    for worker in listed:
        pool, build = pools.get(worker.pool), builds.get(worker.worker)
        yield Page(shown.addresses.path_of(worker), _worker(shown, worker, pool, build))


def _describe_all(shown: Shown) -> list[Block]:
    """Return the numbers of workers by state, and the workers that do not work."""
    status = shown.status
    counts = Counter(map(words.state, status.workers)).most_common()
    none = "" if status.unlisted else "No workers. On-demand pools create some for requests."
    unread = f"Workers of {words.named('pool', status.unlisted)}: unknown, could not be read."
    broken = [worker for worker in status.workers if worker.state in BROKEN]
    table = worker_table(status, broken, shown.addresses)
    return [
        line(", ".join(f"{count:,} {state}" for state, count in counts) or none),
        *([alarm(unread), *map(alarm, shown.unknown)] if status.unlisted else []),
        Section(f"Not working: {words.many(len(broken), 'worker')}", [table], "broken"),
    ]


def _list_others(shown: Shown) -> list[Block]:
    """Return the inactive workers, then the deleted workers of the last days, the latest first."""
    exists = (each for each in shown.plan.workers if each.inactive and each.verdict != "create")
    inactive = sorted(exists, key=lambda each: (each.pool, each.worker))
    about = "The machine of each is gone or its token disabled. They cost nothing and get no work."
    created: dict[str, datetime] = {}
    gone: list[tuple[LogEntry, datetime | None]] = []
    for each in () if isinstance(shown.log, Unknown) else shown.log:
        if (each.kind, each.outcome) == ("create", "done"):
            created[each.machine] = each.at
        elif (each.kind, each.outcome) == ("delete", "done") and each.machine:
            gone.append((each, created.pop(each.machine, None)))
    gone.reverse()
    none = line("" if gone else f"No worker was deleted in the last {DAYS} days.")
    unread = isinstance(shown.log, Unknown) and unread_line("Deleted workers", shown.log)
    left = (
        TableOf(inactive)
        .name("Worker", lambda each: each.worker)
        .text("Pool", lambda each: link(each.pool, shown.addresses.of_pool(each.pool)), fold=1)
        .text("Since", lambda each: words.since(each.since, shown.status.time), fold=1)
        .text("Registered at", lambda each: each.registry or "-", fold=1)
        .prose("Why", lambda each: add_code(each.because, each.reason))
    )
    deleted = (
        TableOf(gone)
        .text("Deleted", lambda each: words.time(each[0].at))
        .text("Worker", lambda each: each[0].machine)
        .text("Pool", lambda each: each[0].pool)
        .text("Created", lambda each: words.time(each[1]) if each[1] else words.UNKNOWN)
        .text(
            "Existed for",
            lambda each: words.duration(each[0].at - each[1]) if each[1] else words.UNKNOWN,
        )
        .prose("Why", lambda each: add_code(each[0].because, each[0].reason))
    )
    return [
        Fold(
            words.many(len(inactive), "inactive worker"), [line(about), left] if inactive else []
        ),
        Fold(f"{words.many(len(gone), 'worker')} deleted in the last {DAYS} days", [deleted]),
        unread or none,
    ]


def _worker(
    shown: Shown, worker: WorkerStatus, pool: PoolStatus | None, build: RunningBuild | None
) -> list[Block]:
    now, currency = shown.status.time, shown.status.currency
    is_unheard = worker.state == "assumed"
    since = "" if is_unheard else f" for {words.since(worker.since, now)}"
    created, started = (
        f"{words.time(each)}, {words.since(each, now)} ago" if each else words.UNKNOWN
        for each in (worker.created_at, worker.work_since)
    )
    task = f" ({worker.task})" if worker.task else ""
    outdated = " (outdated: created from an older configuration)" if worker.outdated else ""
    missing = "no queue or provider yet; it registers when it has booted"
    work = (
        ("Package", f"{worker.package or words.UNKNOWN}{task}"),
        ("Work began", started),
        *([("User", build.user)] if build and build.user else []),
        ("Expected end", words.time(build.end) if build and build.end else words.UNKNOWN),
        ("Work has cost", price(worker.work_cost, currency)),
    )
    reason = StyledText(worker.reason.value, Style.CODE)
    place = words.join(", ", worker.provider or words.UNKNOWN, worker.location or "")
    about_pool: list[Block] = [line("This pool is no longer in the configuration.")]
    return [
        Title(line(worker.worker)),
        facts(
            ("State", line(*state_cell(worker), since)),
            ("Pool", link(worker.pool, shown.addresses.of_pool(worker.pool))),
            ("Runs", worker.running or (words.UNKNOWN if is_unheard else "nothing")),
            *(work if worker.running else ()),
            ("Next", line(*bold(worker.verdict), f": {worker.because} ", reason)),
            ("Image", f"{worker.image or '-'}{outdated}"),
            ("Machine type", worker.type or "-"),
            ("Size", words.size_of(worker) or words.UNKNOWN),
            ("Location", place),
            ("Created", created),
            ("Price", price(amount_of(worker.cost), f"{currency}/h")),
            ("Cost so far", price(worker.cost_so_far, currency)),
            ("Registered at", worker.registry or (words.UNKNOWN if is_unheard else missing)),
        ),
        Section("Pool", pool_figures(shown, pool) if pool else about_pool, "pool"),
    ]
