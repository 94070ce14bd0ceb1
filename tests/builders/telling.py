"""Build plans that have something to say in every part of every surface.

They are in the folder `plans`: what differs from the values of `tests.builders`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fleet.explain.values import ExplainedReason, Explanation
from fleet.model.plan import CLOCK_RULE, LimitVerdict, Plan, Release
from tests.builders import (
    a_create,
    a_delete,
    a_drain,
    a_guard_result,
    a_plan,
    a_pool_verdict,
    a_signature,
    a_warning,
    a_worker_verdict,
    an_idle_verdict,
    an_unserved,
)
from tests.builders.budgeting import a_budget_verdict
from tests.builders.guarding import an_approval

_MAKERS: Mapping[str, Callable[..., object]] = {
    "create": a_create,
    "drain": a_drain,
    "delete": a_delete,
    "busy": a_worker_verdict,
    "idle": an_idle_verdict,
    "pool": a_pool_verdict,
    "signature": a_signature,
    "unserved": an_unserved,
    "guard": a_guard_result,
    "warning": a_warning,
}


def _parts(name: str) -> dict[str, Any]:
    """Return the parts of a plan: each value as its builder makes it, others as they are."""
    text = Path(__file__).with_name("plans").joinpath(f"{name}.yml").read_text("utf-8")
    said: dict[str, Any] = yaml.safe_load(text)
    return {
        key: tuple(map(_made, value)) if isinstance(value, list) else value
        for key, value in said.items()
    }


def _made(value: Any) -> Any:  # noqa: ANN401 - any part of a plan
    if not isinstance(value, dict) or not _MAKERS.keys() & value.keys() or len(value) > 1:
        return value
    ((maker, keys),) = value.items()
    return _MAKERS[maker](
        **{key: tuple(each) if isinstance(each, list) else each for key, each in keys.items()}
    )


def a_telling_plan() -> Plan:
    """Return a plan in which every section of its text says something."""
    return a_plan(**_parts("telling"))


def a_lively_plan() -> Plan:
    """Return the plan of a fleet on an ordinary day: much at work, one 24-hour build waiting."""
    return a_plan(**_parts("lively"))


def a_blind_plan() -> Plan:
    """Return the plan of a fleet of which nothing could be read, its static workers included."""
    return a_plan(**_parts("blind"))


def a_half_blind_plan() -> Plan:
    """Return the plan of a lively fleet, one queue and the machines of one pool of it unread."""
    lively, more = _parts("lively"), _parts("half_blind")
    return a_plan(**lively | {key: lively.get(key, ()) + each for key, each in more.items()})


def a_noted_plan() -> Plan:
    """Return a plan with the parts that the others are without: notes, limits, shared parts."""
    gone = {"pool": "builders", "registry": "debian", "because": "its machine is gone"}
    limit = {"path": ("tags", "big", "limits", "per", "submitter"), "limit": 2, "in_use": 1}
    return a_plan(
        releases=[Release.model_validate(gone | {"worker": f"gone-{n}"}) for n in range(20)],
        limits=[
            LimitVerdict.model_validate(limit | {"who": f"user-{n}", "given": 0, "waiting": 0})
            for n in range(20)
        ],
        budgets=(a_budget_verdict(),),
        approvals=(an_approval("builders", "delete", 2),),
        warnings=(a_warning(rule=CLOCK_RULE, message="the clock is late"),),
        **_parts("noted"),
    )


def an_explanation(**overrides: object) -> Explanation:
    """Return why request 101 waits."""
    path = ("pools", "builders", "workers", "max")
    because = "pool builders is at workers.max (3)"
    defaults = {
        "kind": "request",
        "name": "debian/101",
        "headline": "debian/101 waits: no machine in this run",
        "facts": ("it waits for 5 min",),
        "reasons": (ExplainedReason(because=because, path=path),),
        "next_steps": ("raise pools.builders.workers.max",),
    }
    return Explanation.model_validate(defaults | overrides)
