"""Render the result of a run, with its failures and next steps, and the log of past runs."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from fleet.model.history import Outcome, StackOutcome
from fleet.model.log import LogEntry
from fleet.model.plan import Plan
from fleet.report.document import Line, Style, StyledText, bold, line, yellow
from fleet.report.status import CHANGE_MARKS
from fleet.schema.findings import some_of
from fleet.words import figures as words
from fleet.words.runs import add_code

_STYLES = {
    "applied": Style.GREEN,
    "unchanged": Style.DIM,
    "failed": Style.RED,
    "refused": Style.YELLOW,
}
_CHANGES = {
    "created": ("created", "create", ""),
    "drained": ("drained", "drain", ""),
    "deleted": ("deleted", "delete", ""),
    "deleting": ("deleting", "delete", " (still listed)"),
    "forgotten": ("forgotten", "delete", " (gone)"),
    "cleaned": ("cleaned up", "delete", " (never created)"),
}
"""Field of a stack's outcome to its participle, the kind of its mark, and a note."""
_ALWAYS = ("created", "drained", "deleted")
_MOST_NAMES = 5
_MOST_LINES = 20
"""Maximum lines of an error, or differences between two plans."""
_MOST_STEPS = 5
_WORST_FIRST = ("failed", "refused", "applied", "unchanged")
_WIDTH = 20


def outcome_blocks(
    outcome: Outcome, plan: Plan, *, command: str = "fleet apply"
) -> Iterator[Line]:
    """Yield the actions per pool, the failures with reasons, and the operator's next steps."""
    yield _headline(outcome, plan)
    for stack in outcome.stacks:
        if stack.result != "unchanged":
            yield from _stack(stack)
    unchanged = [stack.pool for stack in outcome.stacks if stack.result == "unchanged"]
    for what, pools, style in (
        ("unchanged", unchanged, _STYLES["unchanged"]),
        ("in progress", outcome.under_way, _STYLES["applied"]),
        ("not started", outcome.left, _STYLES["refused"]),
    ):
        if pools:
            yield line(StyledText(f"  {what}: {some_of(pools, shown=_MOST_NAMES)}", style))
    for because in outcome.refused:
        yield line("  ", yellow("refused"), ": ", because)
    if outcome.outdated:
        yield line("  ", yellow("refused"), ": the saved plan differs from the current plan")
        yield from _draw_first(outcome.outdated, "    ", "more difference")
    steps = list(_steps(outcome, plan, command))
    if steps:
        yield line(StyledText("Next:", Style.BOLD))
    yield from (line(f"  {step}") for step in steps)


def _headline(outcome: Outcome, plan: Plan) -> Line:
    done = {
        what: sum(len(getattr(stack, kind)) for stack in outcome.stacks)
        for kind, (what, *_) in _CHANGES.items()
    }
    moved = len(outcome.promoted)
    done |= {"released": len(outcome.released), "given back": len(outcome.resumed)}
    done["image version moved" if moved == 1 else "image versions moved"] = moved
    figures = ", ".join(
        f"{count:,} {what}" for what, count in done.items() if count or what in _ALWAYS
    )
    results = {0: "Applied", 1: "Failed", 4: "Refused", 5: "Partly applied"}
    said = f"{results[outcome.exit_code]}: {figures if any(done.values()) else 'nothing changed'}"
    return line(*bold(said), f" (fleet {plan.fleet})")


def _stack(stack: StackOutcome) -> Iterator[Line]:
    style = _STYLES[stack.result]
    yield line("  ", *bold(stack.pool), ": ", StyledText(stack.result, style))
    for kind, (what, mark, note) in _CHANGES.items():
        if names := getattr(stack, kind):
            sign, colour = CHANGE_MARKS[mark]
            said = StyledText(f"{sign} {what}{note}", colour)
            yield line("    ", said, f" {len(names):,}: {some_of(names, shown=_MOST_NAMES)}")
    yield from _draw_first(stack.error.strip().splitlines(), "    | ", "more line", style)


def _draw_first(
    texts: Sequence[str], lead: str, noun: str, style: Style = Style.PLAIN
) -> Iterator[Line]:
    """Yield the first texts, then the number of hidden texts."""
    for text in texts[:_MOST_LINES]:
        yield line("    ", StyledText(f"{lead[4:]}{text}", style))
    if len(texts) > _MOST_LINES:
        yield line(f"{lead}… and {words.many(len(texts) - _MOST_LINES, noun)}")


def _steps(outcome: Outcome, plan: Plan, command: str) -> Iterator[str]:
    stacks = outcome.stacks
    done = "completed steps are recorded; " * any(stack.is_touched for stack in stacks)
    retry = min((each.retry_at for each in stacks if each.retry_at), default=None)
    withheld = words.withheld(plan)
    steps = (
        (
            retry,
            f"{done}the first `{command}` after {retry:%Y-%m-%d %H:%M:%S} UTC tries again; until "
            f"then, each `{command}` uses other machine types and pools"
            if retry
            else "",
        ),
        (
            any(stack.result == "failed" and not stack.retry_at for stack in stacks),
            f"{done}fix the cause above, then run `{command}` again",
        ),
        (
            any(stack.result == "refused" for stack in stacks),
            f"see {words.REFUSED_PAGE} on what was refused in a pool",
        ),
        (
            outcome.outdated,
            (
                "review the plan above, save it again with `fleet plan --out FILE`, then apply "
                "FILE; at a terminal, run `fleet apply` again"
            ),
        ),
        (outcome.outdated, f"see {words.OUTDATED_PAGE}"),
        (
            outcome.refused,
            "the plan above shows each refusal with its limit and how to proceed",
        ),
        (
            plan.unknown or plan.attention,
            "resolve what is unknown or requires action in the plan above (exit code 1)",
        ),
        (
            any(stack.drained for stack in stacks),
            f"drained workers finish their work; a later `{command}` deletes them",
        ),
        (
            withheld and not plan.is_refused,
            f"guards withheld {withheld}; the next `{command}` continues",
        ),
    )
    yield from (text for is_needed, text in steps if is_needed)


def run_to_text(run: Mapping[str, str], *, running: bool) -> str:
    """Return a recorded run as text. `running`: an unfinished run may still be running."""
    if not run["ended"]:
        state = "still running" if running else "no end recorded (interrupted or crashed)"
        before, steps = format_steps(run)[:-_MOST_STEPS], format_steps(run)[-_MOST_STEPS:]
        more = [f"… {words.many(len(before), 'step')} before"] if before else []
        return "\n           ".join([f"run      {run['started']}, {state}", *more, *steps])
    plan = f", plan {words.short(run['plan'])}" if run["plan"] else ""
    return f"run      {run['started']} to {run['ended']}{plan}: {_results(run)}"


def run_to_value(run: Mapping[str, str]) -> dict[str, Any]:
    """Return a recorded run as a JSON value, with null for unknown fields."""
    outcome = _outcome(run)
    return {
        "started": run["started"],
        "ended": run["ended"] or None,
        "plan": run["plan"] or None,
        "outcome": _json(run["outcome"]),
        "begun": list(format_steps(run)),
        "results": None if outcome is None else dict(_count_results(outcome)),
    }


def format_begun(latest: Sequence[Mapping[str, str]]) -> str:
    """Return a clause with the last step of the latest run; empty if that run has ended."""
    steps = format_steps(latest[0]) if latest else ()
    if not steps:
        return ""
    return f"; its last of {words.many(len(steps), 'step')}: {steps[-1]}"


def format_steps(run: Mapping[str, str]) -> tuple[str, ...]:
    """Return the steps that an unfinished run has started, in order; empty if the run ended."""
    return () if run["ended"] else tuple(run["outcome"].splitlines())


def _results(run: Mapping[str, str]) -> str:
    outcome = _outcome(run)
    if outcome is None:
        return "outcome unknown"
    forgotten = [name for stack in outcome.stacks for name in stack.forgotten]
    adopted = [name for stack in outcome.stacks for name in stack.adopted]
    for verb, names, mark in (
        ("forgot", [] if run["plan"] else forgotten, ", "),
        ("adopted", adopted, ", "),
        ("delivered rules to", outcome.rules, "; "),
    ):
        if names:
            return f"{verb} {mark.join(names)}"
    counted = _count_results(outcome)
    parts = [f"{counted[result]} {result}" for result in _WORST_FIRST if counted[result]]
    parts += [f"{len(outcome.refused)} refused by guards"] if outcome.refused else []
    return ", ".join(parts) or "nothing to do"


def _count_results(outcome: Outcome) -> Counter[str]:
    return Counter(stack.result for stack in outcome.stacks)


def _outcome(run: Mapping[str, str]) -> Outcome | None:
    try:
        return Outcome.model_validate_json(run["outcome"])
    except ValidationError:
        return None  # no outcome yet, or of another version


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(text)
    except ValueError:
        return None


class Progress:
    """Counter of completed steps of a plan, printed as a progress bar."""

    def __init__(self, plan: Plan) -> None:
        self._left = {f"{a.pool}: {a.action} {a.worker}": a.pool for a in plan.actions}
        self._planned = Counter(self._left.values())

    def report(self, step: str) -> None:
        """Count a planned step as completed, once. Ignore unplanned steps."""
        self._left.pop(step, None)

    def __str__(self) -> str:
        """Return a progress bar; empty if no step was planned."""
        planned = self._planned.total()
        if not planned:
            return ""
        done = planned - len(self._left)
        filled = _WIDTH * done // planned
        left = Counter(self._left.values())
        pools = (
            f"{pool} {self._planned[pool] - left[pool]}/{self._planned[pool]}" for pool in left
        )
        bar = "#" * filled + "." * (_WIDTH - filled)
        return f"[{bar}] {done} of {planned} steps; {', '.join(pools) or 'recording'}"


_LOG_STYLES = {"done": Style.GREEN, "failed": Style.RED, "killed": Style.RED, "partly": Style.RED}
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
    first, origin = entries[0], entries[0].origin
    who = words.join(
        ", ",
        (origin.by + (f" at {origin.host}" if origin.host else "")) or "unknown",
        f"commit {origin.commit[:_SHOWN_COMMIT]}" if origin.commit else "",
        (origin.job or origin.pipeline) if origin.pipeline else "",
    )
    what = f"run {first.run}" if first.run else f"{first.kind} outside of a run"
    yield line(*bold(what), f" by {who}")
    for entry in entries:
        named = words.join(" ", entry.machine, f"({entry.pool})" if entry.pool else "")
        result = StyledText(entry.outcome, _LOG_STYLES.get(entry.outcome, Style.YELLOW))
        more = words.join(
            "; ",
            f"{entry.cost:+f} {currency}/h" if entry.cost else "",
            add_code(entry.because, entry.reason),
            f"plan {words.short(entry.plan)}" if entry.plan and entry.kind == "run" else "",
            *(f"{key} {value}" for key, value in entry.details.items()),
        )
        yield line(
            f"  {entry.at:%Y-%m-%dT%H:%M:%SZ} ",
            *bold(entry.kind),
            f" {named}" if named else "",
            *((": ", result) if entry.outcome else ()),
            f"; {more}" if more else "",
        )
