"""Find the edits of fleet.yaml that the approver of a change has to see.

A table states the edits of a key that loosen a restriction. Machines are counted in the plan
without the change, builds in the recorded observations.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

from pydantic import Field

from fleet.explain.builds import RuleReach
from fleet.explain.edits import (
    ChangedEntries,
    Edited,
    FleetEdits,
    differing,
    value_at,
    write_value,
)
from fleet.model.plan import Plan
from fleet.model.prices import find_types, markets_of, price_per_hour
from fleet.model.values import Rate, later
from fleet.planner.budgets import spending_limits
from fleet.schema.findings import Path, yaml_key
from fleet.schema.model import (
    Approval,
    Asker,
    Askers,
    Fleet,
    Money,
    Pool,
    TagRule,
    programs_and_secrets,
)
from fleet.schema.units import ConfigSection
from fleet.tagrules.offers import offer_of_pool
from fleet.tagrules.sources import limits_of
from fleet.tagrules.vocabulary import Vocabulary

Kind = Literal[
    "secret-source-changed",
    "command-changed",
    "pattern-matches-more",
    "asked-by-widened",
    "exclusive-removed",
    "pool-removed",
    "guard-loosened",
    "approval-added",
    "limit-raised",
    "access-widened",
    "image-pinned",
]
"""Kinds of sensitive edits, the most serious kind first."""
_ORDER: tuple[Kind, ...] = get_args(Kind)


class SensitiveEdit(ChangedEntries):
    """An edit that the approver of the change has to see."""

    kind: Kind
    path: tuple[str | int, ...]
    place: str = Field("", description="Position, as FILE:LINE:COLUMN.")
    before: str = Field(description="Value before, as written in fleet.yaml; empty: absent.")
    after: str = Field(description="Value after, as written in fleet.yaml; empty: removed.")
    count: int | None = Field(
        None,
        description="Machines of a removed pool, or recorded builds that newly match a pattern; "
        "None: not known, or nothing to count.",
    )
    busy: int | None = Field(None, description="Number of busy machines among them.")
    examples: tuple[str, ...] = Field(
        (), description="Names of some of these machines or builds; of a tag, its pools."
    )
    packages: dict[str, int] = later(
        {}, "Package to such builds, the most first; `*` in a name: several."
    )
    nameless: str = later("", "Why no recorded build has a name.")
    cost: Rate | None = later(
        None, "Cost per hour of the additional machines that a higher `workers.max` permits."
    )
    bounds: dict[str, str] = later(
        {}, "Keys of budgets, and of limits of exclusive tags, that bound this cost, to values."
    )


_ANY = "*"
_NAMED = ("budgets", "images", "pools", "providers", "queues", "tags")
"""Sections of fleet.yaml whose keys are names, such as the name of a pool."""

_KEYS: dict[tuple[Kind, str], str] = {
    ("guard-loosened", "higher"): """
        guards.refuse.delete.share guards.refuse.delete.count guards.refuse.cost_increase
        guards.throttle.delete.count guards.throttle.create.share guards.throttle.create.count
        guards.throttle.create.free_below guards.boot_failures.stop_after guards.demand_max_age
    """,
    ("guard-loosened", "lower"): "guards.boot_failures.of_last",
    ("guard-loosened", "previous-image"): "guards.boot_failures.fall_back",
    ("limit-raised", "higher"): """
        budgets.*.per_hour budgets.*.machine_hours_per_hour pools.*.budget.per_hour
        budgets.*.per_day budgets.*.machine_hours_per_day pools.*.budget.per_day
        budgets.*.per_month budgets.*.machine_hours_per_month pools.*.budget.per_month
        pools.*.workers.max pools.*.workers.max_starting
        tags.*.limits.total tags.*.limits.per.submitter tags.*.limits.per.owner
        tags.*.limits.per.scope tags.*.limits.per.team tags.*.limits.per.sandbox
        queues.*.limits.total queues.*.limits.per.submitter queues.*.limits.per.owner
        queues.*.limits.per.scope queues.*.limits.per.team queues.*.limits.per.sandbox
        queues.*.most_open queues.*.most_open_per_submitter queues.*.most_open_per_address
    """,
    ("limit-raised", "gone"): "budgets.* pools.*.budget",
    ("limit-raised", "any"): """
        budgets.*.scope budgets.*.team budgets.*.owner budgets.*.tags queues.*.blocked teams
    """,
    ("asked-by-widened", "any"): "queues.*.builds_named_by members members.file",
    ("access-widened", "any"): """
        providers.*.firewall providers.*.ssh_keys providers.*.ssh_from providers.*.key_pair
    """,
    ("secret-source-changed", "any"): """
        queues.*.url state.backend state.store notify.webhook.url
        providers.*.environment notify.environment
    """,
    ("secret-source-changed", "set"): "notify.webhook",
    ("image-pinned", "set"): "images.*.version",
}
"""(Kind, edit that loosens the restriction) to keys. Edits: `higher` includes a removed limit,
`gone` is a removed key, `any` every edit, and any other text the new value."""
_BY_VALUE = ("set", "previous-image")
"""Edits that are sensitive even in a section that the change adds."""

TABLE: dict[tuple[str, ...], tuple[Kind, str]] = {
    tuple(key.split(".")): looser for looser, keys in _KEYS.items() for key in keys.split()
}
"""Pattern of a path to the kind of its sensitive edits, and the edits that are."""


def find_sensitive(
    edits: FleetEdits, reach: Iterable[RuleReach], base: Plan
) -> tuple[SensitiveEdit, ...]:
    """Return the sensitive edits, most serious kind first. `base` is the plan without edits."""
    found = [
        *_secrets_and_commands(edits),
        *_patterns(edits, reach),
        *_pools(edits, base),
        *(each for edited in edits.found for each in _find_sensitive_edits(edits, edited, base)),
    ]
    unique = {(each.kind, each.path): each for each in reversed(found)}
    return tuple(sorted(unique.values(), key=lambda e: (_ORDER.index(e.kind), str(e.path))))


def _find_sensitive_edits(
    edits: FleetEdits, edited: Edited, base: Plan
) -> Iterator[SensitiveEdit]:
    path, before, after = edited
    keys: Iterable[Edited] = [edited]
    if path[0] == "tags" and path[1:]:
        yield from _loosened_tag(edits, str(path[1]), base)
        if not path[2:]:  # a missing tag equals a tag with an empty rule
            none = TagRule.model_construct()
            keys = differing(path, before or none, after or none)
    elif path[0] == "approvals" and isinstance(after, Approval):
        yield _sensitive(edits, edited, "approval-added")
    elif before is None and isinstance(after, ConfigSection):
        added = (Edited((*path, key), None, value) for key, value in after)
        by_value = (e for e in added if TABLE.get(_pattern(e.path), ("", ""))[1] in _BY_VALUE)
        keys = (edited, *by_value)
    for each in keys:
        kind = _find_kind(edits, each)
        if kind:
            is_max = _pattern(each.path) == ("pools", _ANY, "workers", "max")
            figures = _find_permitted(edits.head, each) if is_max else {}
            yield _sensitive(edits, each, kind, **figures)


def _find_kind(edits: FleetEdits, edited: Edited) -> Kind | None:
    """Return the kind of an edit if the table has its key, or a section with its key."""
    path, before, after = edited
    pattern = _pattern(path)
    found = programs_and_secrets(edits.head) if pattern == ("queues", _ANY, "url") else ()
    secrets = [at[:2] for at, each in found if isinstance(each, ConfigSection)]
    if found and path[:2] not in secrets:
        return None
    for length in range(len(path), 0, -1):
        if pattern[:length] in TABLE:
            kind, when = TABLE[pattern[:length]]
            is_whole = length == len(path)
            is_looser = when == "any" or (is_whole and _is_looser(when, before, after))
            return kind if is_looser else None
    return None


def _find_permitted(fleet: Fleet, edited: Edited) -> dict[str, Any]:
    """Return the cost of the machines that a higher `workers.max` permits, and its bounds."""
    name = str(edited.path[1])
    pool = fleet.dynamic_pools[name]
    sold = ((kind, market) for kind in find_types(fleet, pool) for market in markets_of(pool))
    prices = [price for each in sold if (price := price_per_hour(fleet, *each)) is not None]
    # The keys of budgets and limits that count all machines of the pool
    tags, vocabulary = offer_of_pool(fleet, name, ()).exclusive, Vocabulary(fleet)
    paths: list[Path] = [e.path for e in spending_limits(fleet) if e.counts_pool(name, tags)]
    limited = dict.fromkeys(n for tag in sorted(tags) for n in vocabulary.names_of(tag))
    paths += [
        ("tags", n, "limits", *of.split()) for n in limited for of in limits_of(fleet.tags[n])
    ]
    bounds = {yaml_key(path): write_value(fleet, path, value_at(fleet, path)) for path in paths}
    if not prices:
        return {"bounds": bounds}
    return {"cost": (edited.after - edited.before) * max(prices), "bounds": bounds}


def _pattern(path: Path) -> tuple[str, ...]:
    section, *inner = map(str, path)
    return (section, _ANY, *inner[1:]) if inner and section in _NAMED else (section, *inner)


def _is_looser(when: str, before: Any, after: Any) -> bool:  # noqa: ANN401 - any value of fleet.yaml
    match when:
        case "higher" if isinstance(before, Money) and isinstance(after, Money):
            return after.currency != before.currency or after.amount > before.amount
        case "higher":
            return before is not None and (after is None or after > before)
        case "lower":
            return bool(after < before)
        case "gone" | "set":
            return (after is None) == (when == "gone")
    return bool(after == when)


def _sensitive(edits: FleetEdits, edited: Edited, kind: Kind, **figures: Any) -> SensitiveEdit:  # noqa: ANN401 - of the value
    before, after = edits.write(edited)
    figures |= edits.entries(edited)
    return SensitiveEdit(kind=kind, path=edited.path, before=before, after=after, **figures)


def _loosened_tag(edits: FleetEdits, name: str, plan: Plan) -> Iterator[SensitiveEdit]:
    """Yield the restrictions that a tag loses, by all entries of `tags` that match the tag."""
    base, head = Vocabulary(edits.base), Vocabulary(edits.head)
    pools = tuple(
        pool.pool
        for pool in plan.pools
        if any(name in {tag, *base.names_of(tag), *head.names_of(tag)} for tag in pool.provides)
    )
    if base.is_exclusive(name) and not head.is_exclusive(name):
        path = ("tags", name, "exclusive")
        yield _sensitive(
            edits, Edited(path, before=True, after=None), "exclusive-removed", examples=pools
        )
    (before, _), (after, _) = base.asked_by(name), head.asked_by(name)
    if before is not None and (after is None or _askers(after) - _askers(before)):
        edited = Edited(("tags", name, "asked_by"), list(before), after and list(after))
        yield _sensitive(edits, edited, "asked-by-widened", examples=pools)


def _askers(askers: Iterable[Asker]) -> set[tuple[str, str]]:
    return {
        (key, name)
        for asker in askers
        for key, names in (asker if isinstance(asker, Askers) else [("", [asker])])
        for name in names
    }


def _secrets_and_commands(edits: FleetEdits) -> Iterator[SensitiveEdit]:
    base = dict(programs_and_secrets(edits.base))
    secrets: list[Path] = []
    for path, value in programs_and_secrets(edits.head):
        before = base.get(path)
        if before == value or any(path[: len(each)] == each for each in secrets):
            continue
        edited = Edited(path, before, value)
        if isinstance(value, list):
            yield _sensitive(edits, edited, "command-changed")
        else:
            secrets.append(path)
            yield _sensitive(edits, edited, "secret-source-changed")


def _patterns(edits: FleetEdits, reach: Iterable[RuleReach]) -> Iterator[SensitiveEdit]:
    """Yield rules that match additional builds, or may match some if no build is recorded."""
    for each in reach:
        if each.added or each.is_wider or not each.of:
            path, before, after = (*each.path, "match"), each.before, each.match
            if before and (before == after or each.task != each.task_before):
                about = (each.before, each.task_before)
                rules = (r for r in edits.base.powerful if (r.match, r.task or "") == about)
                path, new = each.path, edits.head.powerful[int(each.path[1])]
                before, after = edits.write(Edited(path, next(rules), new))
            yield SensitiveEdit(
                kind="pattern-matches-more",
                path=path,
                before=before,
                after=after,
                count=each.added if each.of else None,
                examples=each.examples if each.added else (),
                packages=each.added_packages,
                nameless=each.nameless,
            )


def _pools(edits: FleetEdits, base: Plan) -> Iterator[SensitiveEdit]:
    """Yield the pools, with (possible) machines, that the change removes or drains."""
    for verdict in base.pools:
        path: Path = ("pools", verdict.pool)
        before, after = (fleet.pools.get(verdict.pool) for fleet in (edits.base, edits.head))
        edited = Edited(path, before, None)
        if isinstance(before, Pool) and isinstance(after, Pool):
            edited = Edited((*path, "mode"), before.mode, after.mode)
        is_gone = after is None or ("drain" == edited.after != edited.before)
        is_known = "machines" not in verdict.not_known
        count = verdict.machines
        if before is not None and is_gone and (count or not is_known):
            workers = [each for each in base.workers if each.pool == verdict.pool]
            workers.sort(key=lambda each: each.state != "busy")
            figures = {"count": count, "busy": verdict.busy} if is_known else {}
            examples = tuple(each.worker for each in workers)
            yield _sensitive(edits, edited, "pool-removed", examples=examples, **figures)
