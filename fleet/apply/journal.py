"""Record every change in the journal before the change is made.

An operator and the next run can then read which changes a killed run had started. One operation of
an engine is one entry; the state of its stack records each machine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from fleet.apply.observe import Sources
from fleet.ports import Progress, StackChange, StackRef, StackStep, Tell, with_methods

_REGISTRY_STEPS = {
    "drain": "drain {0}",
    "resume": "give back {0}",
    "disable": "disable {0}",
    "revoke": "revoke the token of {0}",
    "release": "release {0}",
}
"""Method of a registry that changes a worker, to the text of its step."""
Adapter = TypeVar("Adapter")


def journalled(sources: Sources, note: Tell) -> Sources:
    """Return adapters that describe each change to `note` before they make the change."""
    planned: dict[str, tuple[StackStep, ...]] = {}
    enroller_steps = {"enrol": "enrol {0.worker}"}
    return replace(
        sources,
        registries={
            name: _note_steps(each, f"queue {name}", _REGISTRY_STEPS, note)
            for name, each in sources.registries.items()
        },
        enrollers={
            name: _note_steps(each, f"queue {name}", enroller_steps, note)
            for name, each in sources.enrollers.items()
        },
        bases={
            name: _journalled_engine(base, planned, note) for name, base in sources.bases.items()
        },
        engine_of=lambda provider: _journalled_engine(sources.engine_of(provider), planned, note),
    )


def _note_steps(adapter: Adapter, place: str, steps: Mapping[str, str], note: Tell) -> Adapter:
    """Return an adapter that notes a step before a method. `steps`: method to text of its step."""

    def noted(name: str) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:  # noqa: ANN401 - the method's own result
            note(f"{place}: {steps[name].format(*arguments)}")
            return getattr(adapter, name)(*arguments)

        return call

    return with_methods(adapter, {name: noted(name) for name in steps})


def _journalled_engine(engine: Any, planned: dict[str, tuple[StackStep, ...]], note: Tell) -> Any:  # noqa: ANN401 - of machines or of shared resources
    """Return an engine that notes each change before its start. `planned` is the last preview."""

    def preview(ref: StackRef, wanted: Sequence[Any]) -> tuple[StackStep, ...]:
        planned[ref.name] = engine.preview(ref, wanted)
        return planned[ref.name]

    def up(ref: StackRef, *arguments: object) -> tuple[StackStep, ...]:
        note(_describe_update(ref, planned.get(ref.name, ())))
        steps: tuple[StackStep, ...] = engine.up(ref, *arguments)
        return steps

    @contextmanager
    def prepare(ref: StackRef, workers: Sequence[Any]) -> Iterator[StackChange]:
        with engine.prepare(ref, workers) as change:

            def make(progress: Progress, user_data: Mapping[str, str]) -> tuple[StackStep, ...]:
                note(_describe_update(ref, change.steps))
                steps: tuple[StackStep, ...] = change.make(progress, user_data)
                return steps

            yield StackChange(change.steps, make)

    def forget(ref: StackRef, worker: str) -> None:
        note(f"stack {ref.name}: forget {worker}")
        engine.forget(ref, worker)

    return with_methods(
        engine, {"preview": preview, "up": up, "prepare": prepare, "forget": forget}
    )


def _describe_update(ref: StackRef, steps: Sequence[StackStep]) -> str:
    said = ", ".join(f"{step.operation} {step.worker}" for step in steps)
    return f"stack {ref.name}: {said or 'update'}"
