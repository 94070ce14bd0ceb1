"""The workers that were deleted in the last days, from the log of changes."""

from collections.abc import Iterable, Iterator

from fleet.explain.history import DAYS
from fleet.model.facts import Unknown
from fleet.model.log import LogEntry
from fleet.report.document import Column, ColumnKind, Row, Table, row
from fleet.site.links import GONE
from fleet.site.pages import MOST_LISTED, Page, Shown
from fleet.words import figures as words
from fleet.words.runs import add_code


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
