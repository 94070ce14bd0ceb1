"""The names of new machines, the ways to make them, and what each is made from.

A name ends in a number of a fixed width, so that none is the beginning of another: there are
scripts that delete whatever begins with a machine's name. No name is used again while anything
remembers it.
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
    Worker,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.model.prices import MachineType, find_types, markets_of, price_per_hour
from fleet.model.values import digest
from fleet.planner.failures import Memory, find_failing
from fleet.planner.images import ImageChoice
from fleet.planner.inventory import PoolInventory
from fleet.planner.shared_stacks import settings_of
from fleet.planner.units import State
from fleet.schema.model import Fleet, Pool, beginning_of, static_names
from fleet.schema.pools import Market
from fleet.schema.remembered import remembered

UNPUBLISHED = " has no published version at provider "
"""Between the names of an image and a provider: why a pool creates no machines."""
_DIGITS = 4
_MOST = 10**_DIGITS - 1
_MADE = ("registered", "failed", "gone")
"""What became of a try that surely made a machine. Of one that only began, as in a run that was
killed, the name is taken again: a provider that made it after all makes no second one of it."""


@dataclass(frozen=True)
class Names:
    """The names of machines and workers that anybody knows."""

    present: frozenset[str]
    """Of what may still be there."""
    past: frozenset[str] = frozenset()
    """Of what is over, and remembered."""
    taken: frozenset[str] = frozenset()
    """Of machines of others, as a provider answered when a run tried to use one."""

    @cached_property
    def every(self) -> frozenset[str]:
        """Return the names of all of them."""
        return self.present | self.past | self.taken

    @cached_property
    def in_order(self) -> list[str]:
        """Return those, sorted: one search finds what begins with a name."""
        return sorted(self.every)


def worker_names(fleet: Fleet, pool: str, known: Names) -> Iterator[str]:
    """Yield names like `<fleet>-<pool>-0001`, smallest number first, without a record.

    Where those of four digits are used up, it yields names of what is over, then longer ones.
    Names after those that were taken come first, ever further, as another fleet may have many.
    """
    begins = beginning_of(fleet, pool)
    # A pool may be called like a machine of another one.
    pools = remembered(fleet, "beginnings", (), lambda: sorted(_beginnings(fleet)))

    def numbered(first: int, last: int | None) -> Iterator[str]:
        numbers = count(first) if last is None else range(first, last + 1)
        return (f"{begins}{number:0{_DIGITS}}" for number in numbers)

    taken, after = _beginning(begins, known.in_order), len(begins) + 1
    starts = {
        each[:end]
        for each in (*taken, *_beginning(begins, pools))
        for end in range(after, len(each) + 1)
    }
    short = tuple(each for each in taken if after <= len(each) < after + _DIGITS)

    def is_free(name: str) -> bool:
        return name not in starts and not name.startswith(short)

    numbers = [int(n) for each in known.taken if (n := each.removeprefix(begins)).isdecimal()]
    first = max(numbers) + 2 ** min(len(numbers) - 1, _DIGITS * 3) if numbers else 1
    new = filter(is_free, chain(numbered(first, _MOST), numbered(1, min(first - 1, _MOST))))
    old = (name for name in numbered(1, _MOST) if name in known.past and name not in known.present)
    longer = (name for name in numbered(_MOST + 1, None) if name not in known.every)
    yield from chain(new, old, longer)


def _beginning(begins: str, names: Sequence[str]) -> Sequence[str]:
    """Return those of some names, sorted, that begin so."""
    end = bisect_right(names, begins, key=lambda name: name[: len(begins)])
    return names[bisect_left(names, begins) : end]


def _beginnings(fleet: Fleet) -> Iterator[str]:
    return (beginning_of(fleet, each) for each in fleet.pools)


def known_names(fleet: Fleet, world: World) -> Names:
    """Return every name of a machine or worker that fleet.yaml or any witness knows."""
    present = set(static_names(fleet))
    past = {attempt.worker for attempt in world.attempts if attempt.result in _MADE}
    taken = {attempt.worker for attempt in world.attempts if attempt.result == "name-taken"}
    present |= {machine.name for _, machine in world.machines()}
    for listing in world.providers.values():
        if isinstance(listing, Listing):
            present |= {worker.name for worker in listing.workers or ()}
            present |= set(listing.strangers)
    for reading in world.queues.values():
        if isinstance(reading.workers, tuple):
            over = {worker.name for worker in reading.workers if _is_over(worker)}
            present |= {worker.name for worker in reading.workers} - over
            past |= over
    for stack in world.known_stacks.values():
        present |= stack.names
    return Names(frozenset(present), frozenset(past), frozenset(taken))


def _is_over(worker: Worker) -> bool:
    """Say whether a worker of ours can do nothing any more, and has nothing left to do."""
    is_off = worker.state is WorkerState.DISABLED and worker.running is None
    return is_off and worker.machine is not None


NOTHING_SHARED: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Option:
    """One way to make a machine for a pool: of one type, on one market."""

    pool: str
    type: str
    market: Market
    image: str
    """The provider's own id of what it boots; empty where nothing is published."""
    price: Decimal | None
    """Money per hour in the currency of the file; None: unknown."""
    closed: str = ""
    """Why nothing is made this way in this run; empty when it may be."""
    until: datetime | None = field(default=None, compare=False)
    """When what closes it ends by itself, if that is known."""
    shared: tuple[tuple[str, str], ...] = ()
    """Settings that name what it shares with the other machines of its provider."""

    @property
    def key(self) -> str:
        """Return the name of the place where such machines are made."""
        return f"{self.pool}/{self.type}/{self.market}"


def options_of(
    fleet: Fleet,
    memory: Memory,
    name: str,
    choice: ImageChoice,
    shared: Mapping[str, str] = NOTHING_SHARED,
) -> tuple[Option, ...]:
    """Return every way to make a pool's machines, in the order of fleet.yaml; none: it has none.

    What closes the pool as a whole is `wont_make`'s to say.
    """
    pool = fleet.pools.get(name)
    if not isinstance(pool, Pool):
        return ()
    offers = remembered(fleet, ("offers", name), (), lambda: tuple(_offers(fleet, pool)))

    def options(memory: Memory) -> Iterator[Option]:
        for kind, market, price, unsold in offers:
            failing, until = find_failing(memory, name, kind, market, pool.provider)
            closed = unsold or choice.closed or failing
            ends = None if unsold else choice.until if choice.closed else until
            own = tuple(shared.items())
            yield Option(name, kind, market, choice.id, price, closed, ends, shared=own)

    if memory.has_failures:
        # Where there is another way, the next run takes that, also if it begins late.
        longer = replace(memory, least=timedelta(seconds=fleet.cadence) * 3 / 2)
        found = tuple(options(longer))
        if not all(each.closed for each in found):
            return found
    return tuple(options(memory))


def _offers(fleet: Fleet, pool: Pool) -> Iterator[tuple[str, Market, Decimal | None, str]]:
    """Yield what a pool may buy, at which price, and why it is not sold."""
    for known in find_types(fleet, pool):
        for market in markets_of(pool):
            price = price_per_hour(fleet, known, market)
            unsold = _unsold(fleet, pool, known, market) if price is None else ""
            yield known.name, market, price, unsold


def digests_of(fleet: Fleet, options: Iterable[Option], choice: ImageChoice) -> frozenset[str]:
    """Return the digests of what a pool's machines may be made from today.

    Machines of a version that did not come up often enough, but did for them, are not outdated.
    """
    return frozenset(digest_of(fleet, option, image) for option in options for image in choice.ids)


def digest_of(fleet: Fleet, option: Option, image: str) -> str:
    """Return the digest of what a machine is made from that is made this way with an image."""
    shared = (value for setting in option.shared for value in setting)

    def find() -> str:
        return new_inputs(fleet, replace(option, image=image), "").labels["digest"]

    return remembered(fleet, ("digest", option.key), (image, *shared), find)


def why_closed(options: Iterable[Option]) -> str:
    """Return why a pool's machines can be made in no way at all; empty while one is open."""
    reasons = []
    for option in options:
        if not option.closed:
            return ""
        reasons.append(option.closed)
    return "; ".join(dict.fromkeys(reasons))


def _unsold(fleet: Fleet, pool: Pool, known: MachineType, market: Market) -> str:
    """Return why a type that has no price on a market is not bought there."""
    if market == "spot" and known.spot is None:
        return f"the spot price of {known.name} at provider {pool.provider} is unknown"
    return f"its price in {fleet.money.currency} is unknown"


def wont_make(
    fleet: Fleet,
    inventory: PoolInventory,
    choice: ImageChoice,
    shared: Mapping[str, str] | Unknown = NOTHING_SHARED,
) -> str:
    """Return why a pool makes no machine at all in this run; empty when it may."""
    return next(_obstacles(fleet, inventory, choice, shared), "")


def _obstacles(
    fleet: Fleet,
    inventory: PoolInventory,
    choice: ImageChoice,
    shared: Mapping[str, str] | Unknown,
) -> Iterator[str]:
    pool = fleet.pools.get(inventory.pool)
    if not isinstance(pool, Pool):
        yield "removed from fleet.yaml"
        return
    if inventory.blind:
        yield "its machines are unknown in this run"
    if pool.mode in ("drain", "pause"):
        yield f"mode is {pool.mode}"
    if not find_types(fleet, pool):
        yield "its machine type is not in the catalogue"
    if not choice.id:
        none = f"image {pool.image}{UNPUBLISHED}{pool.provider}"
        yield choice.closed or none
    if isinstance(shared, Unknown):
        yield shared.unknown


def new_inputs(fleet: Fleet, option: Option, worker: str) -> WorkerInputs:
    """Return what a machine is made from that is made this way.

    On demand is what goes without saying, so that buying elsewhere too outdates no machine.
    """
    pool = fleet.pools[option.pool]
    if not isinstance(pool, Pool):
        raise TypeError(option.pool)
    settings = settings_of(fleet, pool, next(_types(fleet, pool, option.type), None))
    settings |= dict(option.shared)
    if option.market != "on-demand":
        settings["market"] = option.market
    architecture = fleet.images[pool.image].architecture
    said = {"provides": pool.provides, "requires": pool.requires}
    made_from = {
        "type": option.type,
        "image": option.image,
        "architecture": architecture,
        "settings": settings,
        # What is not said is left out, so that it outdates nothing.
        **{key: sorted(tags) for key, tags in said.items() if tags},
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


def _types(fleet: Fleet, pool: Pool, name: str) -> Iterator[MachineType]:
    return (known for known in find_types(fleet, pool) if known.name == name)


def renamed(inputs: WorkerInputs, worker: str) -> WorkerInputs:
    """Return the same for another machine that is made the same way."""
    labels = inputs.labels | {"worker": worker}
    return inputs.altered(name=worker, labels=labels)


_UNANSWERED = frozenset({"starting", "gone", "error", "name-taken"})
"""Results of tries that may have made a machine, without a record of it.

A name is taken also where a client repeats a creation whose answer was lost.
"""
_GOING_ON = (MachineState.STARTING, MachineState.RUNNING)


def made_from(
    fleet: Fleet, options: Iterable[Option], choice: ImageChoice, machine: Machine
) -> WorkerInputs | None:
    """Return what a machine was made from; None where fleet.yaml no longer says it."""
    images = dict.fromkeys([machine.image or "", *choice.ids])
    for option in options:
        for image in filter(None, images):
            inputs = new_inputs(fleet, replace(option, image=image), machine.name)
            if inputs.labels["digest"] == machine.digest:
                # A pool that was renamed since: its machines bear the old name.
                return inputs.altered(labels=inputs.labels | {"pool": machine.pool})
    return None


def with_begun(
    fleet: Fleet,
    inventory: PoolInventory,
    options: Iterable[Option],
    choice: ImageChoice,
    tries: Iterable[Attempt],
) -> PoolInventory:
    """Return a inventory in which what an apply made and could not note is an unfinished creation.

    Such a machine bears the pool's mark, and its stack, which is there, knows none of its name:
    the run that noted a try to make it died before it had the answer. Labels alone prove nothing,
    for anybody can copy them; and a lost stack is no such thing.
    """
    stack = inventory.stack
    unrecorded = inventory.having(State.UNRECORDED)
    if stack is None or inventory.blind or not unrecorded:
        return inventory
    known = stack.names
    latest: dict[str, Attempt] = {}
    for attempt in tries:  # the latest comes first
        latest.setdefault(attempt.worker, attempt)
    begun_here = {name for name, attempt in latest.items() if attempt.result in _UNANSWERED}
    begun = {}
    for unit in unrecorded:
        machine = unit.machine
        if machine is None or unit.name in known or machine.state not in _GOING_ON:
            continue
        if unit.name not in begun_here:
            continue
        if made := made_from(fleet, options, choice, machine):
            begun[unit.name] = replace(unit, state=State.UNFINISHED, inputs=made)
    return replace(inventory, units=tuple(begun.get(unit.name, unit) for unit in inventory.units))
