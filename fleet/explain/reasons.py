"""This module says of every pool why it does not serve a request, and who makes that true."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from itertools import product

from fleet.explain.forecast import Forecast, Standing, forecast, workers_of
from fleet.explain.values import ExplainedReason, Path, PlaceFacts
from fleet.explain.what_if import find_request
from fleet.model.facts import World
from fleet.model.images import ImageVersion
from fleet.model.plan import Plan, Signature, Unserved, rate
from fleet.model.prices import bill, find_types, markets_of, tariff_of
from fleet.planner.demand import Ordered, ordered
from fleet.planner.durations import Durations, kind_at
from fleet.planner.images import images_by_pool
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.planner.layout import tail_seconds
from fleet.schema.model import AnyPool, Fleet, Pool, StaticPool, WorldQueue
from fleet.schema.rules import Otherwise
from fleet.schema.units import write_duration
from fleet.tagrules import (
    Ask,
    Mismatch,
    Offer,
    ask_of_tags,
    find_mismatch,
    offer_of_pool,
    satisfies,
    serves_queue,
)
from fleet.tagrules.enforcement import Claim, Enforcement, Enforcer, enforcement_of, weakest
from fleet.tagrules.numbers import tag_name
from fleet.tagrules.vocabulary import Vocabulary

FIRST_READ = "first see to what is unknown: until it is read again no machine is made there"


@dataclass(frozen=True)
class Case:
    """What an answer rests on: fleet.yaml, the world and its plan, and what follows from them."""

    fleet: Fleet
    world: World
    plan: Plan

    @cached_property
    def forecast(self) -> Forecast:
        """Return when each waiting request is expected to start."""
        return forecast(self.fleet, self.world, self.plan)

    @cached_property
    def inventory(self) -> dict[str, PoolInventory]:
        """Return what each pool has, and what is not known of it."""
        return take_inventory(self.fleet, self.world)

    @cached_property
    def seen(self) -> frozenset[str]:
        """Return the workers that somebody sees: not those of which only a stack tells."""
        unseen = {unit.name for pool in self.inventory.values() for unit in pool.unseen}
        return frozenset(each.worker for each in self.plan.workers) - unseen

    @cached_property
    def enforcement(self) -> tuple[Enforcement, ...]:
        """Return who makes each tag, exclusivity and limit true."""
        return enforcement_of(self.fleet)

    @cached_property
    def offers(self) -> dict[str, Offer]:
        """Return what the workers of each pool offer, by its name."""
        images = images_by_pool(self.fleet, self.world, self.inventory)
        return {name: offer_of_pool(self.fleet, name, images[name]) for name in sorted(images)}

    @cached_property
    def workers(self) -> tuple[Standing, ...]:
        """Return the workers that take work, or are made by this plan."""
        return tuple(workers_of(self.fleet, self.world, self.plan))

    @cached_property
    def unserved(self) -> dict[str, Unserved]:
        """Return why each request that is not served waits."""
        return {key: each for each in self.plan.unserved for key in each.requests}

    def ask_of(self, signature: Signature) -> Ask:
        """Return what the requests of a signature ask for."""
        return ask_of_tags(self.fleet, signature.required, signature.provided)

    def enforcer(self, tags: Iterable[str], claim: Claim, queue: str) -> Enforcer | None:
        """Return the weakest of those who make a claim of these tags true; None: a recording."""
        if isinstance(self.fleet.queues.get(queue), WorldQueue):
            # It assigns nothing: that nobody enforces a tag there tells nothing of the tag.
            return None
        names = {tag_name(tag) for tag in tags}
        found = [
            each.by
            for each in self.enforcement
            if each.tag in names and each.claim == claim and each.queue == queue
        ]
        # Of a tag that nothing here declares or provides, the queue itself still knows.
        return weakest(found) or "scheduler"


def is_never(case: Case, signature: Signature, unserved: Unserved | None) -> bool:
    """Say whether no worker of this fleet, existing or made, could ever run such a request."""
    if unserved is None or unserved.blocked:
        return False
    ask = case.ask_of(signature)
    able = any(
        serves_queue(pool, signature.queue) and satisfies(ask, case.offers[name])
        for name, pool in case.fleet.pools.items()
    )
    return not able and not any(
        signature.queue in queues and satisfies(ask, offer)
        for queues, offer, _ in (worker.alike for worker in case.workers)
    )


def reasons_of(
    case: Case, signature: Signature, key: str, unserved: Unserved | None
) -> Iterator[ExplainedReason]:
    """Yield everything that bears on a request: tags that do not count, and every pool."""
    for refused in signature.refused:
        who = f"who may say who asks for {refused.tag}"
        by = case.enforcer([refused.tag], "tag", signature.queue)
        yield ExplainedReason(because=refused.because, path=refused.path, by=by, who=who)
    for difference in signature.differences:
        yield ExplainedReason(because=difference.because, path=difference.path, by="scheduler")
    yield from _of_patience(case, signature, key)
    for because in unknown_of(case, unserved):
        who = "whoever can have it read again"
        yield ExplainedReason(because=because, who=who)
    for name, pool in sorted(case.fleet.pools.items()):
        yield _of_pool(case, signature, unserved, name, pool)


def _of_patience(case: Case, signature: Signature, key: str) -> Iterator[ExplainedReason]:
    """Yield of each tag with `otherwise` since when, or from when on, a request does without."""
    found = find_request(case.world, key)
    since = found[0].pending_since if found else None
    vocabulary = Vocabulary(case.fleet)
    for tag in signature.required:
        for name in vocabulary.names_of(tag):
            otherwise = case.fleet.tags[name].otherwise
            if found is None or since is None or not isinstance(otherwise, Otherwise):
                continue
            after = write_duration(otherwise.after)
            until = f"{since + timedelta(seconds=otherwise.after):%Y-%m-%d %H:%M} UTC"
            if found[1]:
                said = (
                    f"otherwise.drop of tag {name} has no effect on it: queue {signature.queue} "
                    f"stored {tag} with the request, and assigns it only to workers that have it"
                )
            elif tag in signature.dropped:
                said = f"it waited {after} for {tag}: since {until} it may run without {tag}"
            else:
                said = f"it may run without {tag} from {until}, when it has waited {after}"
            yield ExplainedReason(because=said, path=("tags", name, "otherwise"))


def unknown_of(case: Case, unserved: Unserved | None) -> tuple[str, ...]:
    """Return what is unknown and keeps pools that fit a request from making machines."""
    pools = [blocked.pool for blocked in unserved.blocked] if unserved else []
    found = (
        because
        for name in pools
        if name in case.inventory
        for because in case.inventory[name].blind
    )
    return tuple(dict.fromkeys(found))


def _of_pool(
    case: Case, signature: Signature, unserved: Unserved | None, name: str, pool: AnyPool
) -> ExplainedReason:
    path: Path = ("pools", name)
    if not serves_queue(pool, signature.queue):
        because = f"pool {name} does not serve queue {signature.queue}"
        who = f"whoever runs the fleet: pools.{name}.serves"
        serves = (*path, "serves")
        return ExplainedReason(because=because, path=serves, by="scheduler", who=who)
    for blocked in unserved.blocked if unserved else ():
        if blocked.pool == name:
            said = blocked.because.removeprefix(f"pool {name} ")
            return ExplainedReason(
                because=f"pool {name} fits, but {said}",
                path=blocked.path,
                by=_of_limit(case, signature, blocked.path),
                who=_who_allows(case.plan, blocked.path),
            )
    mismatch = find_mismatch(case.ask_of(signature), case.offers[name])
    if not mismatch:
        return _of_fitting(case, signature, name, pool, waits=unserved is not None)
    if signature.dropped:
        dropped = set(signature.dropped)
        fewer = signature.model_copy(
            update={"required": tuple(t for t in signature.required if t not in dropped)}
        )
        if satisfies(case.ask_of(fewer), case.offers[name]):
            found = _of_fitting(case, fewer, name, pool, waits=unserved is not None)
            fits = f"pool {name} fits without {', '.join(signature.dropped)}"
            because = found.because.replace(f"pool {name} fits", fits, 1)
            return found.model_copy(update={"because": because})
    return _of_mismatch(case, signature, name, mismatch)


def _of_fitting(
    case: Case, signature: Signature, name: str, pool: AnyPool, *, waits: bool
) -> ExplainedReason:
    """Return why a pool that fits serves a request, or does not although nothing blocks it."""
    path: Path = ("pools", name)
    offer = case.offers[name]
    if offer.on_demand and not offer.on_demand & set(signature.required):
        tags = ", ".join(sorted(offer.on_demand))
        because = f"pool {name} fits, but makes machines only for who asks for {tags}"
        who = f"whoever makes the request: it may ask for {tags}, if it may"
        return ExplainedReason(because=because, path=path, by="capacity", who=who)
    if not waits:
        return ExplainedReason(because=f"pool {name} fits", path=path)
    by: Enforcer = "capacity"
    because = f"pool {name} fits, but what it has serves others"
    if isinstance(pool, StaticPool):
        because, by = f"pool {name} fits, but all its workers are taken", "scheduler"
    return ExplainedReason(because=because, path=path, by=by, who="wait")


def _of_limit(case: Case, signature: Signature, path: Path) -> Enforcer | None:
    """Return who holds a limit: fleet, which buys no more; of a limited tag, whoever can."""
    if path[:1] == ("queues",) and path[2:]:
        return "scheduler"  # fleet itself gives each ticket its machine
    if path[:1] == ("tags",) and len(path) > 1:
        return case.enforcer([str(path[1])], "limits", signature.queue)
    return "capacity"


def _who_allows(plan: Plan, path: Path) -> str:
    way_out = next((g.way_out for g in plan.guards if g.path == path and g.way_out), "")
    if way_out:
        return way_out
    match path[:1]:
        case ("guards",):
            return "the next runs, or who may change guards"
        case ("budgets",):
            return "who answers for the money: budgets"
    return "whoever runs the fleet"


def _of_mismatch(
    case: Case, signature: Signature, name: str, mismatch: Mismatch
) -> ExplainedReason:
    ask_for = [*mismatch.missing, *mismatch.not_brought, *mismatch.too_small]
    found = [case.enforcer(ask_for, "tag", signature.queue)] if ask_for else []
    if mismatch.not_asked:
        found.append(case.enforcer(mismatch.not_asked, "exclusive", signature.queue))
    return ExplainedReason(
        because=f"pool {name} {mismatch}",
        path=("pools", name),
        by=weakest(filter(None, found)),
        who="; ".join(_who_fits(case, name, mismatch)),
    )


def _who_fits(case: Case, name: str, mismatch: Mismatch) -> Iterator[str]:
    """Yield who could make a pool fit, for each way in which it does not."""
    vocabulary = Vocabulary(case.fleet)
    fixed = [
        tag
        for tag in mismatch.missing
        if not {"pool", "image"} & set(vocabulary.provided_by(tag)[0] or ("pool",))
        or tag.startswith(_ARCHITECTURE)
    ]
    if fixed or mismatch.too_small:
        what = ", ".join((*fixed, *mismatch.too_small))
        yield f"only a new pool, whose machine and image have {what}"
    if said := [tag for tag in mismatch.missing if tag not in fixed]:
        yield f"who knows that its workers have {', '.join(said)}: pools.{name}.provides"
    if mismatch.not_brought:
        yield f"whoever runs the fleet: pools.{name}.requires"
    if mismatch.not_asked:
        yield f"whoever makes the request: it may ask for {', '.join(mismatch.not_asked)}"


_ARCHITECTURE = "worker:build-arch:"


def places_of(case: Case, signature: Signature, key: str) -> tuple[PlaceFacts, ...]:
    """Return each way to make a machine for a request, in the order of fleet.yaml."""
    found = find_request(case.world, key)
    if found is None:
        return ()
    durations = Durations(case.fleet, case.world)
    (one, *_) = ordered(signature.queue, found[0], durations.of(signature.queue, found[0]))
    images = images_by_pool(case.fleet, case.world)
    return tuple(
        place
        for name in signature.pools
        if isinstance(pool := case.fleet.pools.get(name), Pool)
        for place in _in_pool(case, name, pool, images[name], one)
    )


def _in_pool(
    case: Case, name: str, pool: Pool, images: tuple[ImageVersion, ...], one: Ordered
) -> Iterator[PlaceFacts]:
    on_demand = bool(offer_of_pool(case.fleet, name, images).on_demand)
    tail = tail_seconds(case.fleet, pool, on_demand=on_demand)
    start = case.world.time + timedelta(seconds=pool.boot.expected)
    for known, market in product(find_types(case.fleet, pool), markets_of(pool)):
        kind = kind_at(case.fleet, name, known.name)
        seconds = one.seconds_on(kind)
        tariff = tariff_of(case.fleet, pool, known.name, market)
        yield PlaceFacts(
            pool=name,
            type=known.name,
            market=market,
            start=start,
            end=None if seconds is None else start + timedelta(seconds=seconds),
            seconds=seconds,
            cost=bill(tariff, tail + seconds) if tariff and seconds is not None else None,
            source=one.timing.source_on(kind) if one.timing and seconds is not None else "",
            deadline=one.timing.deadline if one.timing else None,
            own_deadline=bool(one.timing and one.timing.own_deadline),
            is_late=bool(one.timing and one.timing.is_late([kind], one.seconds)),
        )


def format_places(fleet: Fleet, places: tuple[PlaceFacts, ...], queue: str) -> Iterator[str]:
    """Yield a line for each place: start, end, cost."""
    for each in places:
        market = "" if each.market == "on-demand" else f" ({each.market})"
        where = f"new {each.type}{market} of pool {each.pool}"
        if each.seconds is None:
            yield f"{where}: from {_at(each.start)}; nothing says how long it runs"
            continue
        takes = write_duration(each.seconds) + (f", {each.source}" if each.source else "")
        if each.is_late:
            most = write_duration(each.deadline or 0)
            whose = "its own deadline" if each.own_deadline else f"deadline of queue {queue}"
            yield f"{where}: not possible, runs for {takes}, {whose} is {most}"
            continue
        price = "price not known" if each.cost is None else _money(fleet, each.cost)
        end = _at(each.end) if each.end else ""
        yield f"{where}: {_at(each.start)} to {end} ({takes}), {price}"


def _money(fleet: Fleet, cost: Decimal) -> str:
    return f"about {rate(cost.quantize(Decimal('0.0001')))} {fleet.money.currency}"


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
