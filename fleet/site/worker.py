"""Pages of workers: the list of all workers, with deleted ones, and a page per worker."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fleet.explain.history import DAYS
from fleet.explain.waiting import RunningBuild
from fleet.model.facts import Unknown
from fleet.model.log import LogEntry
from fleet.model.plan import WorkerVerdict
from fleet.model.values import amount_of
from fleet.report.document import (
    Block,
    Column,
    ColumnKind,
    Fold,
    Row,
    Section,
    Style,
    StyledText,
    Table,
    Title,
    bold,
    facts,
    line,
    row,
)
from fleet.report.status import BROKEN, PoolStatus, WorkerStatus, linked, state_cell, worker_table
from fleet.site.pages import (
    MOST_LISTED,
    WORKERS,
    Page,
    Shown,
    alarm,
    in_sheets,
    more,
    sheet_links,
)
from fleet.site.pool import pool_facts, price
from fleet.words import figures as words
from fleet.words.runs import add_code


def workers(shown: Shown) -> Iterator[Page]:
    """Yield the list of workers, on several pages if needed, and a page for each worker."""
    listed = shown.status.workers
    sheets, parts = in_sheets(listed, MOST_LISTED, WORKERS, lambda worker: worker.pool)
    heading = "Workers by pool" if sheets[1:] else "All workers"
    for number, (sheet, part) in enumerate(zip(sheets, parts, strict=True), 1):
        links, table = (
            sheet_links(sheets, number),
            worker_table(shown.status, part, shown.addresses),
        )
        everything = Section(heading, [links, table] if part else [], "all")
        if number == 1:
            blocks = [
                Title(line("Workers")),
                *_describe_all(shown),
                everything,
                *_list_others(shown),
            ]
        else:
            blocks = [Title(line(f"Workers, page {number} of {len(sheets)}")), everything]
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
    gone = [] if isinstance(shown.log, Unknown) else [*_list_deleted(shown.log)][::-1]
    labels = ("Deleted", "Worker", "Pool", "Created", "Existed for")
    columns = [*map(Column, labels), Column("Why", ColumnKind.PROSE)]
    unread = shown.log.unknown if isinstance(shown.log, Unknown) else ""
    none = f"No worker was deleted in the last {DAYS} days."
    return [
        Fold(
            words.many(len(inactive), "inactive worker"),
            [line(about), _inactive_table(shown, inactive), more(inactive, MOST_LISTED)]
            if inactive
            else [],
        ),
        Fold(
            f"{words.many(len(gone), 'worker')} deleted in the last {DAYS} days",
            [Table(columns, gone[:MOST_LISTED]), more(gone, MOST_LISTED)] if gone else [],
        ),
        alarm(f"Deleted workers: unknown. {unread}") if unread else line("" if gone else none),
    ]


def _inactive_table(shown: Shown, inactive: Sequence[WorkerVerdict]) -> Table:
    rows = [
        row(
            each.worker,
            linked(each.pool, shown.addresses.of_pool(each.pool)),
            words.since(each.since, shown.status.time),
            each.registry or "-",
            add_code(each.because, each.reason),
        )
        for each in inactive[:MOST_LISTED]
    ]
    columns = (
        Column("Worker", ColumnKind.NAME),
        *(Column(name, fold=1) for name in ("Pool", "Since", "Registered at")),
        Column("Why", ColumnKind.PROSE),
    )
    return Table(columns, rows)


def _list_deleted(log: Iterable[LogEntry]) -> Iterator[Row]:
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
    user = [("User", build.user)] if build and build.user else []
    outdated = " (outdated: created from an older configuration)" if worker.outdated else ""
    because = f": {worker.because} "
    missing = "no queue or provider yet; it registers when it has booted"
    work = (
        ("Package", f"{worker.package or words.UNKNOWN}{task}"),
        ("Work began", started),
        *user,
        ("Expected end", words.time(build.end) if build and build.end else words.UNKNOWN),
        ("Work has cost", price(worker.work_cost, currency)),
    )
    about_pool: list[Block] = [line("This pool is no longer in the configuration.")]
    return [
        Title(line(worker.worker)),
        facts(
            ("State", (*state_cell(worker), StyledText(since))),
            ("Pool", linked(worker.pool, shown.addresses.of_pool(worker.pool))),
            ("Runs", worker.running or (words.UNKNOWN if is_unheard else "nothing")),
            *(work if worker.running else ()),
            (
                "Next",
                (
                    *bold(worker.verdict),
                    *line(because, StyledText(worker.reason.value, Style.CODE)),
                ),
            ),
            ("Image", f"{worker.image or '-'}{outdated}"),
            ("Machine type", worker.type or "-"),
            ("Size", words.size_of(worker) or words.UNKNOWN),
            (
                "Location",
                ", ".join(filter(None, (worker.provider or words.UNKNOWN, worker.location))),
            ),
            ("Created", created),
            ("Price", price(amount_of(worker.cost), f"{currency}/h")),
            ("Cost so far", price(worker.cost_so_far, currency)),
            ("Registered at", worker.registry or (words.UNKNOWN if is_unheard else missing)),
        ),
        Section(
            f"Pool {worker.pool}",
            [line(pool.because), pool_facts(shown, pool)] if pool else about_pool,
            "pool",
        ),
    ]
