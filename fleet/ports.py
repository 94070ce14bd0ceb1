"""The interfaces between fleet and other systems, as protocols, and the values they exchange.

An implementation raises only errors of fleet.errors. Each protocol has a fake and a suite of
contract tests in tests/ports/.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from pydantic import Field

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
from fleet.model.history import Counted, StackOutcome, Tally
from fleet.model.images import (
    ImageDisk,
    Rental,
    Upload,
)
from fleet.model.log import LogEntry
from fleet.model.tickets import Given, Leased, Ticket
from fleet.model.values import Moment, Tags, Value

T = TypeVar("T")


class Clock(Protocol):
    """A clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""


Tell = Callable[[str], None]
"""Function that receives a progress message of one line."""


class Waiter(Protocol):
    """Waits between two runs of a loop."""

    def wait(self, seconds: float) -> bool:
        """Wait for this number of seconds; return False if a signal requests the end."""


class Queue(Protocol):
    """A queue of work; some queues also register the workers that serve them."""

    def read(self, now: datetime) -> QueueReading:
        """Return the waiting requests and workers; an unreadable part is Unknown, never empty."""


class Server(Protocol):
    """The status of a queue's server; each method raises SourceUnreachable on failure."""

    def summary(self) -> Summary:
        """Return the public status: the server's time, the workers and their work."""

    def user(self) -> str:
        """Return the user who owns the token; empty if the server rejects the token."""

    def counts(self) -> Mapping[str, int]:
        """Map each scope to its number of pending requests for workers; needs no token."""


class RuleReader(Protocol):
    """Reads the rules by which a queue assigns tags to requests."""

    def read(self) -> Mapping[str, HeldRules | Unknown]:
        """Map each workspace, file or URL in fleet.yaml to its rules; Unknown if unreadable."""


class WebPage(NamedTuple):
    """A response of the web server, as bytes."""

    content: bytes
    kind: str
    """Media type, for example text/html."""
    tag: str
    """ETag, which identifies this version of the content."""


@runtime_checkable
class Registry(Protocol):
    """Controls the workers that are registered at a queue; some queues register none."""

    def drain(self, worker: str) -> None:
        """Stop the queue from assigning work to a worker, and verify that it has stopped."""

    def resume(self, worker: str) -> None:
        """Undo `drain`, so that the queue may assign work to the worker again."""

    def disable(self, worker: str) -> None:
        """Disable a worker permanently; raises WorkerBusy if it runs work."""

    def revoke(self, worker: str) -> None:
        """Revoke the token of a worker that has not registered, to prevent its registration.

        Raises WorkerBusy if the worker has registered meanwhile.
        """

    def release(self, worker: str) -> None:
        """Disable a worker whose machine no longer exists, and return its work to the queue."""

    def confirm(self, tell: Tell) -> None:
        """Wait as long as the queue needs, then verify that this run's changes still hold.

        `tell` receives a message with the duration.
        """


class Enrolment(Value):
    """A worker to register at a queue before fleet creates the worker's machine."""

    worker: str = Field(description="Name of the worker and of its machine.")
    fleet: str
    pool: str
    provides: Tags = Field(
        (), description="Tags of the pool, in addition to the tags that the worker reports."
    )
    requires: Tags = ()
    expires: Moment = Field(description="Deadline of the first use of the token.")


class Enroller(Protocol):
    """Registers new workers at a queue, before fleet creates their machines."""

    def enrol(self, enrolment: Enrolment) -> str:
        """Return an activation token for a worker, which may already exist at the queue.

        The queue may assign work again after an earlier drain. Older tokens become invalid. Raises
        WorkerBusy if a worker with this name runs work. No message or log contains the token.
        """


class Provider(Protocol):
    """Lists the machines of a provider."""

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines whose label `fleet` has this value; Unknown if unreadable."""


class Prober(Protocol):
    """Tests if a machine accepts network connections."""

    def answers(self, address: str, port: int, banner: str) -> bool:
        """Return whether a response on the port starts with `banner`; empty: any connection.

        Raises SourceUnreachable if no connection could be tried: the machine may still work.
        """


@runtime_checkable
class MachineApi(Protocol):
    """Changes machines without their stack; some providers have no API for that."""

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Set the expiry time of machines by their provider ids; skip missing machines.

        The expiry is not an input of the machine, so the stack does not change.
        """

    def delete(self, machine_id: str) -> None:
        """Delete a machine by its provider id; a missing machine is not an error."""


@runtime_checkable
class ConsoleReader(Protocol):
    """Reads the console output of machines; some providers do not store this output."""

    def console(self, machine_id: str) -> str:
        """Return at least the end of a machine's console output; empty if it has no output yet.

        Raises SourceUnreachable if the output is unreadable or the machine no longer exists.
        """


@runtime_checkable
class Adopter(Protocol):
    """Finds existing machines by a label, and labels them; some providers have no API for that."""

    def find(self, key: str, value: str) -> Sequence[FoundMachine]:
        """Return all machines with this label and value, even if fleet did not create them.

        Raises SourceUnreachable if the list may be incomplete.
        """

    def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
        """Add the labels of a worker to a machine, without any other change."""


class StackStep(Value):
    """A planned or executed operation on one resource of a stack."""

    worker: str
    operation: Literal["create", "delete", "update", "replace", "same"]
    detail: str = ""
    """Names of the changed inputs; empty if an update only removes a failed creation in Pulumi."""


class StackRef(Value):
    """The identity of a stack: `project` is stacks/PROJECT; `name` is unique in its backend."""

    project: str
    name: str
    provider: str
    pool: str


Progress = Callable[[StackStep], None]
NO_USER_DATA: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class StackChange:
    """A prepared change of a stack, which `make` executes."""

    steps: tuple[StackStep, ...]
    """The steps of the change, as `preview` returns them."""
    make: Callable[[Progress, Mapping[str, str]], tuple[StackStep, ...]]
    """Executes the change, like `Engine.up`; call it at most once."""


class Engine(Protocol):
    """An engine that creates and deletes the machines of a pool, as resources of one stack."""

    name: Literal["embedded", "pulumi"]

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the recorded stack; None if it never existed. Starts no operation."""

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[StackStep, ...]:
        """Return the steps that `up` would execute, sorted by name; omit unchanged machines."""

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        """Make the stack contain exactly these workers, and return the steps.

        Raises StackFailed if a step failed. `user_data` maps worker to the data of its first boot,
        with secrets: only the provider gets it, and it is never stored unencrypted. An empty text
        means that an earlier run created the machine. The engine adopts that machine; if it no
        longer exists, `up` raises StackFailed before any change.
        """

    def prepare(
        self, ref: StackRef, workers: Sequence[WorkerInputs]
    ) -> AbstractContextManager[StackChange]:
        """Prepare a change for inspection; it is cancelled if the block ends without `make`."""

    def forget(self, ref: StackRef, worker: str) -> None:
        """Remove a worker whose machine no longer exists from its stack; call no provider.

        Raises PlanRefused if the stack has no such worker.
        """


class SharedStackEngine(Protocol):
    """An engine for resources that machines share, such as networks, at some providers."""

    def read(self, ref: StackRef) -> Base | Unknown | None:
        """Return the recorded shared resources; None if they never existed. Run no operation."""

    def preview(self, ref: StackRef, parts: Sequence[SharedResource]) -> tuple[StackStep, ...]:
        """Return the steps that `up` would execute, sorted by name; omit unchanged parts."""

    def up(
        self, ref: StackRef, parts: Sequence[SharedResource], progress: Progress
    ) -> tuple[StackStep, ...]:
        """Execute the steps and return them; raises StackFailed if a step failed."""


class PriceReader(Protocol):
    """Reads the prices of a provider at one location; some providers have no API for prices."""

    location: str

    def read(self, now: datetime) -> PriceList:
        """Return the prices; raises SourceUnreachable if a price is missing."""


class SourceReader(Protocol):
    """Reads several sources at the same time, within a common time limit."""

    def __call__(self, kind: str, asked: Mapping[str, Callable[[], T]]) -> dict[str, T | Unknown]:
        """Map each source to its result; Unknown after a failure or timeout. `kind`: `queue`."""


class MemberReader(Protocol):
    """Reads the users who are members of groups."""

    def read(self) -> Mapping[str, tuple[str, ...]] | Unknown:
        """Map each group to its users; Unknown if the list is unreadable, never empty."""


class Messenger(Protocol):
    """A channel for notices, such as email."""

    def send(self, subject: str, text: str, body: Mapping[str, object]) -> None:
        """Send a message as text and as JSON; raises SourceUnreachable or SecretMissing."""


class Console(Protocol):
    """The output of a command, and questions to its user."""

    colour: bool
    watched: bool
    """True if a user sees `progress`; otherwise only complete lines are printed."""

    def columns(self, piped: int | None) -> int | None:
        """Return the width of the terminal in columns, `piped` in a pipe; None: unlimited."""

    def out(self, text: str) -> None:
        """Write text to standard output."""

    def note(self, text: str) -> None:
        """Write a line to standard error."""

    @property
    def can_ask(self) -> bool:
        """Whether a user can answer questions."""

    def ask(self, question: str) -> str:
        """Return the answer of a user; empty if no user can answer."""

    def progress(self, text: str) -> None:
        """Show the current activity at a terminal; in CI, do nothing."""


@runtime_checkable
class SupportsConcurrency(Protocol):
    """A provider that can create and delete several machines at the same time."""

    at_once: int
    """Maximum number of concurrent operations."""

    def cut_short(self) -> None:
        """Stop all running operations, and start no further operation."""

    def go_on(self) -> None:
        """Permit operations again, after all earlier operations have stopped."""


class Publisher(Protocol):
    """A provider or store to which the disks of images are published.

    It changes only objects that are marked as uploads of this fleet.
    """

    @property
    def fleet(self) -> str:
        """Return the name of the fleet, with which uploads are marked."""

    @property
    def kind(self) -> str:
        """Return the name of the lock that excludes other runs on the same computer."""

    @property
    def place(self) -> str:
        """Return the name of the provider or store for messages."""

    @property
    def noun(self) -> str:
        """Return the word for one upload in messages, for example `snapshot`."""

    def find(self, version: tuple[str, str] | None = None) -> Iterable[Upload]:
        """Return this fleet's uploads; with `version`, only those of this (image, version).

        Raises SourceUnreachable if the list may be incomplete.
        """

    def upload(self, disk: ImageDisk, known: Upload | None) -> tuple[Upload, Rental | None]:
        """Upload a disk, or continue the upload `known`; then read it back to verify it.

        Return the upload, and the machine that was rented for it, if any. Raises
        PublicationRefused if the version exists with other content.
        """

    def owner(self, upload_id: str) -> str | None:
        """Return the fleet that marked an upload; empty without mark, None without upload."""

    def remove(self, upload_id: str) -> None:
        """Remove an upload of this fleet, even if the upload is incomplete."""

    def clean_others(self, before: datetime) -> tuple[str, ...]:
        """Remove temporary objects that runs left before this time; return their names."""


class StackRecord(StackRef):
    """The store's record that a stack exists, by which fleet notices the loss of the stack."""

    engine: Literal["embedded", "pulumi"]
    serial: int

    @classmethod
    def of(cls, ref: StackRef, engine: Engine, serial: int) -> "StackRecord":
        """Return a record for a stack of this engine."""
        return cls(**dict(ref), engine=engine.name, serial=serial)

    @property
    def ref(self) -> StackRef:
        """Return the identity of the stack."""
        return StackRef(**{name: getattr(self, name) for name in StackRef.model_fields})


class Charging(Value):
    """Amounts to add to the ledger for a period, in one currency.

    If the clock was set back (`until` is before `since`), charges from `until` on are removed.
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
    """Records at the end of a run, in addition to the run's entry in the journal."""

    log: Sequence[LogEntry] = ()
    counted: Counted | None = None


class Since(Value):
    """The start times of the current hour, day and month."""

    hour: Moment
    day: Moment
    month: Moment


class TicketDesk(Protocol):
    """The tickets of one queue; only the holder of the fleet's lock assigns machines."""

    def settle(
        self, now: datetime, machines: Collection[str] | None, broken: Collection[str] = ()
    ) -> tuple[Ticket, ...]:
        """Mark the tickets that have ended, and return the open tickets.

        The next run sees the changes that clients make after `read`. Records of machines that are
        not in `machines` are removed; None: the existing machines are unknown. A ticket whose
        machine is in `broken` fails.
        """

    def released(self) -> tuple[str, ...]:
        """Return the machines of ended tickets that still have to be cleaned."""

    def clean(self, machine: str, trouble: str) -> None:
        """Record that a machine was cleaned; after a `trouble`, it gets no more tickets."""

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Assign machines to tickets that still wait; return the successful assignments.

        A ticket that must not have its machine is skipped, and the result has the reason.
        """

    def note(self, notes: Mapping[int, str]) -> None:
        """Store the reason why each of these tickets waits; delete the reasons of all others."""

    def known_since(self) -> datetime | None:
        """Return the time from which on all tickets are known; None: since the first ticket."""

    def keep(self, machines: Mapping[str, str], now: datetime) -> dict[str, int]:
        """Open a ticket for each machine whose ticket is unknown; `machines`: name to pool.

        Return a map of machine to ticket id. A machine that has a ticket is skipped.
        """

    def workers(self, now: datetime) -> tuple[Worker, ...]:
        """Return the machines that have or had a ticket, as workers."""

    def read(self, now: datetime) -> QueueReading:
        """Return the waiting tickets as requests, and the workers."""


class Cleaned(NamedTuple):
    """The result of cleaning a machine between tickets; `trouble` is empty after a success."""

    trouble: str = ""
    begun: bool = True


@runtime_checkable
class MachineCleaner(Protocol):
    """A provider that tests its machines, and cleans them between tickets."""

    def doubted(self) -> Collection[str]:
        """Return the names of machines whose last health check (livecheck) failed."""

    def clean(self, machine: Machine) -> Cleaned:
        """Clean a machine whose ticket has ended, and return the result.

        If cleaning could not start, a later run tries again; until then no ticket gets the
        machine.
        """

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return `port` and `data` of a machine, for the client of its ticket."""

    def check_unlisted(self, machines: Sequence[Machine]) -> Mapping[str, bool]:
        """Map each unlisted machine's id to True if it works; omit machines without a result."""

    def forget(self, name: str) -> None:
        """Discard the recorded state of a machine that no longer exists."""


class EngineTask(NamedTuple):
    """An operation on one pool or on one machine."""

    what: str
    """Name of the pool, or of the operation on a machine; unique among running tasks."""
    provider: str
    machines: Collection[str]
    """Names of the machines that the task creates, deletes or cleans."""
    work: Callable[[], StackOutcome | None]
    """Executes the task; returns None without a result to report."""


class PoolExecutor(Protocol):
    """Runs tasks in the background; a task may continue after the end of a run."""

    def run(self, tasks: Sequence[EngineTask]) -> None:
        """Start tasks without waiting for their end.

        A task with the name of a running task is not started.
        """

    @property
    def under_way(self) -> Mapping[str, Collection[str]]:
        """Map each task that ran at the start of this run, or runs now, to its machines."""

    def ended(self) -> Sequence[StackOutcome]:
        """Return each finished task's result once, even if an earlier run started the task."""


class _Adapted:
    def __init__(self, adapter: object, methods: Mapping[str, object]) -> None:
        self._adapter = adapter
        vars(self).update(methods)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the adapter's own attributes
        return getattr(self._adapter, name)


def with_methods(adapter: T, methods: Mapping[str, object]) -> T:
    """Return an adapter with these methods, and with the other methods of `adapter`."""
    return cast("T", _Adapted(adapter, methods))
