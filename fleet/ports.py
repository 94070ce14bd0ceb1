"""The interfaces of apply to the outside, as protocols, and the values that they exchange.

Each implementation raises only errors of fleet.errors. Each protocol has a fake and a contract
suite in tests/ports/.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from pydantic import Field

from fleet.model.disks import ImageDisk
from fleet.model.doctor import Summary
from fleet.model.facts import (
    Base,
    FoundMachine,
    HeldRules,
    LedgerEntry,
    Listing,
    Machine,
    MachinePayer,
    PriceList,
    QueueReading,
    SharedResource,
    Stack,
    Unknown,
    Worker,
    WorkerInputs,
)
from fleet.model.images import (
    BuildOrder,
    BuildStep,
    Manifest,
    Rental,
    Upload,
)
from fleet.model.log import LogEntry
from fleet.model.months import Counted, Tally
from fleet.model.outcome import StackOutcome
from fleet.model.tickets import Given, Leased, Ticket
from fleet.model.values import Moment, Tags, Value

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
    expires: Moment = Field(description="Deadline of the first use of the token.")


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

    def find(self, key: str, value: str) -> Sequence[FoundMachine]:
        """Return all machines with exactly this label, created by fleet or not.

        Raises SourceUnreachable if the list may be incomplete.
        """

    def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
        """Add the labels of a worker to a machine, without other changes."""


class StackStep(Value):
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


Progress = Callable[[StackStep], None]
NO_USER_DATA: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class StackChange:
    """A prepared change of a stack."""

    steps: tuple[StackStep, ...]
    """The steps, as `preview` returns them."""
    make: Callable[[Progress, Mapping[str, str]], tuple[StackStep, ...]]
    """Makes the change, like `up`; call it once."""


class Engine(Protocol):
    """Applies the desired workers of a stack."""

    name: Literal["embedded", "pulumi"]

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the recorded stack; None if it never existed. Starts no operation."""

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[StackStep, ...]:
        """Return the steps of `up`, sorted by name, without `same`."""

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        """Apply the changes and return the steps; raises StackFailed if any failed.

        `user_data` has the boot data of new workers by name. It holds secrets: it goes only to the
        provider, and is never stored in clear. An empty text means that an earlier run created the
        machine with its own data, so adopt it; if it is gone, raise StackFailed before any change.
        """

    def prepare(
        self, ref: StackRef, workers: Sequence[WorkerInputs]
    ) -> AbstractContextManager[StackChange]:
        """Hold a change for inspection; leaving the block cancels a change that was not made."""

    def forget(self, ref: StackRef, worker: str) -> None:
        """Remove a worker that is gone from the record, without calling its provider.

        Raises PlanRefused if the stack does not contain it.
        """


class SharedStackEngine(Protocol):
    """Applies the shared parts (base) of one provider's machines; only some providers have one."""

    def read(self, ref: StackRef) -> Base | Unknown | None:
        """Return the recorded base; None if it never existed. Starts no operation."""

    def preview(self, ref: StackRef, parts: Sequence[SharedResource]) -> tuple[StackStep, ...]:
        """Return the steps of `up`, sorted by name, without `same`."""

    def up(
        self, ref: StackRef, parts: Sequence[SharedResource], progress: Progress
    ) -> tuple[StackStep, ...]:
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


class SourceReader(Protocol):
    """Reads several sources; a failed one, or one beyond the common time limit, is Unknown."""

    def __call__(self, kind: str, asked: Mapping[str, Callable[[], T]]) -> dict[str, T | Unknown]:
        """Return the result of each source of this kind, by name."""


class MemberReader(Protocol):
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

    since: Moment | None = Field(description="`charged_until` of the ledger before this charge.")
    until: Moment
    currency: str
    entries: tuple[LedgerEntry, ...] = ()
    tallies: tuple[Tally, ...] = Field(
        (), description="The parts of packages, and of boot and idle time."
    )
    payers: tuple[MachinePayer, ...] | None = Field(
        None, description="Payer of each machine from now on; None: unchanged."
    )


class RunRecords(NamedTuple):
    """Records of the end of a run, in addition to the journal."""

    log: Sequence[LogEntry] = ()
    counted: Counted | None = None


class Since(Value):
    """Start of the current hour, day and month."""

    hour: Moment
    day: Moment
    month: Moment


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


class EngineTask(NamedTuple):
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

    def run(self, tasks: Sequence[EngineTask]) -> None:
        """Run tasks; a long one may continue after this returns.

        A task that is still running is not started again.
        """

    @property
    def under_way(self) -> Mapping[str, Collection[str]]:
        """Return the tasks that ran when this run started, or run now, with their machines."""

    def ended(self) -> Sequence[StackOutcome]:
        """Return the results of finished tasks, each once; includes tasks of earlier runs."""
