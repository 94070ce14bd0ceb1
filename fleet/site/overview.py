"""The overview page: figures at the top, then pools, budgets and waiting requests."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from fleet.model.facts import Unknown
from fleet.model.plan import Plan
from fleet.report.document import Column, ColumnKind, Section, Table, row
from fleet.report.status import Status, budgets_section
from fleet.site.history import past_of
from fleet.site.pages import OVERVIEW, Page, Shown
from fleet.site.queue import late_requests
from fleet.site.rendering import BROKEN
from fleet.words import figures as words

_SOON = timedelta(hours=1)


def overview(shown: Shown) -> Iterator[Page]:
    """Yield the start page of the site."""
    history = shown.history
    yield Page(
        OVERVIEW,
        "index.html",
        {
            "past": None
            if isinstance(history, Unknown)
            else past_of(history.fleet, shown.plan.currency),
            "tiles": tiles(shown.status, shown.plan),
            "tables": [_bases(shown.status), budgets_section(shown.plan.budgets)],
            "unserved": [each for each in shown.status.waiting if each.served < each.count],
            "groups": [each for each in shown.waits.groups if not each.is_served],
            "served": [
                each.altered(count=each.served, because=())
                for each in shown.status.waiting
                if each.served
            ],
            "broken": sum(each.state in BROKEN for each in shown.status.workers),
            "late": _describe_late(shown),
        },
    )


def _describe_late(shown: Shown) -> str:
    """Count the requests that wait too long, by their prospect; empty without such requests."""
    late = [request for request, _ in late_requests(shown)]
    soon = shown.plan.time + _SOON
    never = sum(each.never for each in late)
    starts = [at for each in late if not each.never and (at := each.start or each.assumed)]
    prompt = sum(start <= soon for start in starts)
    unknown = len(late) - len(starts) - never
    return words.late(prompt, len(starts) - prompt, unknown, never) if late else ""


def _bases(status: Status) -> Section:
    """Return the section with the pending changes of resources that machines share."""
    rows = [
        row(base.provider, "; ".join(filter(None, (", ".join(base.steps), base.outdating))))
        for base in status.bases
    ]
    columns = (Column("Provider", ColumnKind.NAME), Column("Change", ColumnKind.PROSE))
    return Section("Shared resources", [Table(columns, rows)], "shared")


class Tile(NamedTuple):
    """A figure and its label; figures with `wordy` are displayed smaller."""

    figure: str
    text: str
    wordy: bool = False


def tiles(status: Status, plan: Plan) -> tuple[Tile, ...]:
    """Return the tiles; an unreadable figure is shown as unknown, never as zero."""
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
    kinds = ["busy", "idle", "starting"]
    kinds += sorted(states.keys() - {*kinds})
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
    is_known = served or not status.unlisted
    others = f"{total - served:,} {'waits' if total - served == 1 else 'wait'} for one"
    text = f"{noun}: {words.have_a_machine(served)}, {others}" if total and is_known else noun
    where = list(_incomplete_queues(status))
    if not where:
        return Tile(f"{total:,}", text)
    if not total:
        return Tile(words.UNKNOWN, f"waiting requests: {'; '.join(where)}", wordy=True)
    return Tile(f"at least {total:,}", f"{text}; {'; '.join(where)}", wordy=True)


def _incomplete_queues(status: Status) -> Iterator[str]:
    """Yield the queues that could not be read, then those that were only partly read."""
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
