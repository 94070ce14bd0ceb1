"""The settings of pools that a search may change, each with the values that it tries."""

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.explain.what_if import Edit, apply_edits, value_at, write_value
from fleet.model.prices import find_type, known_types, price_per_hour
from fleet.schema.findings import Path
from fleet.schema.model import Fleet, Machine, Pool

_COUNTS = (*range(9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
_COUNTS += (160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024)
_IDLE = (60, 120, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 14400, 28800)
_LADDERS: dict[Path, tuple[int, ...]] = {
    ("workers", "max"): _COUNTS[1:],
    ("workers", "min"): _COUNTS,
    ("workers", "spare"): _COUNTS,
    ("retire", "idle_after"): _IDLE,
}


@dataclass(frozen=True)
class Ladder:
    """A key of fleet.yaml and the values that may be tried of it, in their order."""

    path: Path
    values: tuple[int | str, ...]
    today: int
    """The place of today's value."""

    @property
    def key(self) -> str:
        """Return the key the way a person writes it."""
        return ".".join(map(str, self.path))

    @property
    def is_type(self) -> bool:
        """Say whether it is of machine types."""
        return self.path[2] == "machine"


Places = tuple[int, ...]
"""The place on each ladder: what a search tries."""


def find_ladders(fleet: Fleet) -> tuple[Ladder, ...]:
    """Return the ladders of all pools whose machines fleet creates and deletes, pool by pool."""
    return tuple(
        ladder
        for name, pool in sorted(fleet.dynamic_pools.items())
        if pool.mode == "apply"
        for ladder in _of_pool(fleet, name, pool)
    )


def edits_of(ladders: tuple[Ladder, ...], places: Places) -> Iterator[Edit]:
    """Yield what changes from today's values."""
    for ladder, place in zip(ladders, places, strict=True):
        if place != ladder.today:
            yield Edit(ladder.path, ladder.values[place])


def fleet_at(fleet: Fleet, ladders: tuple[Ladder, ...], places: Places) -> Fleet:
    """Return the fleet with these values."""
    return apply_edits(fleet, edits_of(ladders, places))


def write_place(fleet: Fleet, ladder: Ladder, place: int) -> str:
    """Return a value the way fleet.yaml writes it."""
    value = ladder.values[place]
    return value if isinstance(value, str) else write_value(fleet, ladder.path, value)


def _of_pool(fleet: Fleet, name: str, pool: Pool) -> Iterator[Ladder]:
    for path, values in _LADDERS.items():
        at = ("pools", name, *path)
        today = value_at(fleet, at)
        ladder = tuple(sorted({*values, today}))
        yield Ladder(at, ladder, ladder.index(today))
    path = _type_path(pool)
    if path:
        at = ("pools", name, *path)
        today = value_at(fleet, at)
        types = _types(fleet, pool, today)
        if today in types:
            yield Ladder(at, types, types.index(today))


def _type_path(pool: Pool) -> Path:
    """Return where a pool names its only machine type; empty where it states figures of it."""
    machine = pool.machine
    if not isinstance(machine, Machine):
        return ("machine",)
    stated = {"cores", "speed", "memory", "disk", "price"} & machine.model_fields_set
    return ("machine", "type") if isinstance(machine.type, str) and not stated else ()


def _types(fleet: Fleet, pool: Pool, today: str) -> tuple[str, ...]:
    """Return the machine types of a provider with the architecture of today's, by price."""
    known = [find_type(fleet, pool, name) for name in known_types(fleet, pool.provider)]
    own = find_type(fleet, pool, today)
    priced = [
        (price, each.name)
        for each in known
        if each is not None and own is not None and each.architecture == own.architecture
        if (price := price_per_hour(fleet, each, "on-demand")) is not None
    ]
    return tuple(name for _, name in sorted(priced))
