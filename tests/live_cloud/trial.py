"""Make one machine in a real account for a short while, for a bounded price."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from types import FrameType
from typing import Protocol

from fleet.engines.projects import ProviderAccount
from fleet.engines.pulumi import PulumiEngine
from fleet.errors import FleetError
from fleet.model.facts import Listing, Machine, WorkerInputs
from fleet.model.prices import billing_of, price_of_type
from fleet.ports import MachineApi, Provider, StackRef
from fleet.schema.model import Fleet
from tests.ports.engines import quiet

CEILING = Decimal("0.10")
"""What one run may cost at most, in the currency of its catalogue."""
LONGEST = timedelta(minutes=10)
USER_DATA = "#cloud-config\n"


class TooDear(Exception):
    """The machine could cost more than the ceiling; nothing was made."""


class Kept(Provider, MachineApi, Protocol):
    """A cloud that lists its machines and ends them."""


@dataclass(frozen=True)
class Trial:
    """One machine in one account, and what it is made from."""

    cloud: Kept
    account: ProviderAccount
    worker: WorkerInputs
    folder: Path
    base: Mapping[str, object] = field(default_factory=dict)
    """What the account's base stack holds, as its program takes it."""

    @property
    def ref(self) -> StackRef:
        """Return the pool's stack."""
        fleet, pool = self.worker.labels["fleet"], self.worker.labels["pool"]
        project = "aws" if self.base else "hcloud"
        return StackRef(project=project, name=f"{fleet}-{pool}", provider="live", pool=pool)

    def up(self, *workers: WorkerInputs) -> None:
        """Have the pool hold exactly these workers."""
        user_data = {worker.name: USER_DATA for worker in workers}
        self.engine().up(self.ref, workers, quiet, user_data)

    def lay(self, inputs: Mapping[str, object]) -> None:
        """Have the account's base stack hold exactly this."""
        ref = self.ref.altered(name=f"{self.worker.labels['fleet']}.live")
        self.engine(inputs).up(ref, [], quiet)

    def machines(self) -> tuple[Machine, ...]:
        """Return what the provider lists and has not ended."""
        listing = self.cloud.list(self.worker.labels["fleet"])
        assert isinstance(listing, Listing), listing
        return tuple(each for each in listing.machines if each.state != "stopping")

    def engine(self, base: Mapping[str, object] | None = None) -> PulumiEngine:
        """Return the real engine, for the pool's stack or for the base."""
        given = ProviderAccount(
            self.account.provider, self.account.config, self.account.environment, base or {}
        )
        return PulumiEngine(
            f"file://{self.folder / 'state'}",
            self.folder / "home",
            lambda: "a passphrase for one trial",
            {"live": given},
        )


@contextmanager
def cleaned_up(trial: Trial) -> Iterator[Trial]:
    """Make what the trial needs, and end all of it whatever happens: by stack, then by mark."""
    try:
        if trial.base:
            trial.lay(trial.base)
        yield trial
    finally:
        with suppress(FleetError):
            trial.up()
        for machine in trial.machines():
            trial.cloud.delete(machine.id)
        if trial.base:
            trial.lay({})


@contextmanager
def bounded(fleet: Fleet, provider: str, machine_type: str) -> Iterator[None]:
    """Refuse what could cost more than the ceiling; end what takes longer than it may."""
    price = price_of_type(fleet, provider, machine_type)
    if price is None:
        raise TooDear(f"the catalogue has no price of {machine_type}: nothing was made")
    cost = price * _billed_hours(billing_of(fleet, provider).increment)
    if cost > CEILING:
        minutes = int(LONGEST.total_seconds() // 60)
        raise TooDear(
            f"{minutes} minutes of {machine_type} could cost {cost:.3f} {fleet.money.currency}, "
            f"more than {CEILING}: nothing was made"
        )
    before = signal.signal(signal.SIGALRM, _end)
    signal.alarm(int(LONGEST.total_seconds()))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _billed_hours(increment: int) -> Decimal:
    """Return the time that the longest run is billed for."""
    steps = Decimal(LONGEST.total_seconds()) / increment
    return steps.to_integral_value(ROUND_CEILING) * increment / 3600


def _end(_: int, __: FrameType | None) -> None:
    raise TimeoutError(f"this trial may take no longer than {LONGEST}")
