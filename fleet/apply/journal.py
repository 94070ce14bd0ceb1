"""Record every change in the journal before the change is made.

An operator and the next run can then read which changes a killed run had started. One operation of
an engine is one entry; the state of its stack records each machine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from fleet.apply.observe import Sources
from fleet.model.facts import Base, SharedResource, Stack, Unknown, WorkerInputs
from fleet.ports import (
    NO_USER_DATA,
    Engine,
    Enroller,
    Enrolment,
    Progress,
    Registry,
    SharedStackEngine,
    StackChange,
    StackRef,
    StackStep,
    Tell,
)

Note = Callable[[str], None]


def journalled(sources: Sources, note: Note) -> Sources:
    """Return adapters that describe each change to `note` before they make the change."""
    planned: dict[str, tuple[StackStep, ...]] = {}
    return replace(
        sources,
        registries={
            name: _Registry(registry, name, note) for name, registry in sources.registries.items()
        },
        enrollers={
            name: _Enroller(enroller, name, note) for name, enroller in sources.enrollers.items()
        },
        bases={name: _SharedStacks(base, note) for name, base in sources.bases.items()},
        engine_of=lambda provider: _Engine(sources.engine_of(provider), planned, note),
    )


class _Registry:
    def __init__(self, registry: Registry, name: str, note: Note) -> None:
        self._registry = registry
        self._name = name
        self._note = note

    def drain(self, worker: str) -> None:
        self._note(f"queue {self._name}: drain {worker}")
        self._registry.drain(worker)

    def resume(self, worker: str) -> None:
        self._note(f"queue {self._name}: give back {worker}")
        self._registry.resume(worker)

    def disable(self, worker: str) -> None:
        self._note(f"queue {self._name}: disable {worker}")
        self._registry.disable(worker)

    def revoke(self, worker: str) -> None:
        self._note(f"queue {self._name}: revoke the token of {worker}")
        self._registry.revoke(worker)

    def release(self, worker: str) -> None:
        self._note(f"queue {self._name}: release {worker}")
        self._registry.release(worker)

    def confirm(self, tell: Tell) -> None:
        self._registry.confirm(tell)


class _Enroller:
    def __init__(self, enroller: Enroller, name: str, note: Note) -> None:
        self._enroller = enroller
        self._name = name
        self._note = note

    def enrol(self, enrolment: Enrolment) -> str:
        self._note(f"queue {self._name}: enrol {enrolment.worker}")
        return self._enroller.enrol(enrolment)


class _Engine:
    """An engine that notes each update before the start, with the steps of the last preview."""

    def __init__(
        self, engine: Engine, planned: dict[str, tuple[StackStep, ...]], note: Note
    ) -> None:
        self.name: Literal["embedded", "pulumi"] = engine.name
        self._engine = engine
        self._planned = planned
        self._note = note

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        return self._engine.read(ref)

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[StackStep, ...]:
        self._planned[ref.name] = self._engine.preview(ref, workers)
        return self._planned[ref.name]

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        self._note(_describe_update(ref, self._planned.get(ref.name, ())))
        return self._engine.up(ref, workers, progress, user_data)

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[StackChange]:
        with self._engine.prepare(ref, workers) as change:

            def make(progress: Progress, user_data: Mapping[str, str]) -> tuple[StackStep, ...]:
                self._note(_describe_update(ref, change.steps))
                return change.make(progress, user_data)

            yield StackChange(change.steps, make)

    def forget(self, ref: StackRef, worker: str) -> None:
        self._note(f"stack {ref.name}: forget {worker}")
        self._engine.forget(ref, worker)


class _SharedStacks:
    """An engine of shared stacks that notes each update before it starts."""

    def __init__(self, base: SharedStackEngine, note: Note) -> None:
        self._base = base
        self._note = note
        self._planned: tuple[StackStep, ...] = ()

    def read(self, ref: StackRef) -> Base | Unknown | None:
        return self._base.read(ref)

    def preview(self, ref: StackRef, parts: Sequence[SharedResource]) -> tuple[StackStep, ...]:
        self._planned = self._base.preview(ref, parts)
        return self._planned

    def up(
        self, ref: StackRef, parts: Sequence[SharedResource], progress: Progress
    ) -> tuple[StackStep, ...]:
        self._note(_describe_update(ref, self._planned))
        return self._base.up(ref, parts, progress)


def _describe_update(ref: StackRef, steps: Sequence[StackStep]) -> str:
    said = ", ".join(f"{step.operation} {step.worker}" for step in steps)
    return f"stack {ref.name}: {said or 'update'}"
