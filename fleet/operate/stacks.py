"""This module reads the stacks that a fleet has, under the names that they have."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from fleet.census.renames import heirs_of, stack_name
from fleet.errors import FleetError
from fleet.facts import Listing, Stack, Unknown
from fleet.facts.bases import Base
from fleet.ports import Asking, Engine, Sharer, StackRef
from fleet.ports.store import StackRecord
from fleet.schema.model import Fleet, Pool


def stack_ref(fleet: Fleet, pool: str, provider: str, stack: Stack | None = None) -> StackRef:
    """Return which stack holds a pool's machines at a provider; one that it has keeps its name."""
    declared = fleet.providers.get(provider)
    return StackRef(
        project=declared.kind if declared else "",
        name=stack_name(fleet, pool, stack),
        provider=provider,
        pool=pool,
    )


def base_ref(fleet: Fleet, provider: str) -> StackRef:
    """Return which stack holds what a provider's machines share; no pool's is called so."""
    return StackRef(
        project=fleet.providers[provider].kind,
        name=f"{fleet.fleet}.{provider}",
        provider=provider,
        pool="",
    )


def read_bases(
    fleet: Fleet, bases: Mapping[str, Sharer], asking: Asking
) -> dict[str, Base | Unknown]:
    """Return the base stacks that exist."""
    asked = {name: partial(base.read, base_ref(fleet, name)) for name, base in bases.items()}
    read = asking("the base of provider", asked)
    return {name: base for name, base in read.items() if base is not None}


def read_stacks(
    fleet: Fleet,
    known: Iterable[StackRecord],
    listings: Mapping[str, Listing | Unknown],
    engine_of: Callable[[str], Engine],
    asking: Asking,
) -> dict[str, Stack | Unknown]:
    """Return the stacks of pools that are configured, remembered, or named by a machine."""
    records = _by_heir(fleet, known)
    configured = {
        name: pool.provider for name, pool in fleet.pools.items() if isinstance(pool, Pool)
    }
    remembered = {pool: record.provider for pool, record in records.items()}
    heirs = heirs_of(fleet)
    named = {
        heirs.get(machine.pool, machine.pool): provider
        for provider, listing in listings.items()
        if isinstance(listing, Listing)
        for machine in listing.machines
    }
    owners = {record.name: pool for pool, record in records.items()}
    reader = _StackReader(fleet, owners, engine_of, asking)
    stacks = {}
    for pool, provider in sorted((named | remembered | configured).items()):
        stack = reader.of_pool(pool, provider, records.get(pool))
        if stack is not None:
            stacks[pool] = stack
    return stacks


def _by_heir(fleet: Fleet, known: Iterable[StackRecord]) -> dict[str, StackRecord]:
    """Return the remembered stacks by pool, renamed pools by their new name."""
    records = {record.pool: record for record in known}
    heirs = {old: new for old, new in heirs_of(fleet).items() if new not in records}
    return {heirs.get(pool, pool): record for pool, record in records.items()}


@dataclass(frozen=True)
class _StackReader:
    fleet: Fleet
    owners: Mapping[str, str]
    """Stack to the pool that it was recorded for."""
    engine_of: Callable[[str], Engine]
    asking: Asking

    def of_pool(
        self, pool: str, provider: str, record: StackRecord | None
    ) -> Stack | Unknown | None:
        """Return a pool's stack, under the name that it has; None where it has none."""
        ref = stack_ref(self.fleet, pool, provider)
        if record is not None:
            return self._named(ref, record.name, record)
        if ref.name in self.owners and pool not in self.fleet.pools:
            return None  # only labels still bear the old name
        if ref.name in self.owners:
            return Unknown(
                unknown=f"stack {ref.name} belongs to pool {self.owners[ref.name]}, which was "
                f"renamed; give pool {pool} another name"
            )
        stack = self._read(ref, None)
        declared = self.fleet.pools.get(pool)
        old = declared.previously if isinstance(declared, Pool) else None
        if stack is not None or old is None:
            return stack
        return self._named(ref, stack_ref(self.fleet, old, provider).name, None)

    def _named(
        self, ref: StackRef, name: str, record: StackRecord | None
    ) -> Stack | Unknown | None:
        """Return the stack of this name, which it notes where the pool is called otherwise."""
        stack = self._read(ref.model_copy(update={"name": name}), record)
        if not isinstance(stack, Stack) or name == stack_name(self.fleet, ref.pool):
            return stack
        return stack.model_copy(update={"name": name})

    def _read(self, ref: StackRef, record: StackRecord | None) -> Stack | Unknown | None:
        if record is not None and record.provider != ref.provider:
            return Unknown(
                unknown=f"its machines are at provider {record.provider}, fleet.yaml now says "
                f"{ref.provider}; give the pool at {ref.provider} a new name, or once it is "
                f"empty: fleet state init --forget-stack {ref.name}"
            )
        try:
            engine = self.engine_of(ref.provider)
        except FleetError as error:
            return Unknown(unknown=str(error))
        read = self.asking("stack", {ref.name: partial(engine.read, ref)})[ref.name]
        stack = _own(ref, read, self.fleet, record)
        if record is None or isinstance(stack, Unknown):
            return stack
        if record.engine != engine.name:
            return Unknown(
                unknown=f"it belongs to engine {record.engine}, not {engine.name}; "
                f"set `engine: {record.engine}` on provider {ref.provider} again"
            )
        # Serial 0 was recorded before the first operation: that stack may never have come to be.
        if stack is None and record.serial > 0:
            return Unknown(
                unknown=f"stack {ref.name} was there before and is missing now; restore the "
                "state, or if it is really gone: fleet state init --forget-stack " + ref.name
            )
        return stack


def _own(
    ref: StackRef, stack: Stack | Unknown | None, fleet: Fleet, record: StackRecord | None
) -> Stack | Unknown | None:
    """Return a stack, but Unknown where it holds what is not this pool's.

    Pool `b` of fleet `debian-ci` and pool `ci-b` of fleet `debian` have stacks of one name. What
    pools were called when their machines were made, the store remembers by its record.
    """
    pool = fleet.pools.get(ref.pool)
    names = {ref.pool, pool.previously if isinstance(pool, Pool) else None}
    for worker in stack.workers if isinstance(stack, Stack) else ():
        theirs = (worker.labels.get("fleet", fleet.fleet), worker.labels.get("pool", ref.pool))
        if theirs[0] != fleet.fleet or (record is None and theirs[1] not in names):
            return Unknown(
                unknown=f"stack {ref.name} holds machines of pool {theirs[1]} of fleet "
                f"{theirs[0]}; rename the pool, or give each fleet a state.backend of its own"
            )
    return stack
