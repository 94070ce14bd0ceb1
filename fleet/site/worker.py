"""Pages of workers: the list of all workers, with deleted ones, and a page per worker."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from fleet.explain.history import DAYS
from fleet.explain.waiting import RunningBuild
from fleet.model.facts import Unknown
from fleet.model.log import LogEntry
from fleet.model.values import amount_of
from fleet.report.document import (
    Block,
    Fold,
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
from fleet.report.status import BROKEN, PoolStatus, WorkerStatus, state_cell, worker_table
from fleet.site.pages import MOST_LISTED, WORKERS, Page, Shown, alarm, in_sheets, more
from fleet.site.pool import pool_figures, price
from fleet.words import figures as words
from fleet.words.runs import add_code


def workers(shown: Shown) -> Iterator[Page]:
    """Yield the list of workers, on several pages if needed, and a page for each worker."""
    listed, title = shown.status.workers, "Workers"
    for sheet in in_sheets(listed, MOST_LISTED, WORKERS, title, lambda worker: worker.pool):
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
    table = worker_table(status, broken[:MOST_LISTED], shown.addresses)
    return [
        line(", ".join(f"{count:,} {state}" for state, count in counts) or none),
        *([alarm(unread), *map(alarm, shown.unknown)] if status.unlisted else []),
        Section(
            f"Not working: {words.many(len(broken), 'worker')}",
            [table, more(broken, MOST_LISTED, ", in the list below")] if broken else [],
            "broken",
        ),
    ]


def _list_others(shown: Shown) -> list[Block]:
    """Return the inactive workers, then the deleted workers of the last days, the latest first."""
    exists = (each for each in shown.plan.workers if each.inactive and each.verdict != "create")
    inactive = sorted(exists, key=lambda each: (each.pool, each.worker))
    about = "The machine of each is gone or its token disabled. They cost nothing and get no work."
    gone = [] if isinstance(shown.log, Unknown) else [*_find_deleted(shown.log)][::-1]
    unread = shown.log.unknown if isinstance(shown.log, Unknown) else ""
    none = f"No worker was deleted in the last {DAYS} days."
    left = (
        TableOf(inactive[:MOST_LISTED])
        .name("Worker", lambda each: each.worker)
        .text("Pool", lambda each: link(each.pool, shown.addresses.of_pool(each.pool)), fold=1)
        .text("Since", lambda each: words.since(each.since, shown.status.time), fold=1)
        .text("Registered at", lambda each: each.registry or "-", fold=1)
        .prose("Why", lambda each: add_code(each.because, each.reason))
    )
    deleted = (
        TableOf(gone[:MOST_LISTED])
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
            words.many(len(inactive), "inactive worker"),
            [line(about), left, more(inactive, MOST_LISTED)] if inactive else [],
        ),
        Fold(
            f"{words.many(len(gone), 'worker')} deleted in the last {DAYS} days",
            [deleted, more(gone, MOST_LISTED)] if gone else [],
        ),
        alarm(f"Deleted workers: unknown. {unread}") if unread else line("" if gone else none),
    ]


def _find_deleted(log: Iterable[LogEntry]) -> Iterator[tuple[LogEntry, datetime | None]]:
    """Yield each deletion of a machine, with the time of its creation if known."""
    created = {}
    for each in log:
        if each.outcome == "done" and each.kind == "create":
            created[each.machine] = each.at
        elif each.outcome == "done" and each.kind == "delete" and each.machine:
            yield each, created.pop(each.machine, None)


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
    place = (worker.provider or words.UNKNOWN, worker.location)
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
            ("Location", ", ".join(filter(None, place))),
            ("Created", created),
            ("Price", price(amount_of(worker.cost), f"{currency}/h")),
            ("Cost so far", price(worker.cost_so_far, currency)),
            ("Registered at", worker.registry or (words.UNKNOWN if is_unheard else missing)),
        ),
        Section(
            f"Pool {worker.pool}",
            [line(pool.because), *pool_figures(shown, pool)] if pool else about_pool,
            "pool",
        ),
    ]
