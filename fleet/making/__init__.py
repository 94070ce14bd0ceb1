"""This module says what a new machine is made from, what it is called, and when none is made."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType

from fleet.canonical import digest
from fleet.catalogue import find_types, markets_of, price_per_hour
from fleet.catalogue.tables import MachineType
from fleet.census import PoolCensus
from fleet.census.failures import Memory, why_failing
from fleet.facts import Unknown, WorkerInputs
from fleet.making.image_choice import ImageChoice
from fleet.making.launch_templates import settings_of
from fleet.schema.model import (
    AwsProvider,
    Fleet,
    HcloudProvider,
    HooksProvider,
    LocalProvider,
    Machine,
    Pool,
)
from fleet.schema.pools import Market

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
    """Money per hour in the currency of the file; None where nobody knows it."""
    closed: str = ""
    """Why nothing is made this way in this run; empty when it may be."""
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
    options = []
    for known in find_types(fleet, pool):
        for market in markets_of(pool):
            price = price_per_hour(fleet, known, market)
            unsold = _unsold(fleet, pool, known, market) if price is None else ""
            closed = (
                unsold
                or choice.closed
                or why_failing(memory, name, known.name, market, pool.provider)
            )
            options.append(
                Option(name, known.name, market, choice.id, price, closed, tuple(shared.items()))
            )
    return tuple(options)


def digests_of(fleet: Fleet, options: Iterable[Option], choice: ImageChoice) -> frozenset[str]:
    """Return the digests of what a pool's machines may be made from today.

    Machines of a version that did not come up often enough, but did for them, are not outdated.
    """
    ways = [replace(option, image=image) for option in options for image in choice.ids]
    return frozenset(new_inputs(fleet, way, way.pool).labels["digest"] for way in ways)


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
        return f"no spot price of {known.name} is known at provider {pool.provider}"
    return f"its price is not known in {fleet.money.currency}"


def wont_make(
    fleet: Fleet,
    census: PoolCensus,
    choice: ImageChoice,
    shared: Mapping[str, str] | Unknown = NOTHING_SHARED,
) -> str:
    """Return why a pool makes no machine at all in this run; empty when it may."""
    return next(_obstacles(fleet, census, choice, shared), "")


def _obstacles(
    fleet: Fleet,
    census: PoolCensus,
    choice: ImageChoice,
    shared: Mapping[str, str] | Unknown,
) -> Iterator[str]:
    pool = fleet.pools.get(census.pool)
    if not isinstance(pool, Pool):
        yield "it is no longer in fleet.yaml"
        return
    if census.blind:
        yield "what it has is unknown in this run"
    if pool.mode in ("drain", "pause"):
        yield f"it has mode: {pool.mode}"
    if not find_types(fleet, pool):
        yield "its machine type is not in the catalogue"
    if not choice.id:
        none = f"image {pool.image} has no published version at provider {pool.provider}"
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
    settings = _settings(fleet, pool, next(_types(fleet, pool, option.type), None))
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
        **({"swap": swap_of(pool)} if swap_of(pool) else {}),
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


def _settings(fleet: Fleet, pool: Pool, known: MachineType | None) -> dict[str, str]:
    """Return what else a pool's machines are made from at its provider."""
    provider = fleet.providers[pool.provider]
    match provider:
        case AwsProvider():
            return settings_of(fleet, pool)
        case HcloudProvider():
            return {"location": provider.location}
        case LocalProvider():
            return {"run": shlex.join(provider.run)}
        case HooksProvider() if known is not None:
            figures = {"cores": known.cores, "memory_mib": known.memory, "disk_mib": known.disk}
            figures["swap_mib"] = swap_of(pool)
            return {key: str(figure) for key, figure in figures.items() if figure}
        case _:
            return {}


def swap_of(pool: Pool) -> int:
    """Return how much swap a pool's machines make at their first boot, in MiB."""
    return (pool.machine.swap or 0) if isinstance(pool.machine, Machine) else 0


def renamed(inputs: WorkerInputs, worker: str) -> WorkerInputs:
    """Return the same for another machine that is made the same way."""
    labels = inputs.labels | {"worker": worker}
    return inputs.model_copy(update={"name": worker, "labels": labels})


def market_of(inputs: WorkerInputs | None) -> Market:
    """Return the market that a machine was bought on."""
    return (
        "spot" if inputs is not None and inputs.settings.get("market") == "spot" else "on-demand"
    )
