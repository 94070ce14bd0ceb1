"""Whether a saved plan is still the plan of now.

A saved plan is never carried out itself: it is held against one that is made anew, by what it
does, where and from what. Whom it does that for may have moved.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from fleet.errors import FileUnreadable, PlanOutdated
from fleet.model.digests import seal
from fleet.model.plan import Action, Create, Plan, PoolVerdict, WorkerVerdict

LIMIT_BYTES = 500_000_000
_FORMAT = Plan.model_fields["format"].default
_WAY_OUT = "make one with `fleet plan --out FILE`"
_NO_DIFFERENCE = {"assumed", "because", "serves", "turn", "until_idle"}
_LOOKED_AFTER = {"expires", "commit"}
"""Labels that each run writes anew."""


def read_plan(name: str, content: bytes) -> Plan:
    """Return the plan saved in a file; raises where it is none, cut short or edited."""
    try:
        plan = Plan.model_validate_json(content)
    except ValidationError as error:
        raise FileUnreadable(f"{name}: {_not_a_plan(content, error)}; {_WAY_OUT}") from error
    if seal(plan).digests != plan.digests:
        raise PlanOutdated(
            f"refused, nothing was changed: {name} is not as `fleet plan --out` saved it: its "
            f"digest does not fit what it says; {_WAY_OUT} and leave it as it is"
        )
    return plan


def find_drift(saved: Plan, now: Plan) -> tuple[str, ...]:
    """Return in sentences what a saved plan says otherwise than the plan of now; none: the same.

    Every action counts, the verdict on every machine, what is done to base stacks and images, the
    config, and the serials of the stacks that either plan touches. How much waits, and for whom
    a machine is, does not.
    """
    return (
        *_config(saved, now),
        *_bases(saved, now),
        *_promotions(saved, now),
        *_stacks(saved, now),
        *_actions(saved, now),
    )


def _not_a_plan(content: bytes, error: ValidationError) -> str:
    said = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if said["type"] == "json_invalid":
        cause = said["msg"].removeprefix("Invalid JSON: ")
        return f"not a saved plan, or one that was cut short: {cause}"
    found = from_json(content)
    form = found.get("format") if isinstance(found, dict) else None
    if form is None or form == _FORMAT:
        where = ".".join(("$", *map(str, said["loc"])))
        return f"not a saved plan: {where}: {said['msg']}"
    return f"this version of fleet reads plans of format {_FORMAT}, not {form!r}"


def _config(saved: Plan, now: Plan) -> Iterator[str]:
    if saved.digests.config != now.digests.config:
        yield "fleet.yaml, or a file that it includes, says something else since"


def _bases(saved: Plan, now: Plan) -> Iterator[str]:
    before, after = ({each.provider: each.steps for each in plan.bases} for plan in (saved, now))
    for provider in sorted(before.keys() | after.keys()):
        was, is_ = (", ".join(said.get(provider, ())) or "nothing" for said in (before, after))
        if was != is_:
            yield f"base of {provider}: {was} then, {is_} now"


def _promotions(saved: Plan, now: Plan) -> Iterator[str]:
    before, after = (
        {(each.image, each.version, each.verb) for each in plan.promotions}
        for plan in (saved, now)
    )
    for what, some in (("no longer", before - after), ("now also", after - before)):
        yield from (f"{what}: {verb} {image} {version}" for image, version, verb in sorted(some))


def _stacks(saved: Plan, now: Plan) -> Iterator[str]:
    touched = {action.pool for plan in (saved, now) for action in plan.actions}
    before, after = _pools(saved), _pools(now)
    for pool in sorted(touched):
        old, new = before.get(pool), after.get(pool)
        was, is_ = _serial(old), _serial(new)
        if was != is_:
            name = next((each.stack for each in (new, old) if each and each.stack), pool)
            yield f"stack {name} was changed since: {was} then, {is_} now"


def _pools(plan: Plan) -> dict[str, PoolVerdict]:
    return {verdict.pool: verdict for verdict in plan.pools}


def _serial(verdict: PoolVerdict | None) -> str:
    serial = verdict.serial if verdict else None
    return "not there" if serial is None else f"serial {serial}"


def _actions(saved: Plan, now: Plan) -> Iterator[str]:
    """Yield what is done otherwise, then what is only thought of a machine otherwise."""
    before, after = _by_worker(saved), _by_worker(now)
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if new is None and old is not None:
            yield f"no longer: {_said(old)}"
        elif old is None and new is not None:
            yield f"now also: {_said(new)}: {new.because}"
        elif old is not None and new is not None:
            yield from _another(old, new)
    released = [{(each.pool, each.worker) for each in plan.releases} for plan in (saved, now)]
    for what, some in (
        ("no longer", released[0] - released[1]),
        ("now also", released[1] - released[0]),
    ):
        yield from (f"{what}: release {worker} of pool {pool}" for pool, worker in sorted(some))
    yield from _verdicts(saved, now, {key[:2] for key in before.keys() | after.keys()})


def _by_worker(plan: Plan) -> dict[tuple[str, str, str], Action]:
    return {(action.pool, action.worker, action.action): action for action in plan.actions}


def _said(action: Action) -> str:
    return f"{action.action} {action.worker} of pool {action.pool} [{action.reason}]"


def _another(old: Action, new: Action) -> Iterator[str]:
    before, after = _flat(old), _flat(new)
    differing = [
        f"{key} {before.get(key, 'none')} then, {after.get(key, 'none')} now"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
    if differing:
        yield f"{new.action} {new.worker} of pool {new.pool}: {'; '.join(differing)}"


def _flat(action: Action) -> dict[str, Any]:
    """Return what an action does, why and from what, by the words of the plan."""
    said = action.model_dump(mode="json", exclude=_NO_DIFFERENCE | {"inputs"})
    if isinstance(action, Create):
        inputs = action.inputs.model_dump(mode="json")
        labels = {k: v for k, v in inputs.pop("labels").items() if k not in _LOOKED_AFTER}
        said |= inputs.pop("settings") | labels | inputs
    return said


def _verdicts(saved: Plan, now: Plan, acted_on: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the machines that are there or gone since, or that a guard keeps from another fate."""
    before, after = _machines(saved), _machines(now)
    for key in sorted((before.keys() | after.keys()) - acted_on):
        old, new = before.get(key), after.get(key)
        if old and new and old.verdict == new.verdict:
            continue
        was, is_ = (each.verdict if each else "not there" for each in (old, new))
        why = f": {new.because}" if new else ""
        yield f"worker {key[1]} of pool {key[0]}: {was} then, {is_} now{why}"


def _machines(plan: Plan) -> dict[tuple[str, str], WorkerVerdict]:
    """Return the verdicts on what exists; what is only planned stands among the actions."""
    return {
        (verdict.pool, verdict.worker): verdict
        for verdict in plan.workers
        if verdict.verdict != "create" and not verdict.inactive
    }
