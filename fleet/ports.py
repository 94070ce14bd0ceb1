"""The interfaces of apply to the outside, as protocols, and the values that they exchange.

Each implementation raises only errors of fleet.errors. Each protocol has a fake and a contract
suite in tests/ports/.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from pydantic import Field

from fleet.model.disks import ImageDisk
from fleet.model.doctor import Summary
from fleet.model.facts import (
    Absence,
    Attempt,
    Base,
    Departure,
    Entry,
    Found,
    HeldRules,
    Ledger,
    Listing,
    Machine,
    MachinePayer,
    Part,
    PriceList,
    QueueReading,
    Stack,
    Unknown,
    Worker,
    WorkerInputs,
    World,
)
from fleet.model.history import Observed, Sample
from fleet.model.images import (
    BuildOrder,
    BuildStep,
    Manifest,
    Move,
    Rental,
    Upload,
    Version,
)
from fleet.model.log import Chain, LogEntry, Mark
from fleet.model.months import Counted, Tally
from fleet.model.orders import Order
from fleet.model.outcome import StackOutcome
from fleet.model.plan import Plan
from fleet.model.tickets import Given, Leased, Ticket
from fleet.model.values import Moment, Tags, Value
from fleet.schema.model import Fleet

T = TypeVar("T")
Told_co = TypeVar("Told_co", covariant=True)


class Clock(Protocol):
    """The clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""


Tell = Callable[[str], None]
"""Receives progress messages, one line each."""


class Waiter(Protocol):
    """Waits between two runs."""

    def wait(self, seconds: float) -> bool:
        """Wait for these seconds; False if a signal requests the end."""


class Queue(Protocol):
    """A queue of work, and for some queues the registry of its workers."""

    def read(self, now: datetime) -> QueueReading:
        """Return waiting requests and workers; an unreadable part is Unknown, never empty."""


class Server(Protocol):
    """The status of a queue's server; all methods raise SourceUnreachable on failure."""

    def summary(self) -> Summary:
        """Return the public summary: time, workers and their work."""

    def user(self) -> str:
        """Return the user of the token; empty if the server rejects it."""

    def counts(self) -> Mapping[str, int]:
        """Return the pending work for workers by scope, without a token."""


class RuleReader(Protocol):
    """The rules with which a queue assigns tags to requests."""

    def read(self) -> Mapping[str, HeldRules | Unknown]:
        """Return the rules of each place in fleet.yaml; unreadable ones are Unknown."""


class WebPage(NamedTuple):
    """The response for a page."""

    content: bytes
    kind: str
    """Media type."""
    tag: str
    """Identifier of the content (ETag)."""


@runtime_checkable
class Registry(Protocol):
    """The registry of a queue's workers; only some queues have one."""

    def drain(self, worker: str) -> None:
        """Make the queue give this worker no new work, and verify it."""

    def resume(self, worker: str) -> None:
        """Revert `drain`: the queue may give the worker new work again."""

    def disable(self, worker: str) -> None:
        """Disable the worker permanently; raises WorkerBusy while it runs work."""

    def revoke(self, worker: str) -> None:
        """Revoke the token of a worker that never registered, and verify that it did not.

        Raises WorkerBusy if it has registered meanwhile; after the revocation it cannot.
        """

    def release(self, worker: str) -> None:
        """Disable a worker whose machine is gone, and return its work to the queue."""

    def confirm(self, tell: Tell) -> None:
        """Verify that the changes of this run persist, after a delay that the queue needs.

        `tell` receives the duration.
        """


class Enrolment(Value):
    """A worker before its machine is created, as its queue must register it."""

    worker: str = Field(description="Name of the worker and of its machine.")
    fleet: str
    pool: str
    provides: Tags = Field(
        (), description="Tags of the pool, in addition to the tags that the worker reports."
    )
    requires: Tags = ()
    expires: Moment = Field(description="Until when the token may be used for the first time.")


class Enroller(Protocol):
    """Registers new workers; for queues whose workers fleet creates."""

    def enrol(self, enrolment: Enrolment) -> str:
        """Return the activation token of a new worker, or of an earlier one of its name.

        An earlier drain is cleared, and an older token stops working. Raises WorkerBusy if a
        worker of that name runs work; the token is in no message and no log.
        """


class Provider(Protocol):
    """The provider's own listing of machines."""

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines whose label `fleet` is exactly this name."""


class Prober(Protocol):
    """Tries a port of a machine once."""

    def answers(self, address: str, port: int, banner: str) -> bool:
        """Return whether the port accepts a connection and sends the banner; any if it is empty.

        Raises SourceUnreachable if no attempt was possible, which says nothing about the machine.
        """


@runtime_checkable
class MachineApi(Protocol):
    """Changes machines without their stack; only some providers have this."""

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Write the expiry of machines, by provider id, if they exist.

        The expiry is not part of a machine's inputs.
        """

    def delete(self, machine_id: str) -> None:
        """Delete a machine, if it exists."""


@runtime_checkable
class ConsoleReader(Protocol):
    """A provider that stores the console output of its machines."""

    def console(self, machine_id: str) -> str:
        """Return the console output, at least its end; empty if there is no output yet.

        Raises SourceUnreachable if it is unreadable or the machine is gone.
        """


@runtime_checkable
class Adopter(Protocol):
    """Finds existing machines by a label and marks them; only some providers can."""

    def find(self, key: str, value: str) -> Sequence[Found]:
        """Return all machines with exactly this label, created by fleet or not.

        Raises SourceUnreachable if the list may be incomplete.
        """

    def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
        """Add the labels of a worker to a machine, without other changes."""


class Step(Value):
    """A planned or completed operation on one resource of a stack."""

    worker: str
    operation: Literal["create", "delete", "update", "replace", "same"]
    detail: str = ""
    """The changed inputs; empty for an update that only clears a failed creation in Pulumi."""


class StackRef(Value):
    """The identity of a stack: `project` is stacks/<project>, `name` is unique in its backend."""

    project: str
    name: str
    provider: str
    pool: str


Progress = Callable[[Step], None]
NO_USER_DATA: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Change:
    """A prepared change of a stack."""

    steps: tuple[Step, ...]
    """The steps, as `preview` returns them."""
    make: Callable[[Progress, Mapping[str, str]], tuple[Step, ...]]
    """Makes the change, like `up`; call it once."""


class Engine(Protocol):
    """Applies the desired workers of a stack."""

    name: Literal["embedded", "pulumi"]

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the recorded stack; None if it never existed. Starts no operation."""

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[Step, ...]:
        """Return the steps of `up`, sorted by name, without `same`."""

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[Step, ...]:
        """Apply the changes and return the steps; raises StackFailed if any failed.

        `user_data` has the boot data of new workers by name. It holds secrets: it goes only to the
        provider, and is never stored in clear. An empty text means that an earlier run created the
        machine with its own data, so adopt it; if it is gone, raise StackFailed before any change.
        """

    def prepare(
        self, ref: StackRef, workers: Sequence[WorkerInputs]
    ) -> AbstractContextManager[Change]:
        """Hold a change for inspection; leaving the block cancels a change that was not made."""

    def forget(self, ref: StackRef, worker: str) -> None:
        """Remove a worker that is gone from the record, without calling its provider.

        Raises PlanRefused if the stack does not contain it.
        """


class SharedStackEngine(Protocol):
    """Applies the shared parts (base) of one provider's machines; only some providers have one."""

    def read(self, ref: StackRef) -> Base | Unknown | None:
        """Return the recorded base; None if it never existed. Starts no operation."""

    def preview(self, ref: StackRef, parts: Sequence[Part]) -> tuple[Step, ...]:
        """Return the steps of `up`, sorted by name, without `same`."""

    def up(self, ref: StackRef, parts: Sequence[Part], progress: Progress) -> tuple[Step, ...]:
        """Apply the changes and return the steps; raises StackFailed if any failed."""


class PriceReader(Protocol):
    """Reads a provider's prices at one location; only some providers have a price API."""

    location: str

    def read(self, now: datetime) -> PriceList:
        """Return the prices; raises SourceUnreachable if any is missing."""


class Secrets(Protocol):
    """Reads a secret by its reference; the result is never logged or stored."""

    def read(self, reference: object) -> str:
        """Return the secret; raises SecretMissing with the reference, never the value."""

    def exposure(self, reference: object) -> tuple[str, str] | None:
        """Return the file's excess permissions and the command to remove them; None if fine."""


class Asking(Protocol):
    """Reads several sources; a failed one, or one beyond the common time limit, is Unknown."""

    def __call__(self, kind: str, asked: Mapping[str, Callable[[], T]]) -> dict[str, T | Unknown]:
        """Return the result of each source of this kind, by name."""


class Members(Protocol):
    """The members of groups."""

    def read(self) -> Mapping[str, tuple[str, ...]] | Unknown:
        """Return the users of each group; an unreadable list is Unknown, never empty."""


class Messenger(Protocol):
    """A channel for notifications."""

    def send(self, subject: str, text: str, body: Mapping[str, object]) -> None:
        """Send a message, as text and as JSON; raises SourceUnreachable or SecretMissing."""


class Console(Protocol):
    """The output of a command; only cli.py implements it."""

    colour: bool
    watched: bool
    """Whether a user sees `progress`; otherwise only lines are shown."""

    def columns(self, piped: int | None) -> int | None:
        """Return the columns of the terminal, in a pipe those of `piped`; None: unlimited."""

    def out(self, text: str) -> None:
        """Write to standard output."""

    def note(self, text: str) -> None:
        """Write a line to standard error."""

    @property
    def can_ask(self) -> bool:
        """Whether a user is present."""

    def ask(self, question: str) -> str:
        """Return a user's answer; empty if no user is present."""

    def progress(self, text: str) -> None:
        """Show the current activity to a user at a terminal; nothing in CI."""


@runtime_checkable
class SupportsConcurrency(Protocol):
    """A provider that creates and deletes several machines at the same time."""

    at_once: int
    """Maximum concurrent operations."""

    def cut_short(self) -> None:
        """Stop running operations immediately, and start no more."""

    def go_on(self) -> None:
        """Permit operations again, after all earlier ones have stopped."""


class ImageBuilder(Protocol, Generic[Told_co]):
    """Bakes images."""

    def build(
        self, order: BuildOrder, tell: Callable[[BuildStep], None]
    ) -> tuple[Manifest, Told_co]:
        """Bake a version; its folder is complete at the end. `tell` receives the steps.

        Returns the manifest, and additional results of this builder.

        Raises BuildFailed, or Locked if that image is being built already. Then, and after an
        interrupt, only a log is left: no folder, mount, process or machine.
        """


class Publisher(Protocol):
    """A place that takes the disks of images: a provider or a store.

    It touches only objects with this fleet's mark, compared exactly.
    """

    @property
    def fleet(self) -> str:
        """Return the fleet whose mark it reads and writes."""

    @property
    def kind(self) -> str:
        """Return the name of the lock that the runs of one computer share."""

    @property
    def place(self) -> str:
        """Return the name of the place in messages."""

    @property
    def noun(self) -> str:
        """Return the word for one upload in messages."""

    def find(self, version: tuple[str, str] | None = None) -> Iterable[Upload]:
        """Return the uploads with this fleet's mark, optionally of one image and version.

        Raises SourceUnreachable if the list may be incomplete.
        """

    def upload(self, disk: ImageDisk, known: Upload | None) -> tuple[Upload, Rental | None]:
        """Complete a new or the known upload, and read all of it back.

        Returns it with the rented machine, if any. Raises PublicationRefused if the version
        exists with other content.
        """

    def owner(self, upload_id: str) -> str | None:
        """Return the fleet in an upload's mark; "" without a mark, None if it does not exist."""

    def remove(self, upload_id: str) -> None:
        """Remove an upload of this fleet, complete or not."""

    def clean_others(self, before: datetime) -> tuple[str, ...]:
        """Remove other objects that runs before a time left, and return their names."""


class StackRecord(StackRef):
    """The store's record of a stack, to notice if the stack is missing."""

    engine: Literal["embedded", "pulumi"]
    serial: int

    @classmethod
    def of(cls, ref: StackRef, engine: Engine, serial: int) -> "StackRecord":
        """Return the record of an engine's stack."""
        return cls(**dict(ref), engine=engine.name, serial=serial)

    @property
    def ref(self) -> StackRef:
        """Return the stack's reference."""
        return StackRef(**{name: getattr(self, name) for name in StackRef.model_fields})


class Charging(Value):
    """Additions to the ledger for the time between two moments, in one currency.

    If `until` is before `since`, the charges of hours from `until` on are removed.
    """

    since: Moment | None = Field(description="`charged_until` of the ledger it rests on.")
    until: Moment
    currency: str
    entries: tuple[Entry, ...] = ()
    tallies: tuple[Tally, ...] = Field(
        (), description="The parts of packages, and of boot and idle time."
    )
    payers: tuple[MachinePayer, ...] | None = Field(
        None, description="Each machine's payer from now on; None: as before."
    )


class Noted(NamedTuple):
    """Records of the end of a run, in addition to the journal."""

    log: Sequence[LogEntry] = ()
    counted: Counted | None = None


class Since(Value):
    """Start of the current hour, day and month."""

    hour: Moment
    day: Moment
    month: Moment


class Store(Protocol):
    """State that outlives a run."""

    def stacks(self) -> tuple[StackRecord, ...]:
        """Return all stacks that were created and not removed, sorted by name."""

    def record_stack(self, record: StackRecord) -> None:
        """Record a stack; raises EngineMismatch if another engine owns it.

        If its pool was renamed, the charges and attempts of the pool are renamed too.
        """

    def forget_stack(self, name: str) -> None:
        """Remove a stack that is empty and whose pool is gone."""

    def begin_run(self, *, started: datetime) -> None:
        """Append a run without an end to the journal, so that a run that dies is visible."""

    def record_step(self, *, started: datetime, step: str) -> None:
        """Append a line about the coming change to the journal of the run that started then."""

    def record_run(
        self,
        *,
        started: datetime,
        ended: datetime,
        plan: str,
        outcome: str,
        noted: Noted | None = None,
    ) -> None:
        """End the run that started then, or append it.

        The log entries and the tallies of the month are added in the same transaction.
        """

    def last_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs, newest first."""

    def ended_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs that completed a plan, newest first."""

    def record_sample(self, sample: Sample, observed: Observed | None = None) -> None:
        """Record a run's observation; it replaces a sample of the same time.

        Samples older than 35 days are removed; older than two days, the first in each ten minutes
        is kept. Of complete observations, the first of one time is kept, for the requested period
        or slightly longer.
        """

    def moments(self, since: datetime, until: datetime) -> Iterator[bytes]:
        """Yield the observed worlds between two times as JSON, oldest first.

        The first may be far in the past if a computer's clock was wrong.
        """

    def samples(self, since: datetime, until: datetime) -> tuple[Sample, ...]:
        """Return the samples between two times, oldest first."""

    def some_moments(self, since: datetime, until: datetime, most: int) -> Iterator[bytes]:
        """Yield at most `most` evenly spaced worlds between two times."""

    def append_log(self, entries: Sequence[LogEntry]) -> Mark:
        """Append entries atomically; return the place of the last one.

        Needs no lock of the fleet: concurrent appends are serialized. Entries older than `KEPT`
        are removed from the start; the chain keeps its anchor.
        """

    def read_log(self, since: datetime | None = None) -> tuple[LogEntry, ...]:
        """Return the log entries since a time, in the order of writing."""

    def log_chain(self) -> Chain:
        """Return the stored log with its digests, for verification."""

    def charge(self, charging: Charging) -> bool:
        """Add to the ledger atomically; False if another run charged the same time."""

    def note_payers(self, payers: Sequence[MachinePayer]) -> None:
        """Record the payers of planned machines; other machines keep theirs."""

    def ledger(self, since: Since, currency: str) -> Ledger:
        """Return the charges of the current hour, day and month, by payer.

        Raises StoreFailed if the month was charged in another currency.
        """

    def tallies(self, month: str) -> tuple[Tally, ...]:
        """Return the tallies of a month, such as 2026-11, by kind and name."""

    def waited(self) -> Mapping[str, datetime]:
        """Return the requests that waited in the last counted run, and since when."""

    def charged_since(self) -> datetime | None:
        """Return the first hour with a charge; None if there is no charge."""

    def absences(self) -> tuple[Absence, ...]:
        """Return the machines that were missing from listings in the last run."""

    def record_absences(self, absences: Sequence[Absence]) -> None:
        """Replace the record of missing machines with those of this run."""

    def record_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Record attempts to create machines, identified by worker and time."""

    def attempts(self, latest: int) -> tuple[Attempt, ...]:
        """Return the latest attempts of each pool, machine type and market, oldest first.

        Includes all unfinished attempts.
        """

    def spent(self) -> Mapping[str, tuple[str, ...]]:
        """Return the digest of each used approval, to the machines it was used for."""

    def spend(self, approval: str, machines: Collection[str]) -> None:
        """Use an approval for these machines; a machine counts once."""

    def refund(self, approval: str, machines: Collection[str]) -> None:
        """Remove uses of an approval whose actions were not carried out."""

    def orders(self, now: datetime) -> tuple[Order, ...]:
        """Return the active orders of operators, sorted by key."""

    def place_order(self, order: Order, entry: LogEntry, console: str = "") -> None:
        """Write an order and its log entry, both or neither; it replaces an order of the same key.

        It needs no lock of the fleet. `console` is the end of a held machine's console.
        """

    def lift_orders(self, orders: Mapping[str, LogEntry]) -> frozenset[str]:
        """Remove orders by key and append their log entries; return the removed keys."""

    def console(self, order: str) -> str:
        """Return the console output that was stored with a hold, or an empty text."""

    def image_versions(self) -> tuple[Version, ...]:
        """Return all recorded versions, by image, oldest first."""

    def save_image_version(self, version: Version, *, was: Version | None) -> None:
        """Replace the record `was` of a version; None: the version is new.

        Raises VersionMoved if the record was changed, removed or added meanwhile.
        """

    def move_image_versions(self, moves: Sequence[Move], log: Sequence[LogEntry] = ()) -> None:
        """Replace the records of several versions and append to the log, atomically."""

    def forget_image_version(self, image: str, version: str) -> None:
        """Remove the record of a version, if it exists."""

    def save_manifest(self, manifest: Manifest) -> None:
        """Record the content of a published version; it replaces an earlier record."""

    def manifest(self, image: str, version: str) -> Manifest | None:
        """Return the content of a published version; None if it is not recorded."""

    def rules_seen(self) -> Mapping[str, tuple[str, datetime]]:
        """Return the last seen digest of the rules and its time, by queue and place."""

    def see_rules(self, seen: Mapping[str, tuple[str, datetime]]) -> None:
        """Record the digests of rules and their times."""

    def notified(self) -> Mapping[str, tuple[bool, datetime]]:
        """Return whether each notice was sent and when, by channel and notice."""

    def note_notified(self, tried: Mapping[str, tuple[bool, datetime]], before: datetime) -> None:
        """Record tried notices, and remove those last tried before a time."""

    def departures(self) -> tuple[Departure, ...]:
        """Return the reasons of drained or disabled workers, sorted by worker and registry."""

    def note_departures(
        self, departures: Collection[Departure], gone: Collection[Departure] = ()
    ) -> None:
        """Record departures, each in place of an earlier one of its worker and registry."""

    def price_lists(self) -> Mapping[str, PriceList]:
        """Return the last kept price list of each provider; unreadable lists are omitted."""

    def keep_price_list(self, provider: str, prices: PriceList) -> None:
        """Replace the price list of a provider."""

    def server_time(self) -> datetime | None:
        """Return the time of the store's server; None if it has no clock of its own."""

    def lock(self, owner: str, now: datetime) -> AbstractContextManager[str | None]:
        """Hold the fleet's lock; raises Locked with its owner if it is held.

        Yields the owner that died with the lock, if the store knows it.
        """


class TicketDesk(Protocol):
    """The tickets of one queue; machines are given out under the fleet's lock."""

    def settle(
        self, now: datetime, machines: Collection[str] | None, broken: Collection[str] = ()
    ) -> tuple[Ticket, ...]:
        """Record ended tickets, and return the open ones.

        Changes by clients since `read` are seen in the next run. Records of machines that are not
        in `machines` are removed; None: the existing machines are unknown. A ticket whose machine
        is in `broken` fails.
        """

    def released(self) -> tuple[str, ...]:
        """Return the machines that tickets released and that were not cleaned since."""

    def clean(self, machine: str, trouble: str) -> None:
        """Record that a machine was cleaned; after a failure it is not reused."""

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Give machines to tickets that still wait; return the tickets that got one.

        A machine that must not have its ticket is skipped, with a reason.
        """

    def note(self, notes: Mapping[int, str]) -> None:
        """Record why each ticket waits; clear the reason of other tickets."""

    def known_since(self) -> datetime | None:
        """Return the time since which tickets are known; None: all are known."""

    def keep(self, machines: Mapping[str, str], now: datetime) -> dict[str, int]:
        """Open a ticket for each machine, given with its pool, whose ticket is unknown.

        Returns the ids. A machine with a ticket gets no other.
        """

    def workers(self, now: datetime) -> tuple[Worker, ...]:
        """Return the workers that have or had a ticket."""

    def read(self, now: datetime) -> QueueReading:
        """Return demand and workers."""


class Cleaned(NamedTuple):
    """The result of cleaning a machine; `trouble` is empty on success."""

    trouble: str = ""
    begun: bool = True


@runtime_checkable
class MachineCleaner(Protocol):
    """A provider that checks its machines, cleans them between tickets, and describes them."""

    def doubted(self) -> Collection[str]:
        """Return the machines whose latest livecheck failed, as of the last listing."""

    def clean(self, machine: Machine) -> Cleaned:
        """Clean a machine that a ticket released; return the result.

        A cleaning that did not start is tried again; until then the machine gets no ticket.
        """

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return additional facts about a machine for its ticket: `port`, `data`."""

    def check_unlisted(self, machines: Sequence[Machine]) -> Mapping[str, bool]:
        """Return whether unlisted machines work, by id; unknown ones are omitted."""

    def forget(self, name: str) -> None:
        """Discard the state of a machine that is gone."""


class Task(NamedTuple):
    """Work on one pool, or on one machine."""

    what: str
    """Pool name, or the operation on a machine; at most one task of a name runs at a time."""
    provider: str
    machines: Collection[str]
    """The machines that it creates, deletes or cleans."""
    work: Callable[[], StackOutcome | None]
    """Returns None if no work was started, or there is no result to report."""


class PoolExecutor(Protocol):
    """Runs tasks."""

    def run(self, tasks: Sequence[Task]) -> None:
        """Run tasks; a long one may continue after this returns.

        A task that is still running is not started again.
        """

    @property
    def under_way(self) -> Mapping[str, Collection[str]]:
        """Return the tasks that ran when this run started, or run now, with their machines."""

    def ended(self) -> Sequence[StackOutcome]:
        """Return the results of finished tasks, each once; includes tasks of earlier runs."""


@dataclass(frozen=True)
class TicketSources:
    """The parts of a run that give machines to tickets."""

    desks: Mapping[str, TicketDesk]
    cleaners: Mapping[str, MachineCleaner]
    """Providers that clean machines between tickets."""
    store: Store
    executor: PoolExecutor


@dataclass(frozen=True)
class SeenRun:
    """The observation of a run, used to assign machines while the next run observes."""

    fleet: Fleet
    world: World
    sources: TicketSources
    started: datetime
    besides: Collection[str] = ()
    """Machines that get no ticket: the run deleted or is changing them."""


class MachineRecords(NamedTuple):
    """Records of the store and of the stacks about machines."""

    attempts: Callable[[], Iterable[Attempt]]
    """Returns the attempts to create machines, oldest first."""
    names: Collection[str]
    """The machines recorded in stacks."""
    now: datetime


class HandOut(Protocol):
    """Gives machines to tickets in a run, under the fleet's lock."""

    def hand_out_all(
        self, fleet: Fleet, world: World, sources: TicketSources, tell: Tell, note: Tell
    ) -> World:
        """Assign free machines and return the new world; `note` writes the journal."""

    def hand_out_again(
        self, seen: SeenRun, executor: PoolExecutor, now: datetime, tell: Tell, note: Tell
    ) -> bool:
        """Give machines that are still free to waiting tickets; return whether any got one."""

    def note_waits(self, fleet: Fleet, world: World, plan: Plan, sources: TicketSources) -> None:
        """Record why tickets wait according to the plan, for clients that ask."""

    def with_forgotten(
        self,
        fleet: Fleet,
        queues: Mapping[str, QueueReading],
        listings: Mapping[str, Listing | Unknown],
        since: Mapping[str, datetime | None],
        records: MachineRecords,
    ) -> Iterable[tuple[str, QueueReading]]:
        """Yield the ticket queues, with machines older than the store added as busy.

        `since` maps queue to the creation time of its store.
        """


class Promoter(Protocol):
    """Moves versions of images as a plan says."""

    def promote_all(
        self, plan: Plan, store: Store, now: datetime, note: Tell, tell: Tell
    ) -> tuple[str, ...]:
        """Apply promotions and return the applied ones; the next run retries failures.

        `note` writes the journal.
        """
