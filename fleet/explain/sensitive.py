"""Find the edits of fleet.yaml that the approver of a change has to see.

A table states the edits of a key that loosen a restriction. Machines are counted in the plan
without the change, builds in the recorded observations.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

from pydantic import Field

from fleet.explain.config_changes import ChangedEntries, Edited, Edits, differing
from fleet.explain.edits import value_at, write_value
from fleet.explain.reach import RuleReach
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


class Looser(NamedTuple):
    """The edits of a key that are sensitive, and the kind of these edits."""

    kind: Kind
    when: Literal["higher", "lower", "gone", "set", "any"]
    """`higher`: raised, or the limit removed. `gone`: removed. `any`: every edit."""
    value: object = None
    """The new value that loosens the restriction if `when` is `set`; None for any value."""


_ANY = "*"
_NAMED = ("budgets", "images", "pools", "providers", "queues", "tags")
"""Sections of fleet.yaml whose keys are names, such as the name of a pool."""
_HIGHER = Looser("guard-loosened", "higher")
_LOWER = Looser("guard-loosened", "lower")
_RAISED = Looser("limit-raised", "higher")
_OPENED = Looser("access-widened", "any")
_SENT = Looser("secret-source-changed", "any")

GUARDS: dict[tuple[str, ...], Looser] = {
    ("refuse", "delete", "share"): _HIGHER,
    ("refuse", "delete", "count"): _HIGHER,
    ("refuse", "cost_increase"): _HIGHER,
    ("throttle", "delete", "count"): _HIGHER,
    ("throttle", "create", "share"): _HIGHER,
    ("throttle", "create", "free_below"): _HIGHER,
    ("throttle", "create", "count"): _HIGHER,
    ("boot_failures", "stop_after"): _HIGHER,
    ("boot_failures", "of_last"): _LOWER,
    ("boot_failures", "fall_back"): Looser("guard-loosened", "set", "previous-image"),
    ("demand_max_age",): _HIGHER,
}
"""Path of a key of `guards` to the edits that loosen the guard."""

BUDGET: dict[str, Looser] = {
    **dict.fromkeys(("per_hour", "per_day", "per_month"), _RAISED),
    **{f"machine_hours_per_{each}": _RAISED for each in ("hour", "day", "month")},
    **dict.fromkeys(("scope", "team", "owner", "tags"), Looser("limit-raised", "any")),
}
"""Key of a budget to the edits that loosen the budget."""

LIMITS: dict[tuple[str, ...], Looser] = {
    ("total",): _RAISED,
    **{("per", each): _RAISED for each in ("submitter", "owner", "scope", "team", "sandbox")},
}
"""Path of a key of `limits` to the edits that loosen the limit."""

ADDRESSES: tuple[tuple[str, ...], ...] = (
    ("queues", _ANY, "url"),
    ("state", "backend"),
    ("state", "store"),
    ("notify", "webhook", "url"),
)
"""Keys with the address of a server to which fleet sends a secret."""

_TABLE: dict[tuple[str, ...], Looser] = {
    **{("guards", *key): looser for key, looser in GUARDS.items()},
    **{("budgets", _ANY, key): looser for key, looser in BUDGET.items()},
    ("budgets", _ANY): Looser("limit-raised", "gone"),
    **{("pools", _ANY, "budget", key): _RAISED for key in ("per_hour", "per_day", "per_month")},
    ("pools", _ANY, "budget"): Looser("limit-raised", "gone"),
    ("pools", _ANY, "workers", "max"): _RAISED,
    ("pools", _ANY, "workers", "max_starting"): _RAISED,
    **{("tags", _ANY, "limits", *key): looser for key, looser in LIMITS.items()},
    **{("queues", _ANY, "limits", *key): looser for key, looser in LIMITS.items()},
    **{
        ("queues", _ANY, f"most_open{each}"): _RAISED
        for each in ("", "_per_submitter", "_per_address")
    },
    ("queues", _ANY, "builds_named_by"): Looser("asked-by-widened", "any"),
    ("queues", _ANY, "blocked"): Looser("limit-raised", "any"),
    ("teams",): Looser("limit-raised", "any"),
    ("members",): Looser("asked-by-widened", "any"),
    ("members", "file"): Looser("asked-by-widened", "any"),
    **{("providers", _ANY, key): _OPENED for key in ("firewall", "ssh_keys", "ssh_from")},
    ("providers", _ANY, "key_pair"): _OPENED,
    ("providers", _ANY, "environment"): _SENT,
    **dict.fromkeys(ADDRESSES, _SENT),
    ("notify", "webhook"): Looser("secret-source-changed", "set"),
    ("notify", "environment"): _SENT,
    ("images", _ANY, "version"): Looser("image-pinned", "set"),
}


def find_sensitive(
    edits: Edits, reach: Iterable[RuleReach], base: Plan
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


def _find_sensitive_edits(edits: Edits, edited: Edited, base: Plan) -> Iterator[SensitiveEdit]:
    path, before, after = edited
    if path[0] == "tags" and path[1:]:
        yield from _loosened_tag(edits, str(path[1]), base)
        # A missing tag equals a tag with an empty rule.
        if len(path) == 2:  # noqa: PLR2004 - `tags`, and its name
            before, after = before or TagRule.model_construct(), after or TagRule.model_construct()
            for each in differing(path, before, after):
                yield from _edit_in_table(edits, each)
            return
    if path[0] == "approvals" and isinstance(after, Approval):
        yield _sensitive(edits, edited, "approval-added")
    if before is None and isinstance(after, ConfigSection):
        for key in type(after).model_fields:
            value = getattr(after, key)
            looser = _TABLE.get(_pattern((*path, key)))
            if looser and looser.when == "set" and _is_looser(looser, None, value):
                yield _sensitive(edits, Edited((*path, key), None, value), looser.kind)
    yield from _edit_in_table(edits, edited)


def _edit_in_table(edits: Edits, edited: Edited) -> Iterator[SensitiveEdit]:
    """Yield the edit if the table lists its key, or a section with its key, as sensitive."""
    path, before, after = edited
    for length in range(len(path), 0, -1):
        looser = _TABLE.get(_pattern(path[:length]))
        if looser is not None:
            is_sent = _pattern(path) in ADDRESSES and path[0] == "queues"
            is_whole = length == len(path)
            if is_sent and not _has_secret(edits.head, path[:2]):
                return
            if _is_looser(looser, before, after) if is_whole else looser.when == "any":
                is_max = is_whole and _pattern(path) == ("pools", _ANY, "workers", "max")
                figures = _find_permitted(edits.head, edited) if is_max else {}
                yield _sensitive(edits, edited, looser.kind, **figures)
            return


def _find_permitted(fleet: Fleet, edited: Edited) -> dict[str, Any]:
    """Return the cost of the machines that a higher `workers.max` permits, and its bounds."""
    name = str(edited.path[1])
    pool = fleet.dynamic_pools[name]
    sold = ((kind, market) for kind in find_types(fleet, pool) for market in markets_of(pool))
    prices = [price for each in sold if (price := price_per_hour(fleet, *each)) is not None]
    bounds = {yaml_key(p): write_value(fleet, p, value_at(fleet, p)) for p in _bounds(fleet, name)}
    if not prices:
        return {"bounds": bounds}
    return {"cost": (edited.after - edited.before) * max(prices), "bounds": bounds}


def _bounds(fleet: Fleet, pool: str) -> Iterator[Path]:
    """Yield the keys of budgets and limits that count all machines of a pool."""
    tags = offer_of_pool(fleet, pool, ()).exclusive
    for limit in spending_limits(fleet):
        if limit.counts_pool(pool, tags):
            yield limit.path
    for name in dict.fromkeys(n for tag in sorted(tags) for n in Vocabulary(fleet).names_of(tag)):
        for of in limits_of(fleet.tags[name]):
            yield ("tags", name, "limits", *of.split())


def _pattern(path: Path) -> tuple[str, ...]:
    section, *inner = map(str, path)
    return (section, _ANY, *inner[1:]) if inner and section in _NAMED else (section, *inner)


def _is_looser(looser: Looser, before: Any, after: Any) -> bool:  # noqa: ANN401 - any value of fleet.yaml
    match looser.when:
        case "higher" if isinstance(before, Money) and isinstance(after, Money):
            return after.currency != before.currency or after.amount > before.amount
        case "higher":
            return before is not None and (after is None or after > before)
        case "lower":
            return bool(after < before)
        case "gone":
            return after is None
        case "set":
            return after is not None and looser.value in (None, after)
        case "any":
            return True


def _sensitive(edits: Edits, edited: Edited, kind: Kind, **figures: Any) -> SensitiveEdit:  # noqa: ANN401 - of the value
    before, after = edits.write(edited)
    figures |= edits.entries(edited)
    return SensitiveEdit(kind=kind, path=edited.path, before=before, after=after, **figures)


def _loosened_tag(edits: Edits, name: str, plan: Plan) -> Iterator[SensitiveEdit]:
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


def _secrets_and_commands(edits: Edits) -> Iterator[SensitiveEdit]:
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


def _has_secret(fleet: Fleet, section: Path) -> bool:
    found = programs_and_secrets(fleet)
    return any(
        path[: len(section)] == section for path, each in found if isinstance(each, ConfigSection)
    )


def _patterns(edits: Edits, reach: Iterable[RuleReach]) -> Iterator[SensitiveEdit]:
    """Yield rules that match additional builds, or may match some if no build is recorded."""
    for each in reach:
        if each.added or each.is_wider or not each.of:
            path, before, after = (*each.path, "match"), each.before, each.match
            if before and (before == after or each.task != each.task_before):
                path, (before, after) = each.path, edits.write(_rule(edits, each))
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


def _rule(edits: Edits, reach: RuleReach) -> Edited:
    """Return the edit of a changed rule, from the replaced rule to the new rule."""
    about = (reach.before, reach.task_before)
    old = next(rule for rule in edits.base.powerful if (rule.match, rule.task or "") == about)
    return Edited(reach.path, old, edits.head.powerful[int(reach.path[1])])


def _pools(edits: Edits, base: Plan) -> Iterator[SensitiveEdit]:
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
