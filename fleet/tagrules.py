"""This module decides what may run where: the same rule as Debusine's, plus exclusivity.

A worker may run a request when `request.required <= worker.provides` and
`worker.requires <= request.provided`, and every exclusive tag it provides is asked for.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fleet.catalogue import find_type
from fleet.facts import ImageVersion
from fleet.schema.model import (
    ExistingImage,
    Fleet,
    HooksPool,
    ImageRecipe,
    Pool,
    StaticPool,
    TagRule,
)

EXTERNAL_WORKER = "worker:type:external"


@dataclass(frozen=True)
class Offer:
    """What the workers of one pool provide and require."""

    provides: frozenset[str]
    requires: frozenset[str] = frozenset()
    exclusive: frozenset[str] = frozenset()
    on_demand: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Ask:
    """What a request requires of a worker, and what it brings."""

    required: frozenset[str]
    provided: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Mismatch:
    """Why a worker may not run a request; empty when it may."""

    missing: tuple[str, ...] = ()
    not_brought: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Say whether anything stands against it."""
        return bool(self.missing or self.not_brought or self.not_asked)

    def __str__(self) -> str:
        """Return every reason in one sentence."""
        parts = []
        if self.missing:
            parts.append(f"does not provide {', '.join(self.missing)}")
        if self.not_brought:
            parts.append(f"requires {', '.join(self.not_brought)}, which the request lacks")
        if self.not_asked:
            parts.append(f"is exclusive to requests that ask for {', '.join(self.not_asked)}")
        return "; ".join(parts)


def satisfies(ask: Ask, offer: Offer) -> bool:
    """Say whether a worker with this offer may run a request that asks this."""
    return (
        ask.required <= offer.provides
        and offer.requires <= ask.provided
        and offer.exclusive <= ask.required
    )


def find_mismatch(ask: Ask, offer: Offer) -> Mismatch:
    """Return everything that stands between a request and a worker, sorted."""
    return Mismatch(
        missing=tuple(sorted(ask.required - offer.provides)),
        not_brought=tuple(sorted(offer.requires - ask.provided)),
        not_asked=tuple(sorted(offer.exclusive - ask.required)),
    )


def offer_of_pool(fleet: Fleet, name: str, images: Iterable[ImageVersion]) -> Offer:
    """Return what a pool's workers offer, also when none has ever booted.

    That is what the image's worker reported at its boot test (until then `provides` of the
    image), what the catalogue says of the machine, and the pool's own `provides`.
    """
    pool = fleet.pools[name]
    provides = set(pool.provides)
    requires: Collection[str] = ()
    if isinstance(pool, Pool):
        provides |= _of_image(fleet, pool, images) | _of_machine(fleet, pool)
        requires = pool.requires
    return offer_of_tags(fleet, provides, requires)


def offer_of_tags(fleet: Fleet, provides: Iterable[str], requires: Iterable[str] = ()) -> Offer:
    """Return the offer of a worker that states these tags itself."""
    tags = frozenset(provides)
    rules = [(tag, rule) for tag in tags for rule in rules_of_tag(fleet, tag)]
    return Offer(
        provides=tags,
        requires=frozenset(requires),
        exclusive=frozenset(tag for tag, rule in rules if rule.exclusive),
        on_demand=frozenset(tag for tag, rule in rules if rule.on_demand),
    )


def rules_of_tag(fleet: Fleet, tag: str) -> tuple[TagRule, ...]:
    """Return what fleet.yaml says of a tag; every rule that matches applies."""
    return tuple(rule for pattern, rule in fleet.tags.items() if means(pattern, tag))


def means(pattern: str, tag: str) -> bool:
    """Say whether a key of `tags` means this tag: only `*` stands for any characters."""
    if "*" not in pattern:
        return pattern == tag
    parts = map(re.escape, pattern.split("*"))
    return re.fullmatch(".*".join(parts), tag, re.DOTALL) is not None


def newest_version(
    images: Iterable[ImageVersion], image: str, provider: str
) -> ImageVersion | None:
    """Return the latest version of an image that is published at a provider."""
    published = [each for each in images if each.image == image and provider in each.ids]
    return max(published, key=lambda each: _natural(each.version), default=None)


def _natural(version: str) -> tuple[tuple[int, str], ...]:
    """Return a sorting key in which numbers count as numbers: 2026.10 is newer than 2026.9."""
    parts = re.findall(r"[0-9]+|[^0-9]+", version)
    stripped = [(part, part.lstrip("0")) for part in parts]
    return tuple(
        (len(digits), digits) if part.isdecimal() else (-1, part) for part, digits in stripped
    )


def serves_queue(pool: Pool | StaticPool | HooksPool, queue: str) -> bool:
    """Say whether a pool's workers register at this queue."""
    return pool.serves is None or queue in pool.serves


def static_names(fleet: Fleet) -> frozenset[str]:
    """Return the names of the workers that exist already and are never touched."""
    pools = fleet.pools.values()
    return frozenset(n for pool in pools if isinstance(pool, StaticPool) for n in pool.static)


def _of_image(fleet: Fleet, pool: Pool, images: Iterable[ImageVersion]) -> set[str]:
    newest = newest_version(images, pool.image, pool.provider)
    if newest and newest.provides:
        return set(newest.provides)
    image = fleet.images.get(pool.image)
    return set(image.provides) if image else set()


def _of_machine(fleet: Fleet, pool: Pool) -> set[str]:
    image = fleet.images.get(pool.image)
    known = find_type(fleet, pool)
    match image:
        case ImageRecipe() | ExistingImage():
            architecture = image.architecture
        case None:
            architecture = known.architecture if known else ""
    tags = {EXTERNAL_WORKER}
    if architecture:
        tags.add(f"worker:build-arch:{architecture}")
    return tags
