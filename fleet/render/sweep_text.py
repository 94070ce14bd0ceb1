"""This module renders for people what goes apart from a plan, what of it stays, and why."""

from collections.abc import Collection, Iterator

from fleet.plan import Plan, Reason
from fleet.render import words
from fleet.render.changes_text import changes_section
from fleet.render.terminal import Line, Span, Style, line, lines_to_text, title


def sweep_to_text(
    plan: Plan, *, applies: bool = False, colour: bool, named: Collection[str] | None = None
) -> str:
    """Return the plan of a sweep as text; `applies` says that it is carried out now.

    `named` are the machines that a person named, where that is what goes; None: it is a sweep.
    """
    lines = [
        line(Span(f"Fleet {plan.fleet}", Style.BOLD), f" at {words.time(plan.time)}"),
        *_headline(plan, "Sweep" if named is None else "Delete", applies=applies),
        *_list("Not known", plan.unknown),
        *changes_section(plan),
        *_list(
            "Expired, but stays" if named is None else "Chosen, but stays",
            tuple(_staying(plan, named or ())),
        ),
        *_list("Guards", tuple(result.because for result in plan.guards)),
    ]
    return lines_to_text(lines, colour=colour)


def _headline(plan: Plan, what: str, *, applies: bool) -> Iterator[Line]:
    if not plan.actions:
        yield line(Span(f"{what}: nothing to let go of", Style.BOLD))
        return
    dry = "" if applies else "; shown only, add --apply to do it"
    yield line(Span(f"{what}: {words.changes(plan)}{dry}", Style.BOLD))


def _staying(plan: Plan, named: Collection[str]) -> Iterator[str]:
    for worker in plan.workers:
        asked = worker.reason in (Reason.EXPIRED, Reason.REQUESTED) or worker.worker in named
        if worker.verdict == "keep" and asked:
            yield f"{worker.worker}: {worker.because}"


def _list(heading: str, sentences: tuple[str, ...]) -> Iterator[Line]:
    if sentences:
        yield title(heading)
    for sentence in sentences:
        yield line("  ", Span("! ", Style.YELLOW), sentence)
