"""Limit an apply to some pools or to a saved plan, and compare this plan with the current one.

fleet never executes a saved plan itself. It plans again and compares the actions of both plans,
including their pools and inputs. The requests that the machines serve may differ.
The guards have already checked the whole plan. Unselected pools do not change.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from fleet.errors import FileUnreadable, PlanOutdated, WrongUsage
from fleet.model.digests import seal
from fleet.model.plan import Action, Create, Plan
from fleet.model.values import UnknownFigure
from fleet.schema.findings import nearest
from fleet.schema.model import Fleet
from fleet.state.store import Store
from fleet.words.limits import UNKNOWN_WHEN_SAVED
from fleet.words.lives import UNKNOWN_PRICE
from fleet.words.runs import add_reason


@dataclass(frozen=True)
class Selection:
    """The pools or the saved plan that an apply is limited to; by default, no limit."""

    pools: frozenset[str] = frozenset()
    """Pools to change; all if empty."""
    saved: Plan | None = None
    """The saved plan, which the current plan must equal; None if there is no saved plan."""


def part_at_rest(under_way: Mapping[str, Collection[str]], plan: Plan) -> Plan:
    """Return a plan without the pools and machines of running tasks."""
    machines = frozenset(name for names in under_way.values() for name in names)
    return plan.altered(
        **{
            key: tuple(
                each
                for each in getattr(plan, key)
                if each.pool not in under_way and each.worker not in machines
            )
            for key in ("actions", "withheld", "releases", "resumes")
        }
    )


def check_selection(selection: Selection, fleet: Fleet, store: Store) -> None:
    """Raise WrongUsage for unknown pools, PlanOutdated for the saved plan of another fleet."""
    if selection.saved is not None and selection.saved.fleet != fleet.fleet:
        raise PlanOutdated(
            f"refused, nothing was changed: the saved plan is of fleet {selection.saved.fleet}, "
            f"not of fleet {fleet.fleet}"
        )
    known = {*fleet.pools, *(record.pool for record in store.stacks())}
    unknown = sorted(selection.pools - known)
    if unknown:
        meant = nearest(unknown[0], known)
        hint = f"did you mean '{meant}'? " if meant else ""
        raise WrongUsage(
            f"--pool {unknown[0]}: no such pool; {hint}pools of fleet {fleet.fleet}: "
            f"{', '.join(sorted(known)) or 'none'}"
        )


def selected_part(selection: Selection, plan: Plan) -> Plan:
    """Return the selected part of a guarded plan."""
    if not selection.pools:
        return plan
    pools = tuple(each for each in plan.pools if each.pool in selection.pools)
    providers = {each.provider for each in pools if each.mode not in {"observe", "pause"}}
    chosen = {
        key: tuple(each for each in getattr(plan, key) if each.pool in selection.pools)
        for key in (
            *("pools", "actions", "withheld", "releases", "resumes"),
            *("holds", "workers", "approvals"),
        )
    }
    return plan.altered(
        # A promotion changes all pools of its image.
        promotions=(),
        bases=tuple(each for each in plan.bases if each.provider in providers),
        guards=tuple(
            each for each in plan.guards if each.pool is None or each.pool in selection.pools
        ),
        cost_before=sum((each.cost_before for each in pools), Decimal(0)),
        cost_after=sum((each.cost_after for each in pools), Decimal(0)),
        **chosen,
    )


def find_changes(selection: Selection, part: Plan) -> tuple[str, ...]:
    """Return the differences between saved and current plan, within the selection."""
    return find_drift(selected_part(selection, selection.saved), part) if selection.saved else ()


LIMIT_BYTES = 500_000_000
_Saved = TypeVar("_Saved", bound=Plan)
_FORMAT = Plan.model_fields["format"].default
_ADVICE = "create one with `fleet plan --out FILE`"
_NO_DIFFERENCE = {"assumed", "because", "serves", "turn", "until_idle"}
_REWRITTEN = {"expires", "commit"}
"""Labels that each run writes again."""
_ONLY_SAVED = "only in the saved plan"
_ONLY_CURRENT = "only in the current plan"


def read_plan(name: str, content: bytes) -> Plan:
    """Return the plan in a file. Raises PlanOutdated for an edited plan, else FileUnreadable."""
    try:
        plan = Plan.model_validate_json(content)
    except ValidationError as error:
        raise FileUnreadable(f"{name}: {_not_a_plan(content, error)}; {_ADVICE}") from error
    if seal(plan).digests != plan.digests:
        raise PlanOutdated(
            f"refused, nothing was changed: the digest of {name} is wrong: the file was edited, "
            f"or another version of fleet saved it; {_ADVICE}"
        )
    return plan


def with_unknown_amounts(saved: _Saved) -> _Saved:
    """Return a saved plan in which unknown amounts are Unknown and each budget has its rest.

    Version 0.2.0 saved an unknown amount as 0, and no rest. The digests are unchanged.
    """
    spending = UnknownFigure(unknown=UNKNOWN_WHEN_SAVED)
    price = UnknownFigure(unknown=UNKNOWN_PRICE)
    return saved.altered(
        budgets=tuple(
            (each if each.known or each.left else each.altered(spent=spending)).with_rest()
            for each in saved.budgets
        ),
        workers=tuple(
            each if each.cost_known or each.cost else each.altered(cost=price)
            for each in saved.workers
        ),
    )


def find_drift(saved: Plan, now: Plan) -> tuple[str, ...]:
    """Return a sentence per difference between a saved plan and the current plan.

    This compares all actions, the decision on each machine, changes of base stacks and images, the
    configuration, and the serials of the stacks that either plan changes. It ignores the waiting
    requests and their assignment to machines.
    """
    is_edited = saved.digests.config != now.digests.config
    config = ("fleet.yaml, or a file that it includes, has changed",) if is_edited else ()
    return (
        *config,
        *_bases(saved, now),
        *_promotions(saved, now),
        *_stacks(saved, now),
        *_compare_actions(saved, now),
    )


def _not_a_plan(content: bytes, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        cause = first["msg"].removeprefix("Invalid JSON: ")
        return f"not a saved plan, or an incomplete one: {cause}"
    found = from_json(content)
    form = found.get("format") if isinstance(found, dict) else None
    where = ".".join(("$", *map(str, first["loc"])))
    if form == _FORMAT and first["type"] == "extra_forbidden":
        return f"{where} is not known here; apply it with the fleet that saved it, a newer one"
    if form is None or form == _FORMAT:
        return f"not a saved plan: {where}: {first['msg']}"
    if not str(form).startswith("fleet-plan-"):
        return f"not a saved plan: its format is {form!r}"
    return (
        f"this version of fleet reads plans of format {_FORMAT}, not {form!r}; apply it with the "
        "fleet that saved it"
    )


def _bases(saved: Plan, now: Plan) -> Iterator[str]:
    before, after = ({each.provider: each.steps for each in plan.bases} for plan in (saved, now))
    for provider in sorted(before.keys() | after.keys()):
        was, is_ = (", ".join(steps.get(provider, ())) or "nothing" for steps in (before, after))
        if was != is_:
            yield f"base of {provider}: {was} then, {is_} now"


def _promotions(saved: Plan, now: Plan) -> Iterator[str]:
    before, after = (
        {(each.image, each.version, each.verb) for each in plan.promotions}
        for plan in (saved, now)
    )
    for what, some in ((_ONLY_SAVED, before - after), (_ONLY_CURRENT, after - before)):
        yield from (f"{what}: {verb} {image} {version}" for image, version, verb in sorted(some))


def _stacks(saved: Plan, now: Plan) -> Iterator[str]:
    touched = {action.pool for plan in (saved, now) for action in plan.actions}
    before, after = ({each.pool: each for each in plan.pools} for plan in (saved, now))
    for pool in sorted(touched):
        old, new = before.get(pool), after.get(pool)
        serials = [each.serial if each else None for each in (old, new)]
        was, is_ = ("absent" if each is None else f"serial {each}" for each in serials)
        if was != is_:
            name = next((each.stack for each in (new, old) if each and each.stack), pool)
            yield f"stack {name} has changed: {was} then, {is_} now"


def _compare_actions(saved: Plan, now: Plan) -> Iterator[str]:
    """Yield the differences of actions, then of decisions on all other machines."""
    before, after = (
        {(action.pool, action.worker, action.action): action for action in plan.actions}
        for plan in (saved, now)
    )
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if new is None and old is not None:
            yield f"{_ONLY_SAVED}: {_describe(old)}"
        elif old is None and new is not None:
            yield add_reason(f"{_ONLY_CURRENT}: {_describe(new)}", new.because)
        elif old is not None and new is not None:
            was, is_ = _describe_action(old), _describe_action(new)
            differing = [
                f"{name} {was.get(name, 'none')} then, {is_.get(name, 'none')} now"
                for name in sorted(was.keys() | is_.keys())
                if was.get(name) != is_.get(name)
            ]
            if differing:
                what = f"{new.action} {new.worker} of pool {new.pool}"
                yield f"{what}: {'; '.join(differing)}"
    released = [{(each.pool, each.worker) for each in plan.releases} for plan in (saved, now)]
    for what, some in (
        (_ONLY_SAVED, released[0] - released[1]),
        (_ONLY_CURRENT, released[1] - released[0]),
    ):
        yield from (f"{what}: release {worker} of pool {pool}" for pool, worker in sorted(some))
    yield from _compare_verdicts(saved, now, {key[:2] for key in before.keys() | after.keys()})


def _describe(action: Action) -> str:
    return f"{action.action} {action.worker} of pool {action.pool} [{action.reason}]"


def _describe_action(action: Action) -> dict[str, Any]:
    """Map field name to value for the compared fields of an action, with reason and inputs."""
    flat = action.model_dump(mode="json", exclude=_NO_DIFFERENCE | {"inputs"})
    if isinstance(action, Create):
        inputs = action.inputs.model_dump(mode="json")
        labels = {k: v for k, v in inputs.pop("labels").items() if k not in _REWRITTEN}
        flat |= inputs.pop("settings") | labels | inputs
    return flat


def _compare_verdicts(saved: Plan, now: Plan, acted_on: set[tuple[str, str]]) -> Iterator[str]:
    """Yield machines with different decisions, and machines that only one plan has."""
    before, after = (
        {
            (each.pool, each.worker): each
            for each in plan.workers
            if each.verdict != "create" and not each.inactive
        }
        for plan in (saved, now)
    )
    for key in sorted((before.keys() | after.keys()) - acted_on):
        old, new = before.get(key), after.get(key)
        if old and new and old.verdict == new.verdict:
            continue
        was, is_ = (each.verdict if each else "absent" for each in (old, new))
        what = f"worker {key[1]} of pool {key[0]}: {was} then, {is_} now"
        yield add_reason(what, new.because) if new else what
