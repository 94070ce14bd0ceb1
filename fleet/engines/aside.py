"""This module has other threads go on while one waits for a person's own commands."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from fleet.engines.apart import Turns
from fleet.engines.changes import previewed
from fleet.facts import Machine, Stack, Unknown, WorkerInputs
from fleet.ports import NO_USER_DATA, Change, Engine, Progress, StackRef, Step
from fleet.ports.tickets import Cleaned, Lender


class EngineAside:
    """An engine that waits for a person's own commands; it is asked by threads that take turns."""

    def __init__(self, engine: Engine, turns: Turns) -> None:
        self.name: Literal["embedded", "pulumi"] = engine.name
        self._engine = engine
        self._turns = turns

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the stack as recorded; None when it never existed."""
        return self._engine.read(ref)

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[Step, ...]:
        """Return what `up` would do, sorted by name, without `same`."""
        with self._turns.aside():
            return self._engine.preview(ref, workers)

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[Step, ...]:
        """Make it so; a creation that fails does not stop the others."""

        def tell(step: Step) -> None:
            with self._turns.mine():
                progress(step)

        with self._turns.aside():
            return self._engine.up(ref, workers, tell, user_data)

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[Change]:
        """Hold a change, which is looked at anew when it is made."""
        yield previewed(self, ref, workers)

    def forget(self, ref: StackRef, worker: str) -> None:
        """Take a worker that is gone out of the record."""
        self._engine.forget(ref, worker)


class LenderAside:
    """A provider that waits for a person's own commands, in the same way."""

    def __init__(self, lender: Lender, turns: Turns) -> None:
        self._lender = lender
        self._turns = turns

    def doubted(self) -> Collection[str]:
        """Return the machines whose latest livecheck failed, as of the last listing."""
        return self._lender.doubted()

    def clean(self, machine: Machine) -> Cleaned:
        """Clean a machine that a ticket gave back; return how that went."""
        with self._turns.aside():
            return self._lender.clean(machine)

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return what else is known of a machine for its ticket's answer."""
        return self._lender.particulars(machine)
