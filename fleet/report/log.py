"""Render the log of past runs: the user and the changes of each run."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from fleet.model.log import LogEntry
from fleet.report.document import Line, Style, StyledText, line
from fleet.words import figures as words
from fleet.words.runs import add_code

_STYLES = {"done": Style.GREEN, "failed": Style.RED, "killed": Style.RED, "partly": Style.RED}
_SHOWN_COMMIT = 12


def log_to_lines(entries: Sequence[LogEntry], currency: str, earlier: int) -> Iterator[Line]:
    """Yield entries in order; before the entries of a run, yield a line with the run's user.

    `earlier` is the number of older entries that are not shown.
    """
    if earlier:
        entry = "entry" if earlier == 1 else "entries"
        yield line(StyledText(f"… {earlier:,} earlier {entry}", Style.DIM))
    for _, group in groupby(entries, key=lambda each: (each.run, each.origin)):
        yield from _group(list(group), currency)
    if not (entries or earlier):
        yield line("nothing in the log")


def _group(entries: Sequence[LogEntry], currency: str) -> Iterator[Line]:
    first = entries[0]
    origin = first.origin
    who = origin.by + (f" at {origin.host}" if origin.host else "")
    where = [who or "unknown"]
    where += [f"commit {origin.commit[:_SHOWN_COMMIT]}"] if origin.commit else []
    where += [origin.job or origin.pipeline] if origin.pipeline else []
    what = f"run {first.run}" if first.run else f"{first.kind} outside of a run"
    yield line(StyledText(what, Style.BOLD), f" by {', '.join(where)}")
    for entry in entries:
        yield _entry(entry, currency)


def _entry(entry: LogEntry, currency: str) -> Line:
    named = " ".join(filter(None, (entry.machine, f"({entry.pool})" if entry.pool else "")))
    parts: list[str | StyledText] = [
        f"  {entry.at:%Y-%m-%dT%H:%M:%SZ} ",
        StyledText(entry.kind, Style.BOLD),
    ]
    parts += [f" {named}"] if named else []
    if entry.outcome:
        parts += [": ", StyledText(entry.outcome, _STYLES.get(entry.outcome, Style.YELLOW))]
    more = [f"{entry.cost:+f} {currency}/h"] if entry.cost else []
    more += [add_code(entry.because, entry.reason)]
    more += [f"plan {words.short(entry.plan)}"] if entry.plan and entry.kind == "run" else []
    more += [f"{key} {value}" for key, value in entry.details.items()]
    said = "; ".join(filter(None, more))
    return line(*parts, f"; {said}" if said else "")
