"""Choose names, options (machine type and market) and creation inputs of new machines.

Each name ends in a number of fixed width, so that no name is a prefix of another name, because
some operators' scripts delete by name prefix. fleet does not reuse a recorded name.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from itertools import chain, count
from types import MappingProxyType

from fleet.model.facts import (
    Attempt,
    Listing,
    Machine,
    MachineState,
    Unknown,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.model.prices import find_types, markets_of, price_per_hour
from fleet.model.values import digest
from fleet.planner.failures import BootAttempts, find_failing
from fleet.planner.images import ImageChoice
from fleet.planner.inventory import PoolInventory
from fleet.planner.shared_stacks import settings_of
from fleet.planner.units import UnitState
from fleet.schema.model import Fleet, Market, Pool, beginning_of, static_names
from fleet.words import images
from fleet.words.lives import join

_NUMBER_DIGITS = 4
_MAX_NUMBER = 10**_NUMBER_DIGITS - 1
_CREATED_RESULTS = ("registered", "failed", "gone")
"""Results of attempts that created a machine.

The name of an attempt that a killed run only started is reused. If the provider did create that
machine, it does not create a second machine with the same name.
"""


@dataclass(frozen=True)
class Names:
    """The known names of machines and workers: present, past, and used by other fleets."""

    present: frozenset[str]
    """Names of machines and workers that may still exist."""
    past: frozenset[str] = frozenset()
    """Recorded names of deleted machines."""
    taken: frozenset[str] = frozenset()
    """Names of other fleets' machines; a provider refused to create a machine with such a name."""

    @cached_property
    def every(self) -> frozenset[str]:
        """Return all known names: present, past and those of other fleets."""
        return self.present | self.past | self.taken

    @cached_property
    def in_order(self) -> list[str]:
        """Return all known names in sorted order, so that a prefix can be found by bisection."""
        return sorted(self.every)


def worker_names(fleet: Fleet, pool: str, known: Names) -> Iterator[str]:
    """Yield unused names like `<fleet>-<pool>-0001`, smallest number first.

    After all four-digit numbers, yield names of deleted machines, then longer numbers. If a
    provider refused names of another fleet, start after these names, with a gap that doubles with
    each refused name.
    """
    begins = beginning_of(fleet, pool)
    # The name prefix of a pool may equal the machine name of another pool.
    pools = fleet.cached(
        "beginnings", (), lambda: sorted(beginning_of(fleet, n) for n in fleet.pools)
    )

    def numbered(first: int, last: int | None) -> Iterator[str]:
        numbers = count(first) if last is None else range(first, last + 1)
        return (f"{begins}{number:0{_NUMBER_DIGITS}}" for number in numbers)

    taken, after = _find_by_prefix(begins, known.in_order), len(begins) + 1
    starts = {
        each[:end]
        for each in (*taken, *_find_by_prefix(begins, pools))
        for end in range(after, len(each) + 1)
    }
    short = tuple(each for each in taken if after <= len(each) < after + _NUMBER_DIGITS)

    def is_free(name: str) -> bool:
        return name not in starts and not name.startswith(short)

    numbers = [int(n) for each in known.taken if (n := each.removeprefix(begins)).isdecimal()]
    first = max(numbers) + 2 ** min(len(numbers) - 1, _NUMBER_DIGITS * 3) if numbers else 1
    new = filter(
        is_free, chain(numbered(first, _MAX_NUMBER), numbered(1, min(first - 1, _MAX_NUMBER)))
    )
    old = (
        name
        for name in numbered(1, _MAX_NUMBER)
        if name in known.past and name not in known.present
    )
    longer = (name for name in numbered(_MAX_NUMBER + 1, None) if name not in known.every)
    yield from chain(new, old, longer)


def _find_by_prefix(begins: str, names: Sequence[str]) -> Sequence[str]:
    """Return the names that start with `begins`; `names` must be sorted."""
    end = bisect_right(names, begins, key=lambda name: name[: len(begins)])
    return names[bisect_left(names, begins) : end]


def known_names(fleet: Fleet, world: World) -> Names:
    """Return all names of machines and workers in fleet.yaml and in this run's observations."""
    present = set(static_names(fleet))
    past = {attempt.worker for attempt in world.attempts if attempt.result in _CREATED_RESULTS}
    taken = {attempt.worker for attempt in world.attempts if attempt.result == "name-taken"}
    present |= {machine.name for _, machine in world.machines()}
    for listing in world.providers.values():
        if isinstance(listing, Listing):
            present |= {worker.name for worker in listing.workers or ()}
            present |= set(listing.strangers)
    for reading in world.queues.values():
        if isinstance(reading.workers, tuple):
            # Machines of fleet that are deleted: their workers are disabled and run no work.
            over = {
                worker.name
                for worker in reading.workers
                if worker.state is WorkerState.DISABLED
                and worker.running is None
                and worker.machine is not None
            }
            present |= {worker.name for worker in reading.workers} - over
            past |= over
    for stack in world.known_stacks.values():
        present |= stack.names
    return Names(frozenset(present), frozenset(past), frozenset(taken))


NOTHING_SHARED: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Closure:
    """The reason why a pool, or one of its options, creates no machine in this run."""

    reason: str
    path: tuple[str | int, ...]
    """The key of fleet.yaml that decides the reason."""
    until: datetime | None = field(default=None, compare=False)
    """Time when the reason ends without manual action; None if unknown."""
    unpublished: bool = False
    """True if no version of the image is published."""


@dataclass(frozen=True)
class Option:
    """A machine type on a market (on-demand or spot) from which a pool can create machines."""

    pool: str
    type: str
    market: Market
    image: str
    """The provider's id of the image; empty if no version is published."""
    price: Decimal | None
    """Price per hour in the currency of fleet.yaml; None if unknown."""
    closed: Closure | None = None
    """The reason why this run cannot create such a machine; None if it can."""
    shared: tuple[tuple[str, str], ...] = ()
    """Machine settings that refer to resources shared by machines of the provider."""

    @property
    def key(self) -> str:
        """Return `pool/type/market`, the key of the place for machines of this option."""
        return f"{self.pool}/{self.type}/{self.market}"


def options_of(
    fleet: Fleet,
    memory: BootAttempts,
    name: str,
    choice: ImageChoice,
    shared: Mapping[str, str] = NOTHING_SHARED,
) -> tuple[Option, ...]:
    """Return the options of a pool in the order of fleet.yaml; empty for a static pool.

    `find_closures` has the reasons that close the whole pool.
    """
    pool = fleet.pools.get(name)
    if not isinstance(pool, Pool):
        return ()
    offers = fleet.cached(("offers", name), (), lambda: tuple(_offers(fleet, pool)))

    def options(memory: BootAttempts) -> Iterator[Option]:
        for kind, market, price, unsold in offers:
            failing, until = find_failing(
                memory, name, kind, market, pool.provider, images=[*filter(None, choice.ids)]
            )
            machine = ("pools", name, "machine")
            closed = Closure(failing, machine, until) if failing else None
            if kind in choice.failing:
                reason, ends = choice.failing[kind]
                closed = Closure(reason, choice.path, ends)
            if choice.closed:
                closed = Closure(choice.closed, choice.path, choice.until)
            if unsold:
                closed = Closure(unsold, machine)
            own = tuple(shared.items())
            yield Option(name, kind, market, choice.id, price, closed, shared=own)

    # If another option is open, the next run uses it, even if that run starts late.
    found = tuple(options(replace(memory, least=timedelta(seconds=fleet.cadence) * 3 / 2)))
    return tuple(options(memory)) if all(each.closed for each in found) else found


def _offers(fleet: Fleet, pool: Pool) -> Iterator[tuple[str, Market, Decimal | None, str]]:
    """Yield type, market and price of each option of a pool, and why a price is missing."""
    for known in find_types(fleet, pool):
        for market in markets_of(pool):
            price = price_per_hour(fleet, known, market)
            unsold = "" if price is not None else images.explain_price(fleet.money.currency)
            if unsold and market == "spot" and known.spot is None:
                unsold = images.explain_spot_price(known.name, pool.provider)
            yield known.name, market, price, unsold


def digest_of(fleet: Fleet, option: Option, image: str) -> str:
    """Return the digest of the creation inputs of an option with this image."""
    shared = (value for setting in option.shared for value in setting)

    def find() -> str:
        return new_inputs(fleet, replace(option, image=image), "").labels["digest"]

    return fleet.cached(("digest", option.key), (image, *shared), find)


def why_closed(options: Iterable[Option]) -> Closure | None:
    """Return why no option of a pool can create a machine; None if an option can."""
    found = [option.closed for option in options]
    closures = [each for each in found if each is not None]
    if not closures or len(closures) < len(found):
        return None
    reason = join(*dict.fromkeys(each.reason for each in closures))
    first_end = min((each.until for each in closures if each.until), default=None)
    return Closure(reason, closures[0].path, first_end)


def find_closures(
    fleet: Fleet,
    inventory: PoolInventory,
    choice: ImageChoice,
    shared: Mapping[str, str] | Unknown,
) -> Iterator[Closure]:
    """Yield every reason why a pool, with all its options, creates no machine in this run."""
    pool, path = fleet.dynamic_pool(inventory.pool), ("pools", inventory.pool)
    if pool is None:
        yield Closure(images.REMOVED, path)
        return
    if inventory.blind:
        yield Closure(images.MACHINES_UNKNOWN, path)
    if pool.mode in ("drain", "pause"):
        yield Closure(images.explain_mode(pool.mode), path)
    if not find_types(fleet, pool):
        yield Closure(images.NO_MACHINE_TYPE, path)
    if not choice.id and choice.closed:
        yield Closure(choice.closed, choice.path, choice.until)
    elif not choice.id:
        none = images.describe_unpublished(pool.image, pool.provider)
        yield Closure(none, path, unpublished=True)
    if isinstance(shared, Unknown):
        yield Closure(shared.unknown, path)


def new_inputs(fleet: Fleet, option: Option, worker: str) -> WorkerInputs:
    """Return the creation inputs of a machine. Raises TypeError for a static pool.

    The default, the on-demand market, is omitted, so that adding a market outdates no machine.
    """
    pool = fleet.pools[option.pool]
    if not isinstance(pool, Pool):
        raise TypeError(option.pool)
    types = {known.name: known for known in reversed(find_types(fleet, pool))}
    settings = settings_of(fleet, pool, types.get(option.type))
    settings |= dict(option.shared)
    if option.market != "on-demand":
        settings["market"] = option.market
    architecture = fleet.images[pool.image].architecture
    pool_tags = {"provides": pool.provides, "requires": pool.requires}
    made_from = {
        "type": option.type,
        "image": option.image,
        "architecture": architecture,
        "settings": settings,
        # Unset values are omitted, so that they do not change the digest.
        **{key: sorted(tags) for key, tags in pool_tags.items() if tags},
        **({"swap": pool.swap} if pool.swap else {}),
    }
    return WorkerInputs(
        name=worker,
        type=option.type,
        image=option.image,
        architecture=architecture,
        labels={
            "fleet": fleet.fleet,
            "pool": option.pool,
            "worker": worker,
            "digest": digest(made_from)[:16],
        },
        settings=settings,
    )


_UNRECORDED_RESULTS = frozenset({"starting", "gone", "error", "name-taken"})
"""Results of attempts that may have created an unrecorded machine.

`name-taken` is one, because a client that repeats a creation after a lost response gets it.
"""
_ACTIVE_STATES = (MachineState.STARTING, MachineState.RUNNING)


def made_from(
    fleet: Fleet, options: Iterable[Option], choice: ImageChoice, machine: Machine
) -> WorkerInputs | None:
    """Return the creation inputs of a machine; None if no current option has its digest."""
    images = dict.fromkeys([machine.image or "", *choice.ids])
    for option in options:
        for image in filter(None, images):
            inputs = new_inputs(fleet, replace(option, image=image), machine.name)
            if inputs.labels["digest"] == machine.digest:
                # A machine of a renamed pool keeps the old pool label.
                return inputs.altered(labels=inputs.labels | {"pool": machine.pool})
    return None


def with_begun(
    fleet: Fleet,
    inventory: PoolInventory,
    options: Iterable[Option],
    choice: ImageChoice,
    tries: Iterable[Attempt],
) -> PoolInventory:
    """Return the inventory with machines of an interrupted apply marked as unfinished.

    Such a machine has the pool's label and is missing in the stack: the run recorded the attempt
    and was killed before the response. Without such an attempt, a machine is not marked, because
    its labels may be copied. A lost stack is a different case.
    """
    stack = inventory.stack
    unrecorded = inventory.having(UnitState.UNRECORDED)
    if stack is None or inventory.blind or not unrecorded:
        return inventory
    known = stack.names
    # The latest attempt comes first.
    latest = {attempt.worker: attempt.result for attempt in reversed([*tries])}
    begun_here = {name for name, result in latest.items() if result in _UNRECORDED_RESULTS}
    begun = {}
    for unit in unrecorded:
        machine = unit.machine if unit.name in begun_here and unit.name not in known else None
        is_active = machine is not None and machine.state in _ACTIVE_STATES
        if machine and is_active and (made := made_from(fleet, options, choice, machine)):
            begun[unit.name] = replace(unit, state=UnitState.UNFINISHED, inputs=made)
    return replace(inventory, units=tuple(begun.get(unit.name, unit) for unit in inventory.units))
