"""This module renders the journal: when a run was, and what became of its pools."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from fleet.plan.outcome import Outcome
from fleet.render import words

_MOST_STEPS = 5
_WORST_FIRST = ("failed", "refused", "applied", "unchanged")


def run_to_text(run: Mapping[str, str], *, running: bool) -> str:
    """Return a run as a line; `running` says that it may be the one that holds the lock."""
    if not run["ended"]:
        unended = (
            "still running"
            if running
            else "no end recorded: interrupted, or failed before its outcome"
        )
        lines = [f"run      {run['started']}, {unended}"]
        steps = _steps(run)
        if len(steps) > _MOST_STEPS:
            lines.append(f"           … {words.many(len(steps) - _MOST_STEPS, 'step')} before")
        lines += [f"           {step}" for step in steps[-_MOST_STEPS:]]
        return "\n".join(lines)
    plan = f", plan {words.short(run['plan'])}" if run["plan"] else ""
    return f"run      {run['started']} to {run['ended']}{plan}: {_results(run)}"


def run_to_value(run: Mapping[str, str]) -> dict[str, Any]:
    """Return a run as a JSON value; what is not known is null."""
    outcome = _outcome(run)
    return {
        "started": run["started"],
        "ended": run["ended"] or None,
        "plan": run["plan"] or None,
        "outcome": _json(run["outcome"]),
        "begun": list(_steps(run)),
        "results": None if outcome is None else dict(_counted(outcome)),
    }


def said_of_begun(latest: Sequence[Mapping[str, str]]) -> str:
    """Return the last step of the latest run, where that has no end, as a part of a sentence."""
    steps = _steps(latest[0]) if latest else ()
    if not steps:
        return ""
    return f"; its last of {words.many(len(steps), 'step')}: {steps[-1]}"


def _steps(run: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a run without an end had begun to change, in its order."""
    return () if run["ended"] else tuple(run["outcome"].splitlines())


def _results(run: Mapping[str, str]) -> str:
    outcome = _outcome(run)
    if outcome is None:
        return "outcome not known"
    forgotten = [name for stack in outcome.stacks for name in stack.forgotten]
    if forgotten:
        return f"forgot {', '.join(forgotten)}"
    adopted = [name for stack in outcome.stacks for name in stack.adopted]
    if adopted:
        return f"adopted {', '.join(adopted)}"
    if outcome.rules:
        return f"delivered rules to {'; '.join(outcome.rules)}"
    counted = _counted(outcome)
    parts = [f"{counted[result]} {result}" for result in _WORST_FIRST if counted[result]]
    parts += [f"{len(outcome.refused)} refused by guards"] if outcome.refused else []
    return ", ".join(parts) or "nothing to do"


def _counted(outcome: Outcome) -> Counter[str]:
    return Counter(stack.result for stack in outcome.stacks)


def _outcome(run: Mapping[str, str]) -> Outcome | None:
    try:
        return Outcome.model_validate_json(run["outcome"])
    except ValidationError:
        return None  # no outcome yet, or another version's


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(text)
    except ValueError:
        return None
