"""A written engine: stacks and machines in dictionaries, faults on request."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Literal

from fleet.engines.projects import check_still_there, two_step_change
from fleet.errors import EngineMismatch, PlanRefused, StackFailed
from fleet.model.facts import Stack, WorkerInputs
from fleet.ports import NO_USER_DATA, Progress, StackChange, StackRef, StackStep


class FixedClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        """Return the moment it stands at."""
        return self.moment


class Killed(BaseException):
    """Stands for a SIGKILL: no code of the product catches it."""


class FakeEngine:
    """Keeps what it was told; `machines` is the cloud: name to what each was made from."""

    name: Literal["embedded", "pulumi"]

    def __init__(self, name: Literal["embedded", "pulumi"] = "embedded") -> None:
        self.name = name
        self.stacks: dict[str, Stack] = {}
        self.machines: dict[str, WorkerInputs] = {}
        self.given: dict[str, str] = {}
        """User data that each machine was given."""
        self.fails: set[str] = set()
        self.says = "server_error: something went wrong"
        self.begins_to_delete: set[str] = set()
        self.dies_at: str | None = None

    def read(self, ref: StackRef) -> Stack | None:
        """Return the stack as recorded."""
        stack = self.stacks.get(ref.name)
        if stack and stack.engine != self.name:
            raise EngineMismatch(f"stack {ref.name} belongs to {stack.engine}")
        return stack

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[StackStep, ...]:
        """Return what `up` would do."""
        stack = self.read(ref)
        wanted = {each.name: each for each in workers}
        recorded = {each.name: each for each in stack.workers} if stack else {}
        ids = stack.ids if stack else {}
        steps = [
            StackStep(worker=each, operation="delete") for each in recorded.keys() - wanted.keys()
        ]
        for name, worker in wanted.items():
            if name not in ids:
                steps.append(StackStep(worker=name, operation="create"))
            elif (before := recorded[name]) != worker:
                in_place = before.altered(labels=worker.labels) == worker
                steps.append(StackStep(worker=name, operation="update" if in_place else "replace"))
        return tuple(sorted(steps, key=lambda step: step.worker))

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        """Apply the changes, step by step."""
        steps = self.preview(ref, workers)
        held = self.read(ref)
        check_still_there(ref, user_data, {*self.machines, *(held.ids if held else ())})
        inputs = {each.name: each for each in workers}
        self.stacks.setdefault(ref.name, Stack(engine=self.name, provider=ref.provider, serial=1))
        for step in steps:
            if step.worker in self.fails:
                continue
            if step.operation == "create":
                self._record(ref, {step.worker: inputs[step.worker]}, {}, interrupted=True)
                self.machines[step.worker] = inputs[step.worker]
                self.given[step.worker] = user_data.get(step.worker) or self.given.get(
                    step.worker, ""
                )
                if step.worker == self.dies_at:
                    raise Killed
                self._record(ref, {}, {step.worker: f"fake-{step.worker}"})
            elif step.worker in self.begins_to_delete:
                self._begin_to_delete(ref, step.worker)
                raise StackFailed(f"{step.worker} was not deleted")
            elif step.operation == "delete":
                self.machines.pop(step.worker, None)
                self._forget(ref, step.worker)
            progress(step)
        failed = sorted(step.worker for step in steps if step.worker in self.fails)
        done = tuple(step for step in steps if step.worker not in self.fails)
        if failed:
            raise StackFailed(
                f"{failed} failed",
                done=tuple(step.worker for step in done),
                failed=dict.fromkeys(failed, self.says),
            )
        return done

    def prepare(
        self, ref: StackRef, workers: Sequence[WorkerInputs]
    ) -> AbstractContextManager[StackChange]:
        """Hold a change."""
        return nullcontext(two_step_change(self, ref, workers))

    def forget(self, ref: StackRef, worker: str) -> None:
        """Take a worker out of its stack, its machine left alone."""
        stack = self.read(ref)
        if stack is None or worker not in stack.ids:
            raise PlanRefused(f"stack {ref.name} does not hold {worker}")
        self._forget(ref, worker)

    def _record(
        self,
        ref: StackRef,
        workers: dict[str, WorkerInputs],
        ids: dict[str, str],
        *,
        interrupted: bool = False,
    ) -> None:
        stack = self.stacks[ref.name]
        known = {each.name: each for each in stack.workers} | workers
        self.stacks[ref.name] = stack.altered(
            serial=stack.serial + 1,
            workers=tuple(known[name] for name in sorted(known)),
            ids=stack.ids | ids,
            interrupted=interrupted,
        )

    def _begin_to_delete(self, ref: StackRef, worker: str) -> None:
        stack = self.stacks[ref.name]
        left = tuple(each for each in stack.workers if each.name != worker)
        self.stacks[ref.name] = stack.altered(workers=left, interrupted=True)

    def _forget(self, ref: StackRef, worker: str) -> None:
        stack = self.stacks[ref.name]
        self.stacks[ref.name] = stack.altered(
            serial=stack.serial + 1,
            workers=tuple(each for each in stack.workers if each.name != worker),
            ids={name: each for name, each in stack.ids.items() if name != worker},
        )
