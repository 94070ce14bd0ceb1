"""What apply needs from the outside, as protocols, with the small values that they exchange.

Each edge implements one and raises only errors of fleet.errors; each protocol has a fake and a
contract suite in tests/ports/.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from pydantic import Field

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
)
from fleet.model.history import Observed, Sample
from fleet.model.images import (
    BuildOrder,
    BuildStep,
    Manifest,
    Move,
    Publication,
    Transfer,
    Upload,
    Version,
)
from fleet.model.log import Chain, LogEntry, Mark
from fleet.model.months import Counted, Tally
from fleet.model.orders import Order
from fleet.model.outcome import StackOutcome
from fleet.model.tickets import Given, Leased, Ticket
from fleet.model.values import Moment, Tags, Value

T = TypeVar("T")
Told_co = TypeVar("Told_co", covariant=True)


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Return the present moment, in UTC."""


Tell = Callable[[str], None]
"""Hears what is being done, a line at a time."""


class Waiter(Protocol):
    """Waits between two runs."""

    def wait(self, seconds: float) -> bool:
        """Wait that long; False where somebody asks to end."""


class Queue(Protocol):
    """Where work waits and, for some, workers register."""

    def read(self, now: datetime) -> QueueReading:
        """Return what waits and who works; what cannot be read is Unknown, never empty."""


class Server(Protocol):
    """What the server of a queue tells of itself; each raises SourceUnreachable where it fails."""

    def summary(self) -> Summary:
        """Return what it tells anyone of its time, its workers and their work."""

    def user(self) -> str:
        """Return whose token it is asked with; empty: it does not recognise it."""

    def counts(self) -> Mapping[str, int]:
        """Return how much work for workers is pending, by scope, without a token."""


class RuleReader(Protocol):
    """Where a queue keeps the rules by which it gives tags to requests."""

    def read(self) -> Mapping[str, HeldRules | Unknown]:
        """Return the rules of each place that fleet.yaml names; what cannot be read is Unknown."""


@runtime_checkable
class Registry(Protocol):
    """Where a queue's workers can be told to stop; only some queues have one."""

    def drain(self, worker: str) -> None:
        """Have the queue give this worker nothing new, and read it back."""

    def resume(self, worker: str) -> None:
        """Have the queue give a worker new work again that `drain` kept from it."""

    def disable(self, worker: str) -> None:
        """Switch the worker off for good; refused with WorkerBusy while it runs something."""

    def revoke(self, worker: str) -> None:
        """Take back the token of a worker that never registered, and read back that none did.

        Refused with WorkerBusy when it has registered in the meantime; once revoked it cannot.
        """

    def release(self, worker: str) -> None:
        """Switch off a worker whose machine is gone, and give what it ran back to the queue."""

    def confirm(self, tell: Tell) -> None:
        """See that what was told in this run stands, as long after it as the queue needs.

        `tell` hears how long that takes.
        """


class Enrolment(Value):
    """A worker that is about to get a machine, as its queue has to know it."""

    worker: str = Field(description="Name of the worker and of its machine.")
    fleet: str
    pool: str
    provides: Tags = Field((), description="Tags of the pool, beside what the worker reports.")
    requires: Tags = ()
    expires: Moment = Field(description="Until when the token may be used for the first time.")


class Enroller(Protocol):
    """Where new workers are made known; a queue whose workers we make has one."""

    def enrol(self, enrolment: Enrolment) -> str:
        """Return the activation token of a worker's row, made now or one that was used before.

        An old drain of that row is cleared, an older token no longer works. Raises WorkerBusy
        where a worker of that name is at work; the token is in no message and no log.
        """


class Provider(Protocol):
    """What exists, by the provider's own listing."""

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines whose label `fleet` is exactly this name."""


class Prober(Protocol):
    """Tries a port of a machine, once."""

    def answers(self, address: str, port: int, banner: str) -> bool:
        """Say whether the port takes a connection and greets so; an empty banner: with anything.

        Raises SourceUnreachable where no attempt could be made: that says nothing of the machine.
        """


@runtime_checkable
class MachineApi(Protocol):
    """Where a machine can be looked after without its stack; only some providers have one."""

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Write the expiry of machines, by the provider's ids; one that is gone is fine.

        What they were made from does not change by it.
        """

    def delete(self, machine_id: str) -> None:
        """Delete a machine; one that is already gone is fine."""


@runtime_checkable
class ConsoleReader(Protocol):
    """A provider that keeps what its machines write to their console."""

    def console(self, machine_id: str) -> str:
        """Return it, the end at least; empty where there is nothing yet.

        Raises SourceUnreachable where it cannot be read, or the machine is gone.
        """


@runtime_checkable
class Adopter(Protocol):
    """Where machines that exist can be found by a label and marked; only some providers are."""

    def find(self, key: str, value: str) -> Sequence[Found]:
        """Return the machines whose label of this key is exactly this value, of any creator.

        Raises SourceUnreachable where not all of them can be told.
        """

    def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
        """Give a machine the labels of a worker beside its own; nothing else of it changes."""


class Step(Value):
    """One resource of a stack that an operation would touch or has touched."""

    worker: str
    operation: Literal["create", "delete", "update", "replace", "same"]
    detail: str = ""
    """What of it changes; an update of nothing is how Pulumi forgets that a creation failed."""


class StackRef(Value):
    """Which stack: `project` is stacks/<project>, `name` is unique within its backend."""

    project: str
    name: str
    provider: str
    pool: str


Progress = Callable[[Step], None]
NO_USER_DATA: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Change:
    """A change of a stack that an engine is about to make, and has not begun."""

    steps: tuple[Step, ...]
    """What it would do, as `preview` tells it."""
    make: Callable[[Progress, Mapping[str, str]], tuple[Step, ...]]
    """Makes it so as `up` does, once."""


class Engine(Protocol):
    """Changes the cloud: desired workers in, resources out."""

    name: Literal["embedded", "pulumi"]

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the stack as recorded; None when it never existed. Starts no operation."""

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[Step, ...]:
        """Return what `up` would do to workers, sorted by name, without `same`."""

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[Step, ...]:
        """Apply the changes and return what was done; raises StackFailed when some of it failed.

        `user_data` is what new workers are given at boot, by name. It holds secrets: it goes to
        the provider and is recorded nowhere in the clear. An empty text: an earlier run gave that
        machine its own, so it is adopted; where it is gone, StackFailed and nothing is done.
        """

    def prepare(
        self, ref: StackRef, workers: Sequence[WorkerInputs]
    ) -> AbstractContextManager[Change]:
        """Hold a change while it is looked at; what was not made when that ends is given up."""

    def forget(self, ref: StackRef, worker: str) -> None:
        """Take a worker that is gone out of the record, its provider not asked or told anything.

        Raises PlanRefused when the stack does not hold it.
        """


class SharedStackEngine(Protocol):
    """Changes what the machines of one provider share; only some providers have such a base."""

    def read(self, ref: StackRef) -> Base | Unknown | None:
        """Return the base as recorded; None when it never existed. Starts no operation."""

    def preview(self, ref: StackRef, parts: Sequence[Part]) -> tuple[Step, ...]:
        """Return what `up` would do to each part, by its name, without `same`."""

    def up(self, ref: StackRef, parts: Sequence[Part], progress: Progress) -> tuple[Step, ...]:
        """Apply the changes and return them; raises StackFailed when some failed."""


class PriceReader(Protocol):
    """Asks a provider what it charges at one place; only some providers can be asked."""

    location: str

    def read(self, now: datetime) -> PriceList:
        """Return its prices; raises SourceUnreachable where not all of them can be told."""


class Secrets(Protocol):
    """Reads a secret by its reference; what it returns is never logged or stored."""

    def read(self, reference: object) -> str:
        """Return the secret; raises SecretMissing with the reference, never the value."""

    def exposure(self, reference: object) -> tuple[str, str] | None:
        """Return who else may read where it lies, and the command that ends that; None: no one."""


class Asking(Protocol):
    """Asks several sources; what fails, or takes longer than all have together, is Unknown."""

    def __call__(self, kind: str, asked: Mapping[str, Callable[[], T]]) -> dict[str, T | Unknown]:
        """Return what each source of this kind tells, by name."""


class Members(Protocol):
    """Says who is in which group."""

    def read(self) -> Mapping[str, tuple[str, ...]] | Unknown:
        """Return the users of each group; what cannot be read is Unknown, never empty."""


class Messenger(Protocol):
    """Takes notices for people."""

    def send(self, subject: str, text: str, body: Mapping[str, object]) -> None:
        """Hand over a message, as text and as JSON; raises SourceUnreachable or SecretMissing."""


class Console(Protocol):
    """Where a command writes; only cli.py implements it."""

    colour: bool
    watched: bool
    """A person sees what `progress` shows; else only lines count."""

    def out(self, text: str) -> None:
        """Write to standard output."""

    def note(self, text: str) -> None:
        """Write a line to standard error."""

    def ask(self, question: str) -> str:
        """Return what a person answers; empty where nobody is there."""

    def progress(self, text: str) -> None:
        """Show what is being waited for when a person is watching; nothing in CI."""


@runtime_checkable
class SupportsConcurrency(Protocol):
    """A provider whose machines may be made and deleted at the same time: each takes a while."""

    at_once: int
    """How many, at most."""

    def cut_short(self) -> None:
        """End what is being done, however far it came, and begin no more."""

    def go_on(self) -> None:
        """Begin again what is asked for: nothing of before runs any more."""


class ImageBuilder(Protocol, Generic[Told_co]):
    """A way to bake images."""

    def build(
        self, order: BuildOrder, tell: Callable[[BuildStep], None]
    ) -> tuple[Manifest, Told_co]:
        """Bake a version, whole in its folder at the end; `tell` hears what is being done.

        Returns its manifest, and what its way to bake tells beyond that.

        Raises BuildFailed, or Locked where that image is being built already; then, and where it
        is interrupted, nothing is left but a log: no folder, no mount, no process, no machine.
        """


class Publisher(Protocol):
    """A provider or a store that keeps versions of images.

    It touches only what carries this fleet's mark, compared whole.
    """

    def uploads(self) -> tuple[Upload, ...]:
        """Return what it holds, whole or not, sorted by image and version.

        Raises SourceUnreachable where not all of it can be told.
        """

    def publish(
        self, manifest: Manifest, folder: str, tell: Callable[[Transfer], None]
    ) -> Publication:
        """Upload a version from the folder of its build, and read it back whole.

        What an earlier run left of it is gone on with; what is there already stays as it is.
        Raises PublicationRefused for another content under the same version.
        """

    def delete(self, upload_id: str) -> None:
        """Delete an upload, whole or not; one that is already gone is fine."""

    def clean(self, before: datetime, but_for: tuple[str, str] | None = None) -> tuple[str, ...]:
        """Remove what runs that died left, begun before that moment; return what it was.

        An upload of `but_for`, an image and its version, stays: it is to be gone on with.
        """


class StackRecord(StackRef):
    """What the store remembers of a stack, so that a missing one is noticed."""

    engine: Literal["embedded", "pulumi"]
    serial: int

    @classmethod
    def of(cls, ref: StackRef, engine: Engine, serial: int) -> "StackRecord":
        """Return what to remember of a stack that an engine has."""
        return cls(**dict(ref), engine=engine.name, serial=serial)

    @property
    def ref(self) -> StackRef:
        """Return which stack it is."""
        return StackRef(**{name: getattr(self, name) for name in StackRef.model_fields})


class Charging(Value):
    """What to add to the ledger for the time between two moments, in one currency.

    With `until` before `since`, what was charged for hours from `until` on is taken back.
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
    """What the end of a run adds beside the journal."""

    log: Sequence[LogEntry] = ()
    counted: Counted | None = None


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

    def record_run(
        self,
        *,
        started: datetime,
        ended: datetime,
        plan: str,
        outcome: str,
        noted: Noted | None = None,
    ) -> None:
        """End the run that was begun then, or append one that was not.

        What it says to the log, and what it counted for its month, is added with it, or nothing.
        """

    def last_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs, newest first."""

    def ended_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs that carried a plan out to its end, newest first."""

    def record_sample(self, sample: Sample, observed: Observed | None = None) -> None:
        """Remember what a run observed, in place of what was recorded of the same moment.

        Samples older than 35 days go; of those older than two days, the first in each ten
        minutes stays. Of what was observed as a whole, the first of one moment stays, for as
        long as it is to be kept or a little longer.
        """

    def moments(self, since: datetime, until: datetime) -> Iterator[bytes]:
        """Yield the worlds that runs observed from one moment up to another, the oldest first.

        Each is JSON. What is read first may be long past where a computer's clock was wrong.
        """

    def samples(self, since: datetime, until: datetime) -> tuple[Sample, ...]:
        """Return what runs observed from one moment up to another, the oldest first."""

    def some_moments(self, since: datetime, until: datetime, most: int) -> Iterator[bytes]:
        """Yield at most so many of the worlds that runs observed in a time, spread evenly."""

    def append_log(self, entries: Sequence[LogEntry]) -> Mark:
        """Append entries, all or none, and return the place of the last one.

        Needs no lock of the fleet: what several processes append at once stands one after the
        other. Entries older than `KEPT` go from the beginning; the chain keeps its anchor.
        """

    def read_log(self, since: datetime | None = None) -> tuple[LogEntry, ...]:
        """Return the entries from a moment on, in the order in which they were written."""

    def log_chain(self) -> Chain:
        """Return the whole log as it is kept, to be verified."""

    def charge(self, charging: Charging) -> bool:
        """Add to the ledger, all or nothing; False when its time was charged by someone else."""

    def note_payers(self, payers: Sequence[MachinePayer]) -> None:
        """Note the payers of machines that are to be created; other machines keep theirs."""

    def ledger(self, since: Since, currency: str) -> Ledger:
        """Return what was charged in the current hour, day and month, by payer.

        Raises StoreFailed where the month was charged in another currency.
        """

    def tallies(self, month: str) -> tuple[Tally, ...]:
        """Return what was counted in a month, as 2026-11, by kind and name."""

    def waited(self) -> Mapping[str, datetime]:
        """Return the requests that waited in the last run that counted, to since when."""

    def charged_since(self) -> datetime | None:
        """Return the first hour that anything was charged in; None: nothing was yet."""

    def absences(self) -> tuple[Absence, ...]:
        """Return the machines that the last run missed in listings."""

    def record_absences(self, absences: Sequence[Absence]) -> None:
        """Remember the machines that this run missed, in place of those of the last one."""

    def record_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Remember tries to make machines; a try is known by its worker and its time."""

    def attempts(self, latest: int) -> tuple[Attempt, ...]:
        """Return the latest tries of each pool, machine type and market, the oldest first.

        And all that have not ended.
        """

    def spent(self) -> Mapping[str, tuple[str, ...]]:
        """Return the digest of each approval that was used, to the machines it was used for."""

    def spend(self, approval: str, machines: Collection[str]) -> None:
        """Use an approval for these machines; one that it was used for already counts once."""

    def refund(self, approval: str, machines: Collection[str]) -> None:
        """Take back what an approval was used for where it was not done after all."""

    def orders(self, now: datetime) -> tuple[Order, ...]:
        """Return what operators ordered that is in force then, sorted by its key."""

    def place_order(self, order: Order, entry: LogEntry, console: str = "") -> None:
        """Write down an order in place of one of the same key, and into the log, both or neither.

        It needs no lock of the fleet. `console` is the end of a held machine's console.
        """

    def lift_orders(self, orders: Mapping[str, LogEntry]) -> frozenset[str]:
        """Drop orders by key, each with what the log says of it; return which there were."""

    def console(self, order: str) -> str:
        """Return the end of the console that was kept with a hold; empty: none was."""

    def image_versions(self) -> tuple[Version, ...]:
        """Return every version that is remembered, by image, the oldest first."""

    def save_image_version(self, version: Version, *, was: Version | None) -> None:
        """Remember a version in place of what it was; None: it is new.

        Raises VersionMoved where somebody else changed, dropped or added it in the meantime.
        """

    def move_image_versions(self, moves: Sequence[Move], log: Sequence[LogEntry] = ()) -> None:
        """Do that with several, and append to the log, all or none."""

    def forget_image_version(self, image: str, version: str) -> None:
        """Forget a version; one that is not recorded is fine."""

    def save_manifest(self, manifest: Manifest) -> None:
        """Remember what a published version holds, in place of what was known of it."""

    def manifest(self, image: str, version: str) -> Manifest | None:
        """Return what a published version holds; None: not recorded."""

    def rules_seen(self) -> Mapping[str, tuple[str, datetime]]:
        """Return, by queue and place, the digest of the rules seen last, and since when."""

    def see_rules(self, seen: Mapping[str, tuple[str, datetime]]) -> None:
        """Remember that."""

    def notified(self) -> Mapping[str, tuple[bool, datetime]]:
        """Return, by channel and notice, whether it was sent, and when that was last tried."""

    def note_notified(self, tried: Mapping[str, tuple[bool, datetime]], before: datetime) -> None:
        """Remember that, and forget what was last tried before that moment."""

    def departures(self) -> tuple[Departure, ...]:
        """Return why workers were drained or switched off, by worker and registry."""

    def note_departures(
        self, departures: Collection[Departure], gone: Collection[Departure] = ()
    ) -> None:
        """Remember these, each in place of an earlier one of its worker and registry."""

    def price_lists(self) -> Mapping[str, PriceList]:
        """Return, by provider, the price list that was kept last; an unreadable one is none."""

    def keep_price_list(self, provider: str, prices: PriceList) -> None:
        """Keep a price list in place of what was kept of this provider."""

    def server_time(self) -> datetime | None:
        """Return what the clock of the store's server says; None where it has none of its own."""

    def lock(self, owner: str, now: datetime) -> AbstractContextManager[str | None]:
        """Hold the fleet's lock, or raise Locked with who holds it since when.

        Yields who died holding it, where the store can tell that.
        """


class TicketDesk(Protocol):
    """Where tickets of one queue are kept; what it gives out it gives out under the lock."""

    def settle(
        self, now: datetime, machines: Collection[str] | None, broken: Collection[str] = ()
    ) -> tuple[Ticket, ...]:
        """Write down which tickets have ended by now, and return those that are open then.

        What clients did since `read` is seen the next time. Machines that are not among these,
        which are all that anybody knows, are forgotten; None: which there are is not known.
        Tickets whose machine is a broken one fail.
        """

    def released(self) -> tuple[str, ...]:
        """Return the machines that tickets gave back, and that were not cleaned since."""

    def clean(self, machine: str, trouble: str) -> None:
        """Note that a machine was cleaned; after a failure it is not reused."""

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Give machines to tickets that still wait, and return which got theirs.

        A machine that must not have its ticket is left out, and it is said why.
        """

    def note(self, notes: Mapping[int, str]) -> None:
        """Write down what holds back each ticket that waits; nothing for those left out."""

    def known_since(self) -> datetime | None:
        """Return from when on tickets are remembered; None: all of them are."""

    def keep(self, machines: Mapping[str, str], now: datetime) -> dict[str, int]:
        """Open a ticket for each machine, given with its pool, whose own is not remembered.

        Return the ids. A machine that has a ticket gets no other.
        """

    def workers(self, now: datetime) -> tuple[Worker, ...]:
        """Return who has a ticket or had one."""

    def read(self, now: datetime) -> QueueReading:
        """Return what waits and who works."""


class Cleaned(NamedTuple):
    """How it went to clean a machine; no trouble is the empty text."""

    trouble: str = ""
    begun: bool = True


@runtime_checkable
class MachineCleaner(Protocol):
    """A provider that looks at its machines, cleans them between tickets, and tells of them."""

    def doubted(self) -> Collection[str]:
        """Return the machines whose latest livecheck failed, as of the last listing."""

    def clean(self, machine: Machine) -> Cleaned:
        """Clean a machine that a ticket gave back; return how that went.

        What could not be begun is to be tried again: until then the machine gets no ticket.
        """

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return what else is known of a machine for its ticket's answer: `port`, `data`."""

    def check_unlisted(self, machines: Sequence[Machine]) -> Mapping[str, bool]:
        """Return by id whether machines that no listing shows work; unknown ones are left out."""

    def forget(self, name: str) -> None:
        """Forget what is remembered of a machine that is gone."""


class Task(NamedTuple):
    """Work on one pool, or on one machine."""

    what: str
    """The pool's name, or what is done to a machine: one of that name goes on at a time."""
    provider: str
    machines: Collection[str]
    """Those that it makes, deletes or cleans."""
    work: Callable[[], StackOutcome | None]
    """Returns None where nothing was begun, or nothing is to be told of it."""


class PoolExecutor(Protocol):
    """Carries out tasks."""

    def run(self, tasks: Sequence[Task]) -> None:
        """Carry out tasks; one that takes long may go on after this returns.

        What is under way is not begun again.
        """

    @property
    def under_way(self) -> Mapping[str, Collection[str]]:
        """Return what went on when this run began, or goes on now, with its machines."""

    def ended(self) -> Sequence[StackOutcome]:
        """Return what became of the tasks that have ended, each once; also of earlier runs'."""
