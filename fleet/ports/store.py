"""This module names what must outlive a run: the port of the store, and what is recorded in it."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Literal, Protocol

from pydantic import Field

from fleet.facts import Attempt
from fleet.facts.ledger import Entry, Ledger
from fleet.facts.manifest import Manifest
from fleet.facts.prices import PriceList
from fleet.facts.values import Moment, Value
from fleet.facts.versions import Move, Version


class StackRecord(Value):
    """What the store remembers of a stack, so that a missing one is noticed."""

    name: str
    pool: str
    provider: str
    project: str
    engine: Literal["embedded", "pulumi"]
    serial: int


class Charging(Value):
    """What to add to the ledger for the time between two moments, in one currency.

    With `until` before `since`, what was charged for hours from `until` on is taken back.
    """

    since: Moment | None = Field(description="`charged_until` of the ledger it rests on.")
    until: Moment
    currency: str
    entries: tuple[Entry, ...] = ()


class Since(Value):
    """When the current hour, day and month began."""

    hour: Moment
    day: Moment
    month: Moment


class Store(Protocol):
    """What must outlive a run."""

    def stacks(self) -> tuple[StackRecord, ...]:
        """Return every stack that was ever made and not yet removed, sorted by name."""

    def record_stack(self, record: StackRecord) -> None:
        """Remember a stack; raises EngineMismatch when another engine owns it.

        Where it was another pool's, that pool was renamed: charges and attempts follow it.
        """

    def forget_stack(self, name: str) -> None:
        """Drop a stack that is empty and whose pool is gone."""

    def begin_run(self, *, started: datetime) -> None:
        """Append a run without an end to the journal, so that one that dies is seen."""

    def record_step(self, *, started: datetime, step: str) -> None:
        """Append a line on what the run that was begun then is about to change to its journal."""

    def record_run(self, *, started: datetime, ended: datetime, plan: str, outcome: str) -> None:
        """End the run that was begun then, or append one that was not."""

    def last_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs, newest first."""

    def ended_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs that carried a plan out to its end, newest first."""

    def charge(self, charging: Charging) -> bool:
        """Add to the ledger, all or nothing; False when its time was charged by someone else."""

    def ledger(self, since: Since, currency: str) -> Ledger:
        """Return what was charged in the current hour, day and month, by payer.

        Raises StoreFailed where the month was charged in another currency.
        """

    def record_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Remember tries to make machines; a try is known by its worker and its time."""

    def attempts(self, latest: int) -> tuple[Attempt, ...]:
        """Return the latest tries of each pool, machine type and market, the oldest first.

        And all of those that nobody heard the end of.
        """

    def spent(self) -> Mapping[str, tuple[str, ...]]:
        """Return the digest of each approval that was used, to the machines it was used for."""

    def spend(self, approval: str, machines: Collection[str]) -> None:
        """Use an approval for these machines; one that it was used for already counts once."""

    def refund(self, approval: str, machines: Collection[str]) -> None:
        """Take back what an approval was used for where it was not done after all."""

    def image_versions(self) -> tuple[Version, ...]:
        """Return every version that is remembered, by image, the oldest first."""

    def save_image_version(self, version: Version, *, was: Version | None) -> None:
        """Remember a version in place of what it was; None: it is new.

        Raises VersionMoved where somebody else changed, dropped or added it in the meantime.
        """

    def move_image_versions(self, moves: Sequence[Move]) -> None:
        """Do that with several, all or none."""

    def forget_image_version(self, image: str, version: str) -> None:
        """Drop what is remembered of a version; one that nobody remembers is fine."""

    def save_manifest(self, manifest: Manifest) -> None:
        """Remember what a published version holds, in place of what was known of it."""

    def manifest(self, image: str, version: str) -> Manifest | None:
        """Return what a published version holds; None where nobody remembers it."""

    def rules_seen(self) -> Mapping[str, tuple[str, datetime]]:
        """Return, by queue and place, the digest of the rules seen last, and since when."""

    def see_rules(self, seen: Mapping[str, tuple[str, datetime]]) -> None:
        """Remember that."""

    def price_lists(self) -> Mapping[str, PriceList]:
        """Return, by provider, the price list that was kept last; what nobody can read is none."""

    def keep_price_list(self, provider: str, prices: PriceList) -> None:
        """Keep a price list in place of what was kept of this provider."""

    def server_time(self) -> datetime | None:
        """Return what the clock of the store's server says; None where it has none of its own."""

    def lock(self, owner: str, now: datetime) -> AbstractContextManager[str | None]:
        """Hold the fleet's lock, or raise Locked with who holds it since when.

        Yields who died holding it, where the store can tell that.
        """
