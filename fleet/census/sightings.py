"""This module sorts what was seen of machines and workers by pool, once for all pools."""

from collections.abc import Mapping, Sequence

from fleet.census.readiness import is_up
from fleet.census.registrations import Registries, workers_by_machine
from fleet.census.renames import find_owners
from fleet.facts import Listing, Machine, Unknown, Worker, World
from fleet.schema.model import Fleet
from fleet.tagrules import static_names
from fleet.tickets.desk import attend


class Seen:
    """What every pool's census looks at."""

    def __init__(self, fleet: Fleet, world: World) -> None:
        self._static = static_names(fleet)
        self.owners = find_owners(fleet, world)
        self._registered: dict[object, Mapping[str, tuple[str, Worker]]] = {}
        self._world = world
        self._fleet = fleet
        self._attended: dict[object, Mapping[str, tuple[Worker, ...]] | Unknown] = {}
        self._machines: dict[str, dict[str, list[Machine]]] = {}
        self._ids: dict[str, set[tuple[str, str]]] = {}
        for provider, listing in sorted(world.providers.items()):
            if isinstance(listing, Listing):
                by_pool = self._machines.setdefault(provider, {})
                self._ids[provider] = {(m.name, m.id) for m in listing.machines}
                for machine in listing.machines:
                    by_pool.setdefault(self.owners.owner_of(machine), []).append(machine)

    def machines(self, provider: str, pool: str) -> Sequence[Machine]:
        """Return the machines of a pool that a provider lists."""
        return self._machines.get(provider, {}).get(pool, ())

    def listers(self, pool: str) -> list[str]:
        """Return the providers that list machines of a pool, sorted."""
        return [provider for provider, by_pool in self._machines.items() if pool in by_pool]

    def lists(self, provider: str, machine: Machine) -> bool:
        """Say whether a provider lists a machine, under whatever pool."""
        return (machine.name, machine.id) in self._ids.get(provider, ())

    def pools(self) -> set[str]:
        """Return every pool of which a provider lists machines."""
        return {pool for by_pool in self._machines.values() for pool in by_pool}

    def attended(
        self, desks: tuple[str, ...], provider: str, listing: Listing
    ) -> Mapping[str, tuple[Worker, ...]] | Unknown:
        """Return the workers of a provider's machines by the desk that gives them out."""
        key = (desks, provider)
        if key not in self._attended:
            self._attended[key] = attend(self._world, desks, listing, self._is_up)
        return self._attended[key]

    def _is_up(self, machine: Machine) -> bool:
        return is_up(self._fleet, self.owners.owner_of(machine), machine)

    def registered(self, registries: Registries) -> Mapping[str, tuple[str, Worker]]:
        """Return machine name to where its worker is registered, and the worker."""
        key = tuple((name, id(workers)) for name, workers in registries.items())
        if key not in self._registered:
            self._registered[key] = workers_by_machine(registries, self._static)
        return self._registered[key]
