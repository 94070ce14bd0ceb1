"""Decide if a pool fits a request, and list all reasons why it does not fit.

`sign_demand` matches all requests of a plan together. `tests/laws/test_fitting_laws.py` checks
that the results are equal.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from fleet.model.decisions import (
    NO_FIGURES,
    Decision,
    DecisionFigures,
    NoMachineReason,
    Served,
    Unfit,
)
from fleet.model.facts import World
from fleet.model.plan import Signature, Unserved
from fleet.planner.images import Unproven, find_unproven, images_by_pool
from fleet.schema.findings import Path
from fleet.schema.model import Fleet, Pool, StaticPool, serves_queue
from fleet.tagrules.offers import (
    Ask,
    Mismatch,
    Offer,
    ask_of_tags,
    find_mismatch,
    find_unasked,
    offer_of_pool,
    satisfies,
)
from fleet.tagrules.requests import TagRefusal
from fleet.tagrules.sources import BUILD_ARCH
from fleet.tagrules.vocabulary import tag_name


class FitRequirements(NamedTuple):
    """The queue and tags that a request requires of a pool and its workers."""

    queue: str | None
    """The queue of the request; None: any queue."""
    ask: Ask
    dropped: frozenset[str] = frozenset()
    """Required tags that the request waives (`otherwise`)."""
    held: tuple[str, ...] = ()
    """Denied or unknown tags because of which no worker may serve the request."""
    is_unknown: bool = False
    """The tags in `held` are unknown, not denied."""

    def is_served_by(self, pool: Pool | StaticPool) -> bool:
        """Return True if a pool serves the queue of the request."""
        return self.queue is None or serves_queue(pool, self.queue)

    def ask_at(self, offer: Offer) -> Ask:
        """Return the required tags, without waived tags that a worker does not offer."""
        if not self.dropped:
            return self.ask
        return self.ask._replace(required=self.ask.required - (self.dropped - offer.provides))

    def fits(self, offer: Offer) -> bool:
        """Return True if a worker with this offer can serve the request, regardless of queue."""
        return not self.held and satisfies(self.ask_at(offer), offer)


def asked_by(fleet: Fleet, signature: Signature) -> FitRequirements:
    """Return the requirements that a plan recorded for requests with this signature."""
    return FitRequirements(
        signature.queue,
        ask_of_tags(fleet, signature.required, signature.provided),
        frozenset(signature.dropped),
        signature.held,
        any(each.is_unknown for each in signature.refused if each.tag in signature.held),
    )


def held_tags(refused: Collection[TagRefusal]) -> tuple[str, ...]:
    """Return the tags that forbid all workers to serve a request: the unknown, else the denied."""
    alike = _certainty(held_by(refused))
    return tuple(each.tag for each in refused if _certainty(each) == alike)


def held_by(refused: Collection[TagRefusal]) -> TagRefusal:
    """Return the refusal to report for a held request, preferably that of an unknown tag."""
    return min(refused, key=_certainty)


def _certainty(refusal: TagRefusal) -> tuple[bool, bool]:
    return not refusal.is_unknown, refusal.is_sure


_PARTS = (Unfit.TAG_MISSING, Unfit.TAG_NOT_BROUGHT, Unfit.TAG_EXCLUSIVE, Unfit.TOO_SMALL)
"""The codes of the parts of a `Mismatch`, in order."""


def find_unfit(
    fleet: Fleet, asked: FitRequirements, pool: str, offer: Offer, unproven: Unproven | None = None
) -> Iterator[Decision]:
    """Yield every reason why a pool does not fit a request."""
    declared = fleet.pools[pool]
    if not asked.is_served_by(declared):
        yield _decision(
            Unfit.QUEUE_NOT_SERVED, pool, "serves", DecisionFigures(queue=asked.queue or "")
        )
    ask = asked.ask_at(offer)
    mismatch = find_mismatch(ask, offer)
    if unproven is not None and unproven.may_prove(mismatch):
        at = {"image": unproven.pool.image, "provider": unproven.pool.provider}
        figures = DecisionFigures(tags=mismatch.missing, **at)
        yield _decision(Unfit.IMAGE_UNPROVEN, pool, "image", figures)
        mismatch = Mismatch()
    for code, tags in zip(_PARTS, mismatch, strict=True):
        if tags:
            asked_for = {tag_name(tag) for tag in tags} if code is Unfit.TOO_SMALL else ()
            has = tuple(f"{tag}={number:f}" for tag, number in offer.numbers if tag in asked_for)
            figures = DecisionFigures(tags=tags, has=has)
            yield _decision(code, pool, _key_of(code, tags, declared), figures)
    if asked.held:
        held = DecisionFigures(tags=asked.held, held="unknown" if asked.is_unknown else "denied")
        yield _decision(Unfit.TAG_HELD, pool, "", held)
    if offer.on_demand and not offer.on_demand & ask.required:
        yield _decision(
            Unfit.ON_DEMAND, pool, "", DecisionFigures(tags=tuple(sorted(offer.on_demand)))
        )


def _decision(code: Unfit, pool: str, key: str, figures: DecisionFigures) -> Decision:
    path: Path = ("pools", pool, key) if key else ("pools", pool)
    return Decision(code=code, subject=(pool,), key=path, figures=figures)


def _key_of(code: Unfit, tags: Sequence[str], pool: Pool | StaticPool) -> str:
    """Return the key of a pool in fleet.yaml, such as `image`, that causes a mismatch."""
    if isinstance(pool, StaticPool):
        return "provides"
    if code is Unfit.TAG_MISSING and any(tag.startswith(BUILD_ARCH) for tag in tags):
        return "image"
    return {Unfit.TOO_SMALL: "machine", Unfit.TAG_NOT_BROUGHT: "requires"}.get(code, "provides")


class FitDecider:
    """Checks pools against requests, with the same result as the plan."""

    def __init__(self, fleet: Fleet, world: World) -> None:
        self._fleet, self._world = fleet, world

    @cached_property
    def offers(self) -> dict[str, Offer]:
        """Map each pool to the tags that its next machine offers and requires."""
        images = images_by_pool(self._fleet, self._world)
        return {name: offer_of_pool(self._fleet, name, images[name]) for name in sorted(images)}

    def fits(self, asked: FitRequirements, pool: str) -> bool:
        """Return True if a pool serves the queue of a request and its workers fit the request."""
        return asked.is_served_by(self._fleet.pools[pool]) and asked.fits(self.offers[pool])

    def find_unasked(self, asked: FitRequirements, pool: str) -> tuple[str, ...] | None:
        """Return the tags that a request must add to fit a new machine of a pool.

        None if the pool does not fit, whichever tags the request adds.
        """
        if asked.held or not asked.is_served_by(self._fleet.pools[pool]):
            return None
        offer = self.offers[pool]
        return find_unasked(asked.ask_at(offer), offer)

    def find_unfit(self, asked: FitRequirements, pool: str) -> tuple[Decision, ...]:
        """Return every reason why a pool does not fit a request; empty if it fits."""
        unproven = self._unproven.get(pool)
        return tuple(find_unfit(self._fleet, asked, pool, self.offers[pool], unproven))

    @cached_property
    def _unproven(self) -> dict[str, Unproven]:
        """Map pool name to pool, for pools without a published image version."""
        return find_unproven(self._fleet, self._world)

    def decide(
        self, signature: Signature, pool: str, unserved: Unserved | None, *, has_machines: bool
    ) -> tuple[Decision, ...]:
        """Return the reasons why a pool serves or does not serve requests of a signature.

        `unserved` is the plan's entry for these requests; None if they do not wait. `has_machines`
        is False if the pool has no machine now, and the next apply creates none.
        """
        recorded = unserved.decisions if unserved else ()
        stopped = [
            e for e in recorded if pool in e.subject and isinstance(e.code, NoMachineReason)
        ]
        if unserved is not None and stopped:
            return tuple(_narrow_to_pool(each, pool, unserved) for each in stopped)
        asked = asked_by(self._fleet, signature)
        if unfit := self.find_unfit(asked, pool):
            return unfit
        code = Served.FITS
        if unserved is not None and has_machines:
            is_static = isinstance(self._fleet.pools[pool], StaticPool)
            code = Served.WORKERS_BUSY if is_static else Served.SERVES_OTHERS
        waived = asked.ask.required & (asked.dropped - self.offers[pool].provides)
        return (fitting(pool, code, tuple(sorted(waived))),)


def fitting(pool: str, code: Served = Served.FITS, waived: tuple[str, ...] = ()) -> Decision:
    """Return the decision that a pool fits. `waived` has required tags that the pool lacks."""
    figures = DecisionFigures(tags=waived) if waived else NO_FIGURES
    return Decision(code=code, subject=(pool,), key=("pools", pool), figures=figures)


def _narrow_to_pool(decision: Decision, pool: str, unserved: Unserved) -> Decision:
    """Return a decision restricted to one of its pools, with the figures of this pool."""
    key = tuple(pool if step == "*" else step for step in decision.key)
    alone = decision.altered(subject=(pool,), key=key)
    if decision.message:
        return alone
    own = next(each for each in unserved.blocked if (each.pool, each.path) == (pool, key))
    figures = DecisionFigures(needed=own.needed, left=own.left, unit=own.unit, until=own.until)
    return alone.altered(figures=figures, message=own.because)
