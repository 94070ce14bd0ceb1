"""This module wires the providers that a fleet.yaml names, and the engines that change them."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from fleet.census.expiry import extended
from fleet.commands.withheld import withheld
from fleet.errors import EngineAbsent, SecretMissing
from fleet.facts import Listing, Unknown
from fleet.ports import Clock, Engine, Keeper, PriceReader, Provider, Registry, Sharer
from fleet.providers.aws import AwsMachines
from fleet.providers.aws_shared import AwsShared
from fleet.providers.hcloud import HcloudMachines, write_moment
from fleet.providers.hcloud_prices import HcloudPrices
from fleet.providers.hcloud_shared import HcloudShared
from fleet.providers.hooks import HookMachines, Surroundings
from fleet.providers.local import LocalMachines
from fleet.providers.local_workers import LocalWorkers
from fleet.providers.sim import SimCloud
from fleet.providers.slots import Slots
from fleet.schema.model import (
    AwsProvider,
    DebusineQueue,
    Fleet,
    HcloudProvider,
    HooksProvider,
    LocalProvider,
    Pool,
    SimProvider,
)
from fleet.schema.model import Provider as ProviderModel
from fleet.store.places import Places
from fleet.store.secrets import HostSecrets

if TYPE_CHECKING:
    from fleet.engines.pulumi import Account


@dataclass(frozen=True)
class Clouds:
    """The providers that the embedded engine can change, by name."""

    simulated: Mapping[str, SimCloud]
    processes: Mapping[str, LocalMachines]
    hooked: Mapping[str, HookMachines]

    @property
    def registries(self) -> dict[str, Registry]:
        """Return those at which workers register, and nowhere else."""
        own = {k: each for k, each in self.processes.items() if isinstance(each, LocalWorkers)}
        return {**self.simulated, **own}

    @property
    def here(self) -> dict[str, SimCloud | LocalMachines | HookMachines]:
        """Return all of them: what the embedded engine can change."""
        return {**self.simulated, **self.processes, **self.hooked}


def find_clouds(
    fleet: Fleet,
    places: Places,
    base: Path,
    clock: Clock,
    slots: Slots | None = None,
) -> Clouds:
    """Return the clouds on this computer; relative paths are relative to fleet.yaml's folder.

    `slots` bound what is done at once; without them machines are only read, and no livecheck is
    run.
    """
    at_queue = any(isinstance(queue, DebusineQueue) for queue in fleet.queues.values())
    kind = LocalMachines if at_queue else LocalWorkers
    # Of our own environment, which holds secrets, processes get nothing else.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    return Clouds(
        simulated={
            name: SimCloud(_sim_path(provider, name, places, base), clock)
            for name, provider in fleet.providers.items()
            if isinstance(provider, SimProvider)
        },
        processes={
            name: kind(
                _local_path(provider, name, places, base), clock, provider.faults, environment
            )
            for name, provider in fleet.providers.items()
            if isinstance(provider, LocalProvider)
        },
        hooked={
            name: HookMachines(
                provider,
                Surroundings(
                    provider=name,
                    fleet=fleet.fleet,
                    folder=base,
                    state=places.folder / f"hooks-{name}",
                    environment=environment,
                    ours=os.environ,
                    pools=_pools_at(fleet, name),
                    looks=slots is not None,
                    slots=slots or Slots(),
                ),
                clock,
            )
            for name, provider in fleet.providers.items()
            if isinstance(provider, HooksProvider)
        },
    )


def provider_of(provider: ProviderModel, secrets: HostSecrets) -> Provider:
    """Return what lists a provider's machines, where they are not on this computer."""
    match provider:
        case HcloudProvider():
            try:
                return HcloudMachines(provider, secrets.read(provider.token))
            except SecretMissing as error:
                return _UnreadableProvider(str(error))
        case AwsProvider():
            return AwsMachines(provider)
        case LocalProvider() | HooksProvider() | SimProvider():
            return _UnreadableProvider(f"providers of kind {provider.kind} cannot be listed yet")
    assert_never(provider)


def prices_of(fleet: Fleet, secrets: HostSecrets) -> dict[str, PriceReader]:
    """Return what asks providers for their prices; one without a token is not asked."""
    readers: dict[str, PriceReader] = {}
    for name, provider in fleet.providers.items():
        if isinstance(provider, HcloudProvider):
            with suppress(SecretMissing):
                readers[name] = HcloudPrices(provider, secrets.read(provider.token))
    return readers


def keepers_of(providers: Mapping[str, Provider]) -> dict[str, Keeper]:
    """Return those whose machines can be looked after without their stack."""
    kinds = (AwsMachines, HcloudMachines, HookMachines, LocalMachines, SimCloud)
    return {name: each for name, each in providers.items() if isinstance(each, kinds)}


def engines_of(
    fleet: Fleet, places: Places, clouds: Clouds, secrets: HostSecrets, now: datetime
) -> Callable[[str], Engine]:
    """Return what tells which engine changes a provider's stacks; EngineAbsent where none does.

    A machine that is made in this run is vouched for from `now` on.
    """

    @cache
    def engine(name: str) -> Engine:
        if name == "embedded":
            from fleet.engines.embedded import EmbeddedEngine

            return EmbeddedEngine(places.embedded, clouds.here, hearsay=clouds.hooked)
        from fleet.engines.pulumi import PulumiEngine

        passphrase = fleet.state.passphrase
        return PulumiEngine(
            places.backend,
            places.folder / "pulumi",
            (lambda: secrets.read(passphrase)) if passphrase else None,
            _accounts(fleet, clouds.simulated, secrets, notes_of(fleet, now, os.environ)),
        )

    def engine_of(provider: str) -> Engine:
        declared = fleet.providers.get(provider)
        if declared is None:
            raise EngineAbsent(
                f"provider {provider} is no longer in fleet.yaml; keep it until its machines are "
                "gone"
            )
        return engine(declared.engine)

    return engine_of


def bases_of(fleet: Fleet, places: Places, secrets: HostSecrets) -> Mapping[str, Sharer]:
    """Return what changes the base stacks of providers whose machines share something."""
    kinds = AwsProvider | HcloudProvider
    declared = {name: each for name, each in fleet.providers.items() if isinstance(each, kinds)}
    if not declared:
        return {}
    from fleet.engines.pulumi import Account
    from fleet.engines.pulumi_base import PulumiBase

    passphrase = fleet.state.passphrase
    bases = {}
    for name, provider in declared.items():
        listed, marked = provider_of(provider, secrets), partial(_shared_parts, provider, secrets)
        if isinstance(provider, AwsProvider):
            account = Account(
                listed,
                config={"aws:region": provider.region},
                environment=partial(_environment, fleet),
                clear=AwsShared(provider.region).clear,
            )
        else:
            own = partial(_hcloud_environment, fleet, provider, secrets)
            account = Account(listed, environment=own)
        bases[name] = PulumiBase(
            places.backend,
            places.folder / "pulumi",
            (lambda: secrets.read(passphrase)) if passphrase else None,
            account,
            marked,
        )
    return bases


def notes_of(fleet: Fleet, now: datetime, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a new machine that say nothing of what it is made from."""
    notes = {"expires": write_moment(extended(fleet, now))}
    commit = environment.get("CI_COMMIT_SHA", "")
    return notes | {"commit": commit} if re.fullmatch(r"[0-9a-f]{7,63}", commit) else notes


def _accounts(
    fleet: Fleet,
    simulated: Mapping[str, SimCloud],
    secrets: HostSecrets,
    notes: Mapping[str, str],
) -> dict[str, "Account"]:
    """Return what the real engine needs of each provider; tokens go to it by environment."""
    from fleet.engines.pulumi import Account

    accounts = {
        name: Account(
            cloud, config={"sim:path": str(cloud.path)}, environment=partial(_environment, fleet)
        )
        for name, cloud in simulated.items()
    }
    for name, declared in fleet.providers.items():
        if isinstance(declared, HcloudProvider):
            environment = partial(_hcloud_environment, fleet, declared, secrets)
            accounts[name] = Account(
                provider_of(declared, secrets), environment=environment, inputs={"notes": notes}
            )
        elif isinstance(declared, AwsProvider):
            accounts[name] = Account(
                AwsMachines(declared),
                config={"aws:region": declared.region},
                environment=partial(_environment, fleet),
                inputs={"notes": notes},
            )
    return accounts


def _shared_parts(
    provider: AwsProvider | HcloudProvider, secrets: HostSecrets, fleet: str
) -> Mapping[str, str] | Unknown:
    """Return what of a base can be adopted; at AWS it is cleared away instead."""
    if isinstance(provider, AwsProvider):
        return {}
    return HcloudShared(secrets.read(provider.token)).list(fleet)


def _environment(fleet: Fleet) -> dict[str, str]:
    return withheld(fleet, os.environ)


def _hcloud_environment(
    fleet: Fleet, provider: HcloudProvider, secrets: HostSecrets
) -> dict[str, str]:
    return {**_environment(fleet), "HCLOUD_TOKEN": secrets.read(provider.token)}


def _pools_at(fleet: Fleet, provider: str) -> frozenset[str]:
    pools = fleet.pools.items()
    return frozenset(k for k, p in pools if isinstance(p, Pool) and p.provider == provider)


def _sim_path(provider: SimProvider, name: str, places: Places, base: Path) -> Path:
    return base / provider.path if provider.path else places.folder / f"sim-{name}.json"


def _local_path(provider: LocalProvider, name: str, places: Places, base: Path) -> Path:
    return base / provider.path if provider.path else places.folder / f"local-{name}"


class _UnreadableProvider:
    """A provider that cannot be listed, and why."""

    def __init__(self, reason: str) -> None:
        self._reason = Unknown(unknown=reason)

    def list(self, fleet: str) -> Listing | Unknown:  # noqa: ARG002 - the port's own argument
        """Return that nothing is known."""
        return self._reason
