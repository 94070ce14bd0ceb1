"""This module tells, for people, who makes the tags, exclusivities and limits of a fleet true."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict

from fleet.model.values import Value
from fleet.schema.model import Fleet
from fleet.tagrules.enforcement import (
    Claim,
    Enforcement,
    Enforcer,
    enforcement_of,
    known_tags,
    limits_of,
    pools_providing,
)
from fleet.tagrules.numbers import tag_name

WORDS: dict[Enforcer, str] = {
    "scheduler": "enforced by the scheduler",
    "capacity": "enforced by capacity alone",
    "report": "enforced by nobody, only reported",
}


class EnforcedClaim(Value):
    """Who makes one claim come true at one queue."""

    claim: Claim
    queue: str
    by: Enforcer
    because: str
    path: tuple[str | int, ...]
    place: str = ""


class ListedTag(Value):
    """A tag that fleet.yaml declares, provides or asks for."""

    tag: str
    kind: str
    on_demand: bool
    exclusive: bool
    limits: dict[str, int]
    pools: tuple[str, ...]
    enforcement: tuple[EnforcedClaim, ...]


class TagList(Value):
    """What `fleet tags list` answers."""

    fleet: str
    tags: tuple[ListedTag, ...]


def list_tags(fleet: Fleet) -> TagList:
    """Return every tag with who makes it come true."""
    claims, providing = enforcement_of(fleet), pools_providing(fleet)
    return TagList(
        fleet=fleet.fleet,
        tags=tuple(
            _listed(fleet, tag, providing[tag], [each for each in claims if each.tag == tag])
            for tag in known_tags(fleet)
        ),
    )


def enforcement_facts(
    declared: Collection[str],
    claims: Iterable[Enforcement],
    tags: Iterable[str],
    queues: Collection[str],
) -> Iterator[str]:
    """Yield a sentence for each exclusivity and limit of these tags, and each number."""
    wanted = {tag_name(tag) for tag in tags}
    for each in claims:
        plain = each.claim == "tag" and each.by != "capacity"
        if each.tag in wanted and each.tag in declared and each.queue in queues and not plain:
            claim = "" if each.claim == "tag" else f" {each.claim},"
            yield f"{each.tag}:{claim} {WORDS[each.by]} at {each.queue}: {each.because}"


def _listed(
    fleet: Fleet, tag: str, pools: tuple[str, ...], claims: list[Enforcement]
) -> ListedTag:
    rule = fleet.tags.get(tag)
    return ListedTag(
        tag=tag,
        kind=rule.kind if rule else "plain",
        on_demand=rule is not None and rule.on_demand,
        exclusive=rule is not None and rule.exclusive,
        limits=limits_of(rule) if rule else {},
        pools=pools,
        enforcement=tuple(_claim(each) for each in claims),
    )


def _claim(each: Enforcement) -> EnforcedClaim:
    said = asdict(each)
    return EnforcedClaim(**{key: said[key] for key in ("claim", "queue", "by", "because", "path")})
