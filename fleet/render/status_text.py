"""This module renders what exists for people: pools, then workers, with work and money."""

from collections.abc import Iterator

from fleet.plan import Plan, WorkerVerdict
from fleet.render import words
from fleet.render.budgets_shown import budgets_section
from fleet.render.status import Status, status_of
from fleet.render.terminal import BLANK, Line, Span, Style, line, lines_to_text, table

_STATE_STYLES = {
    "busy": Style.GREEN,
    "starting": Style.CYAN,
    "draining": Style.YELLOW,
    "disconnected": Style.RED,
    "failed": Style.RED,
    "never-registered": Style.RED,
    "unrecorded": Style.RED,
    "missing": Style.RED,
}


def status_to_text(plan: Plan, *, colour: bool) -> str:
    """Return pools and workers as two tables; inactive workers are only counted."""
    status = status_of(plan)
    lines = [
        line(Span(f"Fleet {status.fleet}", Style.BOLD), f" at {words.time(status.time)}"),
        line(_money(status)),
        *_unknown(status),
        BLANK,
        *_pools(status),
        BLANK,
        *_budgets(plan),
        *_workers(status),
    ]
    return lines_to_text(lines, colour=colour)


def _money(status: Status) -> str:
    return f"{_cost(status)}; {_demand(status)}"


def _cost(status: Status) -> str:
    least = status.cost_per_hour_at_least
    if status.cost_per_hour is not None:
        return f"{words.rate(status.cost_per_hour)} {status.currency}/h"
    return f"at least {words.rate(least)} {status.currency}/h" if least else "cost not known"


def _demand(status: Status) -> str:
    waiting = sum(entry.count for entry in status.waiting)
    served = sum(entry.served for entry in status.waiting)
    return words.demand(waiting, served, unsure=status.unread or status.estimates)


def _pools(status: Status) -> Iterator[Line]:
    if not status.pools:
        yield line("No pools.")
        return
    money = words.rates([pool.cost_before for pool in status.pools])
    rows = [
        _headings(
            "POOL", "BUSY", "IDLE", "STARTING", "OTHER", "MAX", f"{status.currency}/h", "MODE"
        )
    ]
    for pool, rate in zip(status.pools, money, strict=True):
        counts = (pool.busy, pool.idle, pool.starting, pool.other)
        rows.append(
            [
                Span(pool.pool),
                *map(_count, counts),
                Span(str(pool.max)),
                Span(rate),
                Span(pool.mode, Style.PLAIN if pool.mode == "apply" else Style.YELLOW),
            ]
        )
    yield from table(rows, right=range(1, 7))


def _budgets(plan: Plan) -> Iterator[Line]:
    lines = list(budgets_section(plan.budgets))
    if lines:
        yield from lines
        yield BLANK


def _count(count: int | None) -> Span:
    style = Style.YELLOW if count is None else Style.PLAIN if count else Style.DIM
    return Span(words.figure(count), style)


def _workers(status: Status) -> Iterator[Line]:
    if status.workers:
        yield from worker_table(status)
    elif not status.unlisted:
        unread = "No workers are known of; what could not be read may have some."
        yield line(unread if status.unknown else "No workers.")
    if status.unlisted:
        which = words.named("pool", status.unlisted)
        yield line(Span(f"The workers of {which} are not known.", Style.YELLOW))
    if status.hidden:
        yield line(
            Span(
                f"{words.many(status.hidden, 'inactive worker')} not shown "
                "(machine gone or token disabled)",
                Style.DIM,
            )
        )


def worker_table(status: Status) -> Iterator[Line]:
    """Yield the workers of a status as a table."""
    money = words.rates([words.cost_of(worker) for worker in status.workers])
    rows = [
        _headings(
            "WORKER", "POOL", "STATE", "RUNS", "SINCE", "IMAGE", "TYPE", f"{status.currency}/h"
        )
    ]
    rows.extend(
        [
            Span(worker.worker),
            Span(worker.pool),
            Span(_state(worker), _STATE_STYLES.get(worker.state, Style.PLAIN)),
            Span(worker.running or (words.NOT_KNOWN if worker.state == "assumed" else "-")),
            Span(words.since(worker.since, status.time)),
            Span(worker.image or "-"),
            Span(worker.type or "-"),
            Span(rate),
        ]
        for worker, rate in zip(status.workers, money, strict=True)
    )
    yield from table(rows, right=(4, 7))


def _state(worker: WorkerVerdict) -> str:
    state = words.state(worker)
    return f"{state}, outdated" if worker.outdated else state


def _headings(*names: str) -> list[Span]:
    return [Span(name, Style.BOLD) for name in names]


def _unknown(status: Status) -> Iterator[Line]:
    for reading in status.unknown:
        yield line(Span("not known: ", Style.YELLOW), reading)
    for sentence in status.attention:
        yield line(Span("needs a person: ", Style.YELLOW), sentence)
    if status.cadence:
        yield line(Span("late: ", Style.YELLOW), status.cadence)
    for moving in status.promotions:
        yield line(
            Span(f"image {moving.image}: ", Style.YELLOW),
            f"the next fleet apply does: {moving.verb} {moving.version}",
        )
    for each in status.waiting_versions:
        yield line(Span(f"image {each.image}: ", Style.YELLOW), f"{each.said}; {each.command}")
    for guard in status.guards:
        if guard.result == "refused":
            yield line(Span("refused: ", Style.RED), guard.because)
    for approval in status.approvals:
        used = words.used(approval)
        what = f"{approval.guard}, pool {approval.pool}, {used}, until {approval.expires}"
        inert = f" ({approval.inert})" if approval.inert else ""
        yield line(Span("approval: ", Style.DIM), what, inert)
