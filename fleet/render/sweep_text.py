"""This module renders a sweep for people: what goes, what expired and stays, and why."""

from collections.abc import Iterator

from fleet.plan import Plan, Reason
from fleet.render import words
from fleet.render.changes_text import changes_section
from fleet.render.terminal import Line, Span, Style, line, lines_to_text, title


def sweep_to_text(plan: Plan, *, applies: bool = False, colour: bool) -> str:
    """Return the plan of a sweep as text; `applies` says that it is carried out now."""
    lines = [
        line(Span(f"Fleet {plan.fleet}", Style.BOLD), f" at {words.time(plan.time)}"),
        *_headline(plan, applies=applies),
        *_list("Not known", plan.unknown),
        *changes_section(plan),
        *_list("Expired, but stays", tuple(_staying(plan))),
        *_list("Guards", tuple(result.because for result in plan.guards)),
    ]
    return lines_to_text(lines, colour=colour)


def _headline(plan: Plan, *, applies: bool) -> Iterator[Line]:
    if not plan.actions:
        yield line(Span("Sweep: nothing to let go of", Style.BOLD))
        return
    dry = "" if applies else "; shown only, add --apply to do it"
    yield line(Span(f"Sweep: {words.changes(plan)}{dry}", Style.BOLD))


def _staying(plan: Plan) -> Iterator[str]:
    for worker in plan.workers:
        if worker.verdict == "keep" and worker.reason is Reason.EXPIRED:
            yield f"{worker.worker}: {worker.because}"


def _list(heading: str, sentences: tuple[str, ...]) -> Iterator[Line]:
    if sentences:
        yield title(heading)
    for sentence in sentences:
        yield line("  ", Span("! ", Style.YELLOW), sentence)
