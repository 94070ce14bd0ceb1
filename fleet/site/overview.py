"""The overview page: figures at the top, then waiting requests, pools and budgets."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from fleet.model.facts import Unknown
from fleet.model.plan import Plan
from fleet.report.document import (
    Block,
    Items,
    Line,
    Section,
    StyledText,
    TableOf,
    Title,
    bold,
    dim,
    line,
)
from fleet.report.plan import image_lines, notice_sections, orders_of
from fleet.report.status import BROKEN, Status, budgets_section, find_shown_budgets, pool_table
from fleet.site.history import history_section
from fleet.site.pages import OVERVIEW, QUEUE, WORKERS, Page, Shown, quiet
from fleet.site.waiting import FIND, group_table, late_requests, unread_lines
from fleet.words import figures as words
from fleet.words.waiting import NO_CONTACT

_SOON = timedelta(hours=1)
_MAX_GROUPS = 10
_LEGEND = (
    "In use, from the left: busy, idle, starting, other (drained, broken or unknown), and free up "
    "to the maximum."
)


def overview(shown: Shown) -> Iterator[Page]:
    """Yield the start page of the site."""
    status, plan, history = shown.status, shown.plan, shown.history
    *alarms, notices, remarks = notice_sections(plan, words.notices(plan))
    page = ["Maintainers: `docs/how-to/runbook/needs-attention.md`"] if plan.attention else []
    guards = [
        line(
            *bold(
                f"Guard {each.guard}: {each.result}{f', pool {each.pool}' if each.pool else ''}. "
            ),
            f"{each.because}{each.way_out and f' Maintainers: {each.way_out}'}",
        )
        for each in plan.guards
        if each.result != "passed"
    ]
    bases = (
        TableOf(status.bases)
        .name("Provider", lambda base: base.provider)
        .prose("Change", lambda base: words.join("; ", *base.steps, base.outdating))
    )
    contact = [NO_CONTACT] if status.waiting and not status.contact else []
    trend = None if isinstance(history, Unknown) else history.fleet
    blocks: list[Block] = [
        Title(line("Build machines")),
        line("Your build: ", FIND),
        Items(
            [line(*bold(figure), text) for figure, text in _tiles(status, plan)], has_figures=True
        ),
        Section(
            "Needs attention",
            [
                Items([*orders_of(plan), *_troubles(shown)]),
                *alarms,
                Items([*page, *guards]),
            ],
            "attention",
        ),
        _waiting(shown, "Waiting without a machine", is_served=False),
        Section(
            "Pools",
            [pool_table(status.pools, plan.currency, shown.addresses), quiet(_LEGEND)]
            if status.pools
            else [line("No pools.")],
            "pools",
        ),
        Section("Shared resources", [bases], "shared"),
        budgets_section(find_shown_budgets(plan)),
        _waiting(
            shown,
            "Waiting for a machine that exists or that the next apply creates",
            is_served=True,
        ),
        notices,
        remarks,
        Section("Notices", [Items([*contact, *image_lines(plan)])], "notices"),
        history_section(trend, plan.currency),
    ]
    yield Page(OVERVIEW, blocks)


def _troubles(shown: Shown) -> Iterator[Line]:
    """Yield links to the workers and requests that need attention."""
    if broken := sum(each.state in BROKEN for each in shown.status.workers):
        there = StyledText(words.many(broken, "worker"), target=f"{WORKERS}/index.html")
        yield (*bold("Not working: "), there)
    if late := [request for request, _ in late_requests(shown)]:
        never = sum(each.never for each in late)
        starts = [at for each in late if not each.never and (at := each.start or each.assumed)]
        prompt = sum(start <= shown.plan.time + _SOON for start in starts)
        unknown = len(late) - len(starts) - never
        said = words.late(prompt, len(starts) - prompt, unknown, never)
        yield (*bold("Waiting too long: "), StyledText(said, target=f"{QUEUE}/index.html"))


def _waiting(shown: Shown, heading: str, *, is_served: bool) -> Section:
    """Return the requests with or without a machine, by cause."""
    groups = [each for each in shown.waits.groups if each.is_served is is_served]
    hidden = len(groups) - _MAX_GROUPS
    rest = f"{words.many(hidden, 'more kind')} of request. " if hidden > 0 else ""
    why = StyledText("Why, and until when", target=f"{QUEUE}/index.html")
    parts: list[Block] = [
        group_table(shown, groups[:_MAX_GROUPS], is_brief=True),
        line(dim(rest), why),
    ]
    unread = () if is_served else unread_lines(shown.status)
    id_ = "served" if is_served else "unserved"
    return Section(heading, [*(parts if groups else ()), *unread], id_)


def _tiles(status: Status, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the main figures; an unreadable figure is shown as unknown, never as zero."""
    states = Counter(words.state(worker) for worker in status.workers)
    kinds = ["busy", "idle", "starting"]
    kinds += sorted(states.keys() - {*kinds})
    counted = ", ".join(f"{states[kind]:,} {kind}" for kind in kinds)
    noun = "worker" if len(status.workers) == 1 else "workers"
    unread = f"{words.named('pool', status.unlisted)} could not be read" if status.unlisted else ""
    yield _tile(len(status.workers), f"{noun}: {counted}", "workers", unread)
    total = sum(entry.count for entry in status.waiting)
    served = sum(entry.served for entry in status.waiting)
    text = "request waits" if total == 1 else "requests wait"
    if total and (served or not status.unlisted):
        others = f"{total - served:,} {'waits' if total - served == 1 else 'wait'} for one"
        text += f": {words.have_a_machine(served)}, {others}"
    sampled = [estimate.queue for estimate in status.estimates]
    queues = words.join(
        "; ",
        f"{words.named('queue', status.unread)} could not be read" if status.unread else "",
        f"{words.named('queue', sampled)} only partly read" if sampled else "",
    )
    yield _tile(total, text, "waiting requests", queues)
    now, after, text = status.cost_per_hour, status.cost_per_hour_after, "an hour now"
    text = f"{status.currency} {text}"
    if now is None or after is None:
        least = status.cost_per_hour_at_least
        yield f"at least {least:.2f}" if least else words.UNKNOWN, text
    else:
        yield f"{now:.2f}", f"{text}, {after:.2f} after this plan" if now != after else text
    withheld = words.withheld(plan)
    yield words.changes(plan), f"in this plan{f'; guards withhold {withheld}' if withheld else ''}"


def _tile(count: int, text: str, noun: str, unread: str) -> tuple[str, str]:
    """Return a count and its meaning; `unread` are the sources that are missing in the count."""
    if not unread:
        return f"{count:,}", text
    return (
        (f"at least {count:,}", f"{text}; {unread}")
        if count
        else (
            words.UNKNOWN,
            f"{noun}: {unread}",
        )
    )
