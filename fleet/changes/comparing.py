"""This module says what a change of fleet.yaml does: what differs between two guarded plans.

Both plans are made of one world, so that whatever differs is the change's own doing. Actions
are compared by what they do, where and why; which free name a new machine gets is no difference.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Literal, NamedTuple

from fleet.changes import (
    ActionsChange,
    Changes,
    Difference,
    GuardChange,
    OutdatedChange,
    PoolChange,
    RequestsChange,
    Result,
)
from fleet.changes.config import ConfigChange
from fleet.facts import World
from fleet.plan import Action, Create, Delete, Plan, PoolVerdict, Reason
from fleet.plan.guard_results import GuardResult
from fleet.plan.money import rate
from fleet.schema.model import Fleet

_COMPARED = ("max", "mode", "provider", "type", "image", "price", "provides")
_Why = tuple[str, tuple[str | int, ...]]
"""Because of what, and the key of fleet.yaml that decides it."""


def compare(
    base: Plan,
    head: Plan,
    *,
    unseen: tuple[str, ...] = (),
    config: tuple[ConfigChange, ...] = (),
    renames: Mapping[str, str] = MappingProxyType({}),
) -> Changes:
    """Return what the plan of a changed fleet.yaml does otherwise than the plan of its base.

    `unseen` is what the base needs and nobody looked at (`find_unseen`), `config` the keys that
    differ (`find_config_changes`), `renames` what pools were called before; in both plans they
    have their new name (`rename_pools`).
    """
    needed = frozenset(base.attention)
    return Changes(
        base=base.digests.config,
        same_config=base.digests.config == head.digests.config,
        pools=tuple(_pools(base, head, {new: old for old, new in renames.items()})),
        actions=tuple(_actions(base, head)),
        outdated=tuple(_outdated(base, head)),
        requests=tuple(_requests(base, head)),
        guards=tuple(_guards(base, head)),
        config=config,
        attention=tuple(text for text in head.attention if text not in needed),
        unknown=(*unseen, *_unknown(base, head)),
        cost_before=base.cost_after,
        currency_before=base.currency,
        cost_after=head.cost_after,
        currency=head.currency,
    )


def find_unseen(base: Fleet, world: World) -> tuple[str, ...]:
    """Return what only the base names, so that nobody looked at it: that is not empty."""
    return tuple(
        f"{kind} {name} is only in the base and was not read: what it would do there is not known"
        for kind, named, seen in (
            ("queue", base.queues, world.queues),
            ("provider", base.providers, world.providers),
        )
        for name in sorted(named)
        if name not in seen
    )


def _pools(base: Plan, head: Plan, called: Mapping[str, str]) -> Iterator[PoolChange]:
    before, after = _configured(base), _configured(head)
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old and new:
            differences = tuple(_differences(old, new))
            if name in called:
                renamed = Difference(key="name", before=called[name], after=name)
                differences = (renamed, *differences)
            if differences:
                yield PoolChange(pool=name, change="changed", differences=differences)
        else:
            yield PoolChange(pool=name, change="added" if new else "removed")


def _configured(plan: Plan) -> dict[str, PoolVerdict]:
    return {verdict.pool: verdict for verdict in plan.pools if verdict.mode != "removed"}


def _differences(old: PoolVerdict, new: PoolVerdict) -> Iterator[Difference]:
    for key in _COMPARED:
        before, after = _written(getattr(old, key)), _written(getattr(new, key))
        if before != after:
            yield Difference(key=key, before=before, after=after)


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, Decimal):
        return rate(value)
    return "none" if value is None else str(value)


class _Kind(NamedTuple):
    """What makes actions alike."""

    pool: str
    action: Literal["create", "drain", "delete"]
    withheld: bool
    reason: Reason
    type: str | None
    image: str | None
    settings: tuple[tuple[str, str], ...]


def _actions(base: Plan, head: Plan) -> Iterator[ActionsChange]:
    before, after = _by_kind(base), _by_kind(head)
    for kind in sorted(before.keys() | after.keys(), key=_place):
        old, new = before.get(kind, []), after.get(kind, [])
        if len(old) == len(new):
            continue
        only = _only_in(new, old) if len(new) > len(old) else _only_in(old, new)
        yield ActionsChange(
            **(kind._asdict() | {"settings": dict(kind.settings)}),
            before=len(old),
            after=len(new),
            cost=Decimal(0) if kind.withheld else _cost(new) - _cost(old),
            workers=() if kind.action == "create" else tuple(a.worker for a in only),
            because=only[0].because,
        )


def _place(kind: _Kind) -> tuple[object, ...]:
    order = ("create", "drain", "delete").index(kind.action)
    return (kind.pool, order, *((part is not None, part) for part in kind[2:]))


def _by_kind(plan: Plan) -> Mapping[_Kind, list[Action]]:
    found: defaultdict[_Kind, list[Action]] = defaultdict(list)
    for withheld, actions in ((False, plan.actions), (True, plan.withheld)):
        for action in actions:
            made = action.inputs if isinstance(action, Create) else None
            kind = _Kind(
                action.pool,
                action.action,
                withheld,
                action.reason,
                made.type if made else None,
                made.image if made else None,
                tuple(sorted(made.settings.items())) if made else (),
            )
            found[kind].append(action)
    return found


def _only_in(more: list[Action], fewer: list[Action]) -> list[Action]:
    """Return the actions that have no like in the other plan: by name, else the last ones."""
    names = {action.worker for action in fewer}
    others = [action for action in more if action.worker not in names]
    return others[len(fewer) - len(more) :]


def _cost(actions: list[Action]) -> Decimal:
    return sum(
        (
            action.cost if isinstance(action, Create) else -action.saves
            for action in actions
            if isinstance(action, Create | Delete)
        ),
        Decimal(0),
    )


def _outdated(base: Plan, head: Plan) -> Iterator[OutdatedChange]:
    before, after = _outdated_in(base), _outdated_in(head)
    for pool in sorted(before.keys() | after.keys()):
        old, new = before.get(pool, ()), after.get(pool, ())
        came = tuple(name for name in new if name not in old)
        went = tuple(name for name in old if name not in new)
        for outdated, workers in ((True, came), (False, went)):
            if workers:
                yield OutdatedChange(pool=pool, outdated=outdated, workers=workers)


def _outdated_in(plan: Plan) -> dict[str, tuple[str, ...]]:
    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for verdict in plan.workers:
        if verdict.outdated:
            found[verdict.pool][verdict.worker] = None
    return {pool: tuple(names) for pool, names in found.items()}


def _requests(base: Plan, head: Plan) -> Iterator[RequestsChange]:
    """Yield requests that gain or lose a worker; of equal ones only how many counts."""
    before, after = _served_by(base), _served_by(head)
    known = {key for signature in base.signatures for key in signature.requests}
    unserved = {key: (each.because, each.path) for each in head.unserved for key in each.requests}
    for signature in head.signatures:
        keys = [key for key in signature.requests if key in known]
        gained = [key for key in keys if key in after and key not in before]
        lost = [key for key in keys if key in before and key not in after]
        more = len(gained) - len(lost)
        changed, whys = (gained, after) if more > 0 else (lost, unserved)
        groups: defaultdict[_Why, list[str]] = defaultdict(list)
        for key in changed[len(changed) - abs(more) :]:
            groups[whys.get(key, ("", ()))].append(key)
        for (because, path), names in groups.items():
            yield RequestsChange(
                served=more > 0,
                queue=signature.queue,
                required=signature.required,
                requests=tuple(names),
                because=because,
                path=path,
            )


def _served_by(plan: Plan) -> dict[str, _Why]:
    """Return the requests that have a worker, there or coming, and where from."""
    pools = {action.worker: action.pool for action in plan.actions}
    pools |= {verdict.worker: verdict.pool for verdict in plan.workers}
    served: dict[str, _Why] = {}
    for signature in plan.signatures:
        for key, worker in signature.by_worker.items():
            served[key] = (f"pool {pools.get(worker, '')} has a worker for them", ())
        for key, worker in signature.by_create.items():
            served[key] = (f"pool {pools.get(worker, '')} makes machines for them", ())
    return served


def _guards(base: Plan, head: Plan) -> Iterator[GuardChange]:
    before, after = _said(base), _said(head)
    for key in before | after:
        old, new = before.get(key), after.get(key)
        speaks = new or old
        was: Result = old.result if old else "passed"
        now: Result = new.result if new else "passed"
        if speaks and was != now:
            yield GuardChange(
                guard=speaks.guard,
                pool=speaks.pool,
                before=was,
                after=now,
                because=speaks.because,
                path=speaks.path,
                way_out=new.way_out if new else "",
            )


def _said(plan: Plan) -> dict[tuple[object, ...], GuardResult]:
    return {(guard.guard, guard.pool, guard.path): guard for guard in plan.guards}


def _unknown(base: Plan, head: Plan) -> Iterator[str]:
    for plan, other, when in ((head, base, "with"), (base, head, "without")):
        missing = Counter(plan.unknown) - Counter(other.unknown)
        yield from (f"only {when} the change: {text}" for text in missing)
