"""This module names what the sequences in `operate` need from the world, as protocols.

Each edge implements one; each has a written fake and a contract suite in tests/ports/.
Errors an edge may raise are the ones of fleet.errors.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Literal, Protocol, TypeVar

from pydantic import Field

from fleet.doctor import Summary
from fleet.facts import Found, Listing, QueueReading, Stack, Unknown, WorkerInputs
from fleet.facts.bases import Base, Part
from fleet.facts.prices import PriceList
from fleet.facts.rules import HeldRules
from fleet.facts.values import Moment, Tags, Value

T = TypeVar("T")


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


class Registry(Protocol):
    """Where a queue's workers can be told to stop; only some queues have one."""

    def drain(self, worker: str) -> None:
        """Have the queue give this worker nothing new, and read it back."""

    def disable(self, worker: str) -> None:
        """Switch the worker off for good; refused with WorkerBusy while it runs something."""

    def revoke(self, worker: str) -> None:
        """Take back the token of a worker that never registered, and read back that none did.

        Refused with WorkerBusy when it has registered in the meantime; once revoked it cannot.
        """

    def release(self, worker: str) -> None:
        """Switch off a worker whose machine is gone, and give what it ran back to the queue."""

    def pause(self) -> float:
        """Return how many seconds `confirm` waits before it looks; 0 where it looks at nothing."""

    def confirm(self) -> None:
        """See that what was told in this run stands, as long after it as the queue needs."""


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


class Keeper(Protocol):
    """Where a machine can be looked after without its stack; only some providers have one."""

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Note at machines, by the provider's ids, until when they are vouched for; gone is fine.

        What they were made from does not change by it.
        """

    def delete(self, machine_id: str) -> None:
        """Delete a machine; one that is already gone is fine."""


class Adopter(Protocol):
    """Where machines that exist can be found by a label and marked; only some providers are."""

    def find(self, key: str, value: str) -> Sequence[Found]:
        """Return the machines whose label of this key is exactly this value, whoever made them.

        Raises SourceUnreachable where not all of them can be told.
        """

    def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
        """Give a machine the labels of a worker beside its own; nothing else of it changes."""


class Step(Value):
    """One resource of a stack that an operation would touch or has touched."""

    worker: str
    operation: Literal["create", "delete", "update", "replace", "same"]
    detail: str = ""


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
        """Make it so and return what was done; raises StackFailed when some of it failed.

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


class Sharer(Protocol):
    """Changes what the machines of one provider share; only some providers have such a base."""

    def read(self, ref: StackRef) -> Base | Unknown | None:
        """Return the base as recorded; None when it never existed. Starts no operation."""

    def preview(self, ref: StackRef, parts: Sequence[Part]) -> tuple[Step, ...]:
        """Return what `up` would do to each part, by its name, without `same`."""

    def up(self, ref: StackRef, parts: Sequence[Part], progress: Progress) -> tuple[Step, ...]:
        """Make it so and return what was done; raises StackFailed when some of it failed."""


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
        """Return who else may read where it lies, and the command that ends that; None: nobody."""


class Asking(Protocol):
    """Asks several sources; what fails, or takes longer than all have together, is Unknown."""

    def __call__(self, kind: str, asked: Mapping[str, Callable[[], T]]) -> dict[str, T | Unknown]:
        """Return what each source of this kind tells, by name."""


class Members(Protocol):
    """Says who is in which group."""

    def read(self) -> Mapping[str, tuple[str, ...]] | Unknown:
        """Return the users of each group; what cannot be read is Unknown, never empty."""


class Files(Protocol):
    """Reads what a person wrote."""

    def read(self, name: str, limit: int) -> bytes:
        """Return a file's bytes; raises FileUnreadable, also when it is longer than limit."""

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Return the names that match, sorted."""


class Console(Protocol):
    """Where a command writes; only cli.py implements it."""

    colour: bool
    watched: bool
    """A person sees what `progress` shows; else only lines count."""

    def out(self, text: str) -> None:
        """Write to standard output."""

    def note(self, text: str) -> None:
        """Write a line to standard error."""

    def progress(self, text: str) -> None:
        """Show what is being waited for when a person is watching; nothing in CI."""
