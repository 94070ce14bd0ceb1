"""Who enforces tags, permissions, exclusivity and limits at each queue.

Fleet buys machines; the queue assigns work. `scheduler`: the queue assigns the work to no other
worker. `capacity`: fleet buys accordingly, but the queue assigns whatever fits first. `report`:
nothing enforces it; fleet only reports it.

Debusine 0.16.2 matches required with provided tags in both directions, and has no numbers,
exclusivity or limits. Only a tag that a worker requires of requests reserves it. The owner of a
workspace can make its requests require any tag, and provide any but those of SYSTEM_ONLY; who
asked is not visible. Fleet itself assigns the machines of tickets, Copr's included.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.schema.findings import Path
from fleet.schema.model import (
    AnyPool,
    Askers,
    CoprQueue,
    DebusineQueue,
    Fleet,
    Pool,
    TagRule,
    TicketQueue,
    WorldQueue,
    serves_queue,
)
from fleet.schema.rules import Asker
from fleet.tagrules.numbers import tag_name
from fleet.tagrules.sources import pool_sources

Enforcer = Literal["report", "capacity", "scheduler"]
Claim = Literal["tag", "asked_by", "exclusive", "limits"]

SYSTEM_ONLY = ("task:group:", "task:scope:", "task:source-package:", "task:workspace:")
"""Prefixes of the tags that only Debusine itself adds to what a request provides."""

_STRENGTH: tuple[Enforcer, ...] = ("report", "capacity", "scheduler")


@dataclass(frozen=True)
class Enforcement:
    """Who enforces one claim of fleet.yaml at one queue."""

    tag: str
    claim: Claim
    queue: str
    by: Enforcer
    because: str
    path: Path
    recorded: bool = False
    """The queue is a recording, which assigns no work."""


def enforcement_of(fleet: Fleet) -> tuple[Enforcement, ...]:
    """Return every tag, permission, exclusivity and limit, sorted, queue by queue."""
    providing = pools_providing(fleet)
    found = (
        each
        for tag in known_tags(fleet)
        for queue in sorted(fleet.queues)
        for each in _of_tag(fleet, tag, queue, providing[tag])
    )
    return tuple(found)


def known_tags(fleet: Fleet) -> tuple[str, ...]:
    """Return the tags that fleet.yaml declares, provides or asks for, sorted."""
    provided = (tag for pool in fleet.pools.values() for tag in pool.provides)
    asked = (tag for rule in fleet.powerful for tag in rule.ask)
    plain = (tag for tag in (*provided, *asked) if "=" not in tag)
    return tuple(sorted({*fleet.tags, *plain}))


def pools_providing(fleet: Fleet) -> dict[str, tuple[str, ...]]:
    """Return by known tag (`*` for any ending) the pools that provide it, as fleet.yaml says."""
    provided = {
        name: frozenset(each.tag for each in pool_sources(fleet, name, ()))
        for name in sorted(fleet.pools)
    }
    return {
        tag: tuple(name for name, tags in provided.items() if any(_is_of(tag, t) for t in tags))
        for tag in known_tags(fleet)
    }


def is_workspace_tag(tag: str) -> bool:
    """Say whether the owner of a Debusine workspace can have its requests provide a tag."""
    return not tag.startswith(SYSTEM_ONLY)


def weakest(enforcers: Iterable[Enforcer]) -> Enforcer | None:
    """Return the weakest of several; None of none."""
    return min(enforcers, key=_STRENGTH.index, default=None)


def _of_tag(fleet: Fleet, tag: str, queue: str, providing: Iterable[str]) -> Iterator[Enforcement]:
    rule = fleet.tags.get(tag, TagRule.model_construct())
    pools = [fleet.pools[name] for name in providing if serves_queue(fleet.pools[name], queue)]
    recorded = isinstance(fleet.queues[queue], WorldQueue)
    claims: list[tuple[Claim, Path]] = [("tag", ("tags", tag))]
    if rule.asked_by is not None:
        claims.append(("asked_by", ("tags", tag, "asked_by")))
    if rule.exclusive:
        claims.append(("exclusive", ("tags", tag, "exclusive")))
    if limits_of(rule):
        claims.append(("limits", ("tags", tag, "limits")))
    for claim, path in claims:
        by, because = _judge(fleet, tag, claim, queue, pools)
        yield Enforcement(tag, claim, queue, by, because, path, recorded)


def limits_of(rule: TagRule) -> dict[str, int]:
    """Return the limits that a rule states, by what they are counted per."""
    named = {f"per {key}": value for key, value in rule.limits.per.model_dump().items()}
    return {k: v for k, v in {**named, "total": rule.limits.total}.items() if v is not None}


def _judge(
    fleet: Fleet, tag: str, claim: Claim, queue: str, pools: list[AnyPool]
) -> tuple[Enforcer, str]:
    match fleet.queues[queue]:
        case WorldQueue():
            return "report", "a recording assigns no work"
        case CoprQueue() | TicketQueue():
            return "scheduler", "fleet assigns a machine to each ticket"
        case DebusineQueue() if pools:
            rule = fleet.tags.get(tag, TagRule.model_construct())
            return _at_debusine(rule, claim, pools)
        case DebusineQueue():
            return "report", "no pool that serves this queue provides it"


def _at_debusine(rule: TagRule, claim: Claim, pools: list[AnyPool]) -> tuple[Enforcer, str]:
    if claim == "tag":
        return _tag_at_debusine(rule)
    if claim == "asked_by":
        return _permission_at_debusine(rule, pools)
    exclusive = min(
        map(_exclusive_at_debusine, pools), key=lambda found: _STRENGTH.index(found[0])
    )
    if claim == "exclusive":
        return exclusive
    if set(limits_of(rule)) == {"total"} and rule.exclusive and exclusive[0] == "scheduler":
        return (
            "scheduler",
            "only such requests run on its machines, and fleet creates no more of them",
        )
    return "capacity", "fleet creates no more machines for it, but Debusine has no limits"


def _tag_at_debusine(rule: TagRule) -> tuple[Enforcer, str]:
    if rule.kind == "number":
        return "capacity", "Debusine has no numbers; `fleet export debusine` writes classes"
    return "scheduler", "Debusine assigns requests that require it only to workers that provide it"


def _permission_at_debusine(rule: TagRule, pools: list[AnyPool]) -> tuple[Enforcer, str]:
    """Say what enforces `asked_by` of a tag at the workers that provide it."""
    admitted = _provided_only_by(rule.asked_by or ())
    keys = [admitted & set(pool.requires) if isinstance(pool, Pool) else set() for pool in pools]
    if all(keys):
        tags = ", ".join(sorted(set().union(*keys)))
        return "scheduler", f"its workers require {tags}, which only permitted requests provide"
    return "report", "any workspace owner can make requests require it; who asked is not visible"


def _provided_only_by(askers: Sequence[Asker]) -> set[str]:
    """Return tags that only requests of these scopes and groups provide; none for other words."""
    named = [asker for asker in askers if isinstance(asker, Askers) and not asker.users]
    if len(named) < len(askers):
        return set()
    scopes = {f"task:scope:{scope}" for asker in named for scope in asker.scopes}
    return scopes | {f"task:group:{group}" for asker in named for group in asker.groups}


def _exclusive_at_debusine(pool: AnyPool) -> tuple[Enforcer, str]:
    if not isinstance(pool, Pool):
        return "report", "fleet does not manage its workers, which take whatever fits"
    if not pool.requires:
        return (
            "capacity",
            "its workers require no tags, so Debusine assigns them whatever fits first",
        )
    own = [tag for tag in pool.requires if not is_workspace_tag(tag)]
    given = [tag for tag in pool.requires if is_workspace_tag(tag)]
    if not given:
        tags = ", ".join(own)
        return "capacity", f"its workers require only {tags}, so Debusine assigns any such request"
    owner = f"an owner of a workspace with {', '.join(own)}" if own else "any workspace owner"
    return "scheduler", f"its workers require {', '.join(given)}, which {owner} can provide"


def _is_of(name: str, tag: str) -> bool:
    """Say whether a name under `tags` is about a tag."""
    return tag_name(tag) == name or (name.endswith("*") and tag.startswith(name.removesuffix("*")))
