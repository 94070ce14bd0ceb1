"""The effect of a change of fleet.yaml: the edited keys, and the differences between both plans.

Both plans use the same observations, so every difference comes from the change. Actions are
compared by kind, pool and reason, because the names of new machines are generated. A renamed pool
is observed only under its new name, so the base is planned with that name (`rename_pools`).

The steady-state cost counts busy machines, `min` and `spare`. It does not count other idle
machines, on-demand machines, or new machines for waiting requests.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from pydantic import Field

from fleet.explain.builds import RuleReach
from fleet.explain.costs import ComparedBuild, MovedBuilds, StoppedBuilds
from fleet.explain.edits import ChangedEntries, ConfigChange, compare_entries
from fleet.explain.sensitive import SensitiveEdit
from fleet.model.facts import Unknown, World
from fleet.model.images import recipe_digest
from fleet.model.plan import (
    Action,
    Create,
    Delete,
    Plan,
    PoolVerdict,
    Reason,
    Replaced,
)
from fleet.model.pool_limits import pace_of, size_of
from fleet.model.prices import billing_of
from fleet.model.values import Rate, Value, later, rate
from fleet.planner.forecast import ExpectedWaits, find_waits
from fleet.planner.images import describe_rebuild
from fleet.planner.inventory import heirs_of
from fleet.schema.findings import Path
from fleet.schema.model import Fleet, Pool, Promote, Recipe
from fleet.schema.units import CURRENCY_PATTERN, write_duration
from fleet.tagrules.vocabulary import Vocabulary
from fleet.words.lives import explain_moved, explain_new_machine, explain_worker


class ImageChange(Value):
    """An image that must be built, because the change adds the image or edits its recipe."""

    image: str
    change: Literal["added", "recipe changed"]
    build: str = Field(
        description="Duration, place and cost of the last build, as far as they are known."
    )
    promotion: str = Field(description="How the new version reaches machines.")
    replaces: tuple[Replaced, ...] = Field((), description="Machines that it then replaces.")


def find_image_changes(
    base: Fleet, head: Fleet, world: World, plan: Plan
) -> tuple[ImageChange, ...]:
    """Return the images that must be built because of the change. `plan` includes the change."""
    before = {name: recipe_digest(recipe) for name, recipe in base.baked.items()}
    users = [
        (pool.image, pace_of(pool).replaced(row.pool, row.machines))
        for row in plan.pools
        if isinstance(pool := head.pools.get(row.pool), Pool) and row.machines
    ]
    return tuple(
        ImageChange(
            image=name,
            change="recipe changed" if name in before else "added",
            build=describe_rebuild(head, world.versions, name),
            promotion=_promotion(name, recipe),
            replaces=tuple(replaced for image, replaced in users if image == name),
        )
        for name, recipe in sorted(head.baked.items())
        if before.get(name) != recipe_digest(recipe)
    )


def _promotion(name: str, recipe: Recipe) -> str:
    rule = recipe.promotion
    if recipe.version is not None:
        return f"no machine boots it: images.{name}.version pins {recipe.version}"
    if isinstance(rule, Promote):
        after = write_duration(rule.after)
        return f"first on {rule.candidate}% of each pool's workers, after {after} everywhere"
    return "at once" if rule == "tested" else f"by hand: fleet image promote {name}"


Result = Literal["passed", "throttled", "refused"]
"""The result of a guard for the planned actions."""


class PoolValueChange(ChangedEntries):
    """A value of a pool before and after the change."""

    key: str
    before: str
    after: str


class PoolChange(Value):
    """A pool that the change adds, removes or edits, even if no machine changes in this run."""

    pool: str
    change: Literal["added", "removed", "changed"]
    differences: tuple[PoolValueChange, ...] = ()


class ActionsChange(Value):
    """Equal planned actions whose number differs between the two plans, with both numbers."""

    pool: str
    action: Literal["create", "drain", "delete"]
    reason: Reason
    withheld: bool = Field(description="A guard withholds them in this run.")
    type: str | None = Field(None, description="Machine type of creations.")
    image: str | None = Field(None, description="Image of creations.")
    settings: dict[str, str] = Field(default_factory=dict)
    before: int = Field(description="Number without the change.")
    after: int = Field(description="Number with the change.")
    cost: Rate = Field(description="Money per hour that the difference adds in this run.")
    workers: tuple[str, ...] = Field(
        (), description="Drains and deletions: the workers that only one of both plans names."
    )
    because: str


class OutdatedChange(Value):
    """Machines of a pool that only one of the plans counts as outdated and replaces."""

    pool: str
    outdated: bool = Field(description="Outdated with the change, else without.")
    workers: tuple[str, ...]


class RequestsChange(Value):
    """Requests with equal requirements that gain or lose a worker because of the change."""

    served: bool = Field(description="Served only with the change, else only without.")
    queue: str
    required: tuple[str, ...] = ()
    requests: tuple[str, ...] = Field(description="Their ids, in the order they are served.")
    because: str
    path: tuple[str | int, ...] = Field((), description="The key of fleet.yaml that decides.")


class GuardChange(Value):
    """A guard that has different results in the plans without and with the change."""

    guard: str
    pool: str | None = Field(None, description="Counted pool; None: the whole fleet.")
    before: Result
    after: Result
    because: str
    path: tuple[str | int, ...] = ()
    way_out: str = ""


class Rest(Value):
    """The cost of a fleet in its steady state: no pending replacements, no waiting requests."""

    hour: Rate = Field(description="Money per hour.")
    month: Rate = Field(description="Money per month, of at most 730 billed hours.")


class Verdict(Value):
    """The effect of a change in this run, in figures. A figure is None if unknown."""

    create: int = Field(description="Additional created machines; negative: fewer.")
    drain: int = Field(description="Additional drains; negative: fewer.")
    delete: int = Field(description="Additional deletions; negative: fewer.")
    withheld: int = Field(0, description="Such actions that guards withhold, not counted above.")
    gained: int = Field(description="Requests that have a worker only with the change.")
    lost: int = Field(description="Requests that have a worker only without the change.")
    cost_known: bool = Field(True, description="False: the cost per hour of a plan is unknown.")
    builds: MovedBuilds = Field(
        MovedBuilds(), description="The waiting builds that the change moves to other places."
    )
    machines_known: bool = Field(
        True, description="False: machines of a pool are unknown, and that pool is not counted."
    )
    requests_known: bool = Field(
        True, description="False: a queue could not be read, and its requests are not counted."
    )
    waits_before: ExpectedWaits = Field(description="Expected waits without the change.")
    waits_after: ExpectedWaits = Field(description="Value with the change.")


class Changes(Value):
    """The differences that a change of fleet.yaml makes to the plan for the latest observation."""

    base: str = Field(description="SHA-256 of the compared fleet.yaml.")
    same_config: bool = Field(description="Both fleet.yaml are equal except for comments.")
    verdict: Verdict | None = Field(None, description="Its effect in this run, in figures.")
    sensitive: tuple[SensitiveEdit, ...] = Field(
        (), description="Edits that need the approver's attention."
    )
    allow_list: tuple[RuleReach, ...] = Field(
        (), description="Matches of each rule of `powerful` that it adds or changes."
    )
    builds: tuple[ComparedBuild, ...] = Field(
        (), description="Waiting builds with their places, moved builds first."
    )
    stopped: tuple[StoppedBuilds, ...] = later(
        (), "Waiting builds that get no machine because of the change, by cause."
    )
    pools: tuple[PoolChange, ...] = ()
    actions: tuple[ActionsChange, ...] = ()
    outdated: tuple[OutdatedChange, ...] = ()
    requests: tuple[RequestsChange, ...] = ()
    guards: tuple[GuardChange, ...] = ()
    config: tuple[ConfigChange, ...] = Field(
        (), description="Other keys of fleet.yaml that differ."
    )
    images: tuple[ImageChange, ...] = Field((), description="Images that become due.")
    attention: tuple[str, ...] = Field((), description="New problems that an operator must fix.")
    unknown: tuple[str, ...] = Field(
        (), description="Parts that could not be compared, with the reason."
    )
    cost_before: Rate = Field(description="Money per hour after a run without the change.")
    currency_before: str = Field(pattern=CURRENCY_PATTERN)
    cost_after: Rate = Field(description="Money per hour after a run with it.")
    currency: str = Field(pattern=CURRENCY_PATTERN)
    rest_before: Rest | None = Field(
        None, description="Cost at rest without the change; None: unknown."
    )
    rest_after: Rest | None = Field(None, description="Value with the change.")

    @property
    def is_quiet(self) -> bool:
        """Return whether the change affects no machine, cost, request or guard in this run."""
        money = (self.cost_before, self.currency_before) != (self.cost_after, self.currency)
        machines = self.actions or self.outdated
        return not (money or machines or self.requests or self.guards or self.attention)


Comparison = Changes | Unknown
"""The effect of a change, or the reason why the effect is unknown."""


class ComparedPlan(Plan):
    """A plan with reasons and costs and, with `--base`, the effect of the change."""

    change: Comparison | None = Field(
        None,
        description="Effect of the change, or the reason why it is unknown; only with --base.",
    )
    cadence: int | None = later(
        None, "With --base and --world: seconds between two runs of `fleet apply`.", ge=1
    )


def find_renames(base: Fleet, head: Fleet) -> dict[str, str]:
    """Map the old name of each renamed pool to the new name."""
    return {
        old: new
        for old, new in heirs_of(head).items()
        if isinstance(base.pools.get(old), Pool) and new not in base.pools
    }


def rename_pools(base: Fleet, renames: Mapping[str, str]) -> Fleet:
    """Return a copy of the fleet in which pools have their new names (old name to new name)."""
    pools = {
        renames.get(name, name): pool.model_copy(update={"previously": name})
        if name in renames
        else pool
        for name, pool in base.pools.items()
    }
    approvals = [
        each.model_copy(update={"pool": renames.get(each.pool, each.pool)})
        for each in base.approvals
    ]
    return base.model_copy(update={"pools": pools, "approvals": approvals})


HOURS_PER_MONTH = Decimal(730)


def find_rest(fleet: Fleet, plan: Plan) -> Rest | None:
    """Return the cost of a fleet in its steady state; None if a price is unknown."""
    hour = month = Decimal(0)
    for verdict in plan.pools:
        pool = fleet.pools.get(verdict.pool)
        machines = _count_at_rest(fleet, pool, verdict) if isinstance(pool, Pool) else 0
        if machines and {"price", "machines"} & set(verdict.not_known):
            return None
        most = billing_of(fleet, verdict.provider or "").month
        hours = HOURS_PER_MONTH if most is None else min(HOURS_PER_MONTH, Decimal(most))
        hour += machines * verdict.price
        month += machines * verdict.price * hours
    return Rest(hour=hour, month=month)


def _count_at_rest(fleet: Fleet, pool: Pool, verdict: PoolVerdict) -> int:
    """Return the number of machines of a pool in the steady state."""
    if pool.mode == "drain" or any(map(Vocabulary(fleet).is_on_demand, verdict.provides)):
        return 0
    if pool.mode != "apply":
        return verdict.machines  # fleet does not change a pool in this mode
    size = size_of(pool)
    return min(size.max, max(size.min, verdict.busy + size.spare))


def find_verdict(
    change: Changes,
    world: World,
    base: tuple[Fleet, Plan],
    head: tuple[Fleet, Plan],
    builds: MovedBuilds,
) -> Verdict:
    """Return the effect of a change in figures. `base`, `head`: (fleet, plan) before and after."""
    counts = Counter(dict.fromkeys((*_ACTIONS, "withheld", "gained", "lost"), 0))
    for each in change.actions:
        counts["withheld" if each.withheld else each.action] += each.after - each.before
    for group in change.requests:
        counts["gained" if group.served else "lost"] += len(group.requests)
    plans, stacks = (base[1], head[1]), world.stacks
    unread = isinstance(stacks, Unknown) or Unknown in map(type, stacks.values())
    return Verdict(
        **counts,
        cost_known=all(plan.is_cost_known for plan in plans),
        builds=builds,
        machines_known=not unread
        and not any("machines" in pool.not_known for plan in plans for pool in plan.pools),
        requests_known=not any(plan.unread for plan in plans),
        waits_before=find_waits(base[0], world, base[1]),
        waits_after=find_waits(head[0], world, head[1]),
    )


def compare(
    base: Plan,
    head: Plan,
    *,
    unseen: tuple[str, ...] = (),
    config: tuple[ConfigChange, ...] = (),
    renames: Mapping[str, str] = MappingProxyType({}),
) -> Changes:
    """Return the differences between the plans without (`base`) and with (`head`) a change.

    `unseen` has a message per unread source of the base (`find_unseen`). `config` has the edited
    keys (`find_config_changes`). `renames` maps old to new pool names; both plans use the new
    names (`rename_pools`).
    """
    return Changes(
        base=base.digests.config,
        same_config=base.digests.config == head.digests.config,
        pools=tuple(_pools(base, head, {new: old for old, new in renames.items()})),
        actions=tuple(_actions(base, head)),
        outdated=tuple(_compare_outdated(base, head)),
        requests=tuple(_requests(base, head)),
        guards=tuple(_guards(base, head)),
        config=config,
        attention=tuple(text for text in head.attention if text not in base.attention),
        unknown=(*unseen, *_compare_unknown(base, head)),
        cost_before=base.cost_after,
        currency_before=base.currency,
        cost_after=head.cost_after,
        currency=head.currency,
    )


def find_unseen(base: Fleet, head: Fleet, world: World) -> tuple[str, ...]:
    """Return a message for each queue or provider of only the base that was not observed."""
    return tuple(
        f"{kind} {name} is only in the base and was not read"
        for kind, named, other, seen in (
            ("queue", base.queues, head.queues, world.queues),
            ("provider", base.providers, head.providers, world.providers),
        )
        for name in sorted(named)
        if name not in other and name not in seen
    )


def _pools(base: Plan, head: Plan, called: Mapping[str, str]) -> Iterator[PoolChange]:
    """Yield the differences of pools. `called` maps new to old names."""
    before, after = (
        {p.pool: p for p in plan.pools if p.mode != "removed"} for plan in (base, head)
    )
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield PoolChange(pool=name, change="added" if new else "removed")
            continue
        values = [("name", called.get(name, name), name)]
        for key, write in _COMPARED.items():
            both = [getattr(each, key) for each in (old, new)]
            was, now = ("none" if each in (None, "", ()) else write(each) for each in both)
            values.append((key, was, now))
        entries = {"provides": compare_entries(old.provides, new.provides)}
        found = [
            PoolValueChange(key=key, before=was, after=now, **entries.get(key, {}))
            for key, was, now in values
            if was != now
        ]
        if found:
            yield PoolChange(pool=name, change="changed", differences=tuple(found))


_COMPARED: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(("max", "mode", "provider", "type", "image"), str),
    "price": rate,
    "provides": ", ".join,
}
"""The compared figures of a pool, with the functions that write them."""
_ACTIONS = ("create", "drain", "delete")
_KIND = ("pool", "action", "withheld", "reason", "type", "image", "settings")
"""Fields of `ActionsChange` that are the same for actions that count as equal."""


def _actions(base: Plan, head: Plan) -> Iterator[ActionsChange]:
    before, after = _group_by_kind(base), _group_by_kind(head)
    places = _places(base), _places(head)
    for kind in sorted(before.keys() | after.keys(), key=_order):
        old, new = before.get(kind, []), after.get(kind, [])
        if len(old) == len(new):
            continue
        only = _find_unmatched(new, old) if len(new) > len(old) else _find_unmatched(old, new)
        fields = dict(zip(_KIND, kind, strict=True))
        yield ActionsChange.model_validate(
            fields
            | {
                "settings": dict(fields["settings"]),
                "before": len(old),
                "after": len(new),
                "cost": 0 if fields["withheld"] else _cost(new) - _cost(old),
                "workers": () if fields["action"] == "create" else [a.worker for a in only],
                "because": _explain_moved(only, *places) or only[0].because,
            }
        )


def _order(kind: tuple[Any, ...]) -> tuple[object, ...]:
    pool, action, *others = kind
    return (pool, _ACTIONS.index(action), *((part is not None, part) for part in others))


def _group_by_kind(plan: Plan) -> Mapping[tuple[Any, ...], list[Action]]:
    found: defaultdict[tuple[Any, ...], list[Action]] = defaultdict(list)
    for withheld, actions in ((False, plan.actions), (True, plan.withheld)):
        for action in actions:
            made: tuple[Any, ...] = (None, None, ())
            if isinstance(action, Create):
                inputs = action.inputs
                made = (inputs.type, inputs.image, tuple(sorted(inputs.settings.items())))
            found[action.pool, action.action, withheld, action.reason, *made].append(action)
    return found


def _find_unmatched(more: list[Action], fewer: list[Action]) -> list[Action]:
    """Return the surplus actions in `more`, if possible those on workers that `fewer` lacks."""
    names = {action.worker for action in fewer}
    others = [action for action in more if action.worker not in names]
    return others[len(fewer) - len(more) :]


def _cost(actions: list[Action]) -> Decimal:
    created = sum((each.cost for each in actions if isinstance(each, Create)), Decimal(0))
    return created - sum(each.saves for each in actions if isinstance(each, Delete))


def _explain_moved(
    actions: list[Action], before: Mapping[str, "_Place"], after: Mapping[str, "_Place"]
) -> str:
    """Return which requests leave unneeded machines for other pools; empty if none does."""
    gone = {(a.pool, a.worker) for a in actions if a.reason is Reason.NOT_WANTED}
    moved = {
        key: after[key].pool
        for key, place in before.items()
        if (place.pool, place.worker) in gone and key in after and after[key].pool != place.pool
    }
    return explain_moved([*moved], dict.fromkeys(moved.values())) if moved else ""


def _compare_outdated(base: Plan, head: Plan) -> Iterator[OutdatedChange]:
    before, after = ({(w.pool, w.worker) for w in p.workers if w.outdated} for p in (base, head))
    for outdated, found in ((True, after - before), (False, before - after)):
        for pool, workers in groupby(sorted(found), key=itemgetter(0)):
            names = tuple(name for _, name in workers)
            yield OutdatedChange(pool=pool, outdated=outdated, workers=names)


def _requests(base: Plan, head: Plan) -> Iterator[RequestsChange]:
    """Yield the requests that gain or lose a worker. Equal requests are interchangeable."""
    before, after = _places(base), _places(head)
    known = {key for signature in base.signatures for key in signature.requests}
    unserved = {key: (each.because, each.path) for each in head.unserved for key in each.requests}
    for signature in head.signatures:
        keys = [key for key in signature.requests if key in known]
        gained = [key for key in keys if key in after and key not in before]
        lost = [key for key in keys if key in before and key not in after]
        more = len(gained) - len(lost)
        changed = gained if more > 0 else lost
        groups: defaultdict[tuple[str, Path], list[str]] = defaultdict(list)
        for key in changed[len(changed) - abs(more) :]:
            place = after.get(key)
            gain = place.explain(place.pool) if place else ""
            groups[(gain, ()) if more > 0 else unserved.get(key, ("", ()))].append(key)
        for (because, path), names in groups.items():
            yield RequestsChange(
                served=more > 0,
                queue=signature.queue,
                required=signature.required,
                requests=tuple(names),
                because=because,
                path=path,
            )


class _Place(NamedTuple):
    """The worker that has or will get a request, and the sentence that says so of a pool."""

    pool: str
    worker: str
    explain: Callable[[str], str]


def _places(plan: Plan) -> dict[str, _Place]:
    """Map each request that has or will get a worker to this worker."""
    pools = {each.worker: each.pool for each in (*plan.actions, *plan.workers)}
    return {
        key: _Place(pools.get(worker, ""), worker, explain)
        for each in plan.signatures
        for by, explain in (
            (each.by_worker, explain_worker),
            (each.by_create, explain_new_machine),
        )
        for key, worker in by.items()
    }


def _guards(base: Plan, head: Plan) -> Iterator[GuardChange]:
    before, after = ({(g.guard, g.pool, g.path): g for g in p.guards} for p in (base, head))
    for key in before | after:
        old, new = before.get(key), after.get(key)
        was: Result = old.result if old else "passed"
        now: Result = new.result if new else "passed"
        is_more = old and new and new.withheld > old.withheld and now == "refused"
        speaks = new or old
        if speaks and (was != now or is_more):
            yield GuardChange(
                guard=speaks.guard,
                pool=speaks.pool,
                before=was,
                after=now,
                because=speaks.because,
                path=speaks.path,
                way_out=new.way_out if new else "",
            )


def _compare_unknown(base: Plan, head: Plan) -> Iterator[str]:
    for plan, other, when in ((head, base, "with"), (base, head, "without")):
        missing = Counter(plan.unknown) - Counter(other.unknown)
        yield from (f"only {when} the change: {text}" for text in missing)
