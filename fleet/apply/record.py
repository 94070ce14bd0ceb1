"""Record runs in the journal and in the log, with actions, reasons and origin.

The journal has each change before the change is made. An operator and the next run can then read
which changes a killed run had started. One operation of an engine is one entry; the state of its
stack records each machine.
"""

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from fleet.apply.observe import Sources
from fleet.clock import utc_now
from fleet.errors import FleetError
from fleet.model.history import Counted, Outcome, StackOutcome
from fleet.model.log import LogEntry, Origin, run_id
from fleet.model.orders import Hold, Order
from fleet.model.plan import Action, Create, Delete, Plan
from fleet.ports import Progress, RunRecords, StackChange, StackRef, StackStep, Tell, with_methods
from fleet.report.outcome import format_steps
from fleet.state.database import name_user
from fleet.state.store import Store

_OUTCOMES = {0: "done", 1: "failed", 4: "refused", 5: "partly"}
_OUTCOME_FIELDS = ("created", "drained", "deleted", "deleting", "forgotten", "cleaned", "adopted")
_PLANNED = {"forget": "delete", "clean-up": "delete"}
"""Step in the log to the verb of its action in the plan, if they differ."""
_MAX_RUNS_SEARCHED = 10
"""Number of latest runs that are searched for killed runs."""
_MAX_STEPS = 100
_MAX_STEPS_LENGTH = 10_000
_MAX_ERROR_LENGTH = 500
Actions = Mapping[tuple[str, str], Action]
"""Verb and worker to the planned action."""


def actions_of(plan: Plan) -> dict[tuple[str, str], Action]:
    """Map (verb, worker) to each action of a plan."""
    return {(each.action, each.worker): each for each in plan.actions}


@dataclass(frozen=True)
class RunLog:
    """The log of one run of a command. `started` is the start time of the run."""

    store: Store
    started: datetime
    command: str = "apply"

    def begin(self, dead: str | None = None) -> None:
        """Log the steps of killed earlier runs. `dead` is the killed process that had the lock."""
        unended = [run for run in self.store.last_runs(_MAX_RUNS_SEARCHED) if not run["ended"]]
        if not unended:
            return
        begun = {datetime.fromisoformat(run["started"]): run for run in unended}
        logged = self.store.read_log(min(begun))
        told = {each.run for each in logged if each.kind == "run"}
        entries = [
            self._entry(
                "run",
                run=run_id(started),
                outcome="killed",
                details=_without_blanks(
                    {
                        "found_by": run_id(self.started),
                        "lock": dead or "",
                        "steps": "; ".join(format_steps(run)[-_MAX_STEPS:])[-_MAX_STEPS_LENGTH:],
                    }
                ),
            )
            for started, run in sorted(begun.items())
            if run_id(started) not in told
        ]
        if entries:
            self.store.append_log(entries)

    def intend(self, plan: Plan) -> None:
        """Log the planned actions, so that they are known if the run is killed."""
        intended: dict[str, list[str]] = {}
        for each in plan.actions:
            intended.setdefault(each.action, []).append(each.worker)
        for version in plan.promotions:
            intended.setdefault("promote", []).append(f"{version.image} {version.version}")
        if intended:
            details = {verb: ", ".join(names) for verb, names in intended.items()}
            self.store.append_log([self._entry("begin", plan=plan.digests.plan, details=details)])

    @contextmanager
    def renaming(self, heirs: Mapping[str, str]) -> Iterator[None]:
        """Log pools whose stacks the block renames. `heirs` maps old names to new names."""
        before = {each.pool for each in self.store.stacks()} & heirs.keys() if heirs else set()
        yield
        gone = before - {each.pool for each in self.store.stacks()} if before else set()
        if gone:
            self.store.append_log(
                [
                    self._entry("rename", pool=heirs[old], outcome="done", details={"was": old})
                    for old in sorted(gone)
                ]
            )

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Log a failed run if the block raises an error or the user interrupts it."""
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            outcome = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            if isinstance(error, FleetError):
                outcome = _OUTCOMES.get(error.exit_code, outcome)
            entry = self._entry("run", outcome=outcome, because=str(error)[:_MAX_ERROR_LENGTH])
            with suppress(FleetError):  # if the store fails, the original error is raised
                self.store.append_log([entry])
            raise

    def record(
        self,
        outcome: Outcome,
        plan: Plan | None = None,
        earlier: Actions | None = None,
        counted: Counted | None = None,
    ) -> None:
        """Record the end of this run, in both the journal and the log or in neither.

        If `plan` is None, this was no run of the whole fleet. `earlier` has actions that earlier
        runs started.
        """
        actions = {**(earlier or {}), **(actions_of(plan) if plan else {})}
        self.store.record_run(
            started=self.started,
            ended=utc_now(),
            plan=plan.digests.plan if plan and self.command == "apply" else "",
            outcome=outcome.model_dump_json(),
            noted=RunRecords(
                [*self._changes(outcome, actions), self._end(outcome, plan)], counted
            ),
        )

    def _entry(self, kind: str, **fields: object) -> LogEntry:
        more = {"run": run_id(self.started)} | fields
        if self.command != "apply":
            more["details"] = {"command": self.command} | dict(fields.get("details", {}))  # type: ignore[call-overload]
        at = utc_now()
        return LogEntry.model_validate({"at": at, "kind": kind, "origin": find_origin()} | more)

    def _end(self, outcome: Outcome, plan: Plan | None) -> LogEntry:
        counted = {
            what: sum(len(getattr(stack, what)) for stack in outcome.stacks)
            for what in _OUTCOME_FIELDS
        }
        details = {what: str(count) for what, count in counted.items() if count}
        details |= {
            f"error {stack.pool}": stack.error.strip()[:_MAX_ERROR_LENGTH]
            for stack in outcome.stacks
            if stack.result in ("failed", "refused")
        }
        why = "; ".join((*outcome.refused, *outcome.outdated))[:_MAX_ERROR_LENGTH]
        left = ", ".join(outcome.left)
        details |= _without_blanks({"not_started": left})
        if plan is not None:
            details |= _money(plan)
            used = [
                f"{e.guard} of {e.pool}: {', '.join(e.passes)}" for e in plan.approvals if e.passes
            ]
            details |= _without_blanks({"approvals": "; ".join(used)})
        return self._entry(
            "run",
            plan=outcome.plan,
            outcome=_OUTCOMES[outcome.exit_code],
            because=why,
            details=details,
        )

    def _changes(self, outcome: Outcome, actions: Actions) -> Iterator[LogEntry]:
        for stack in outcome.stacks:
            done = (
                ("create", stack.created),
                ("drain", stack.drained),
                ("delete", stack.deleted),
                ("forget", stack.forgotten),
                ("clean-up", stack.cleaned),
                ("adopt", stack.adopted),
            )
            known = {(_PLANNED.get(verb, verb), name) for verb, names in done for name in names}
            for verb, names in done:
                for name in names:
                    action = actions.get((_PLANNED.get(verb, verb), name))
                    yield self._change(verb, stack, name, action, "done")
            for key, action in actions.items() if stack.result == "failed" else ():
                if action.pool == stack.pool and key not in known:
                    yield self._change(key[0], stack, key[1], action, "failed")
        for name in outcome.released:
            yield self._entry("disable", plan=outcome.plan, machine=name, outcome="done")
        for name in outcome.resumed:
            yield self._entry("resume", plan=outcome.plan, machine=name, outcome="done")
        for version in outcome.promoted:
            image, _, number = version.partition(" ")
            yield self._entry(
                "promote", plan=outcome.plan, details={"image": image, "version": number}
            )
        for place in outcome.rules:
            yield self._entry("rules", details={"delivered": place})

    def _change(
        self, verb: str, stack: StackOutcome, worker: str, action: Action | None, outcome: str
    ) -> LogEntry:
        cost = None
        if isinstance(action, Create):
            cost = action.cost
        elif isinstance(action, Delete):
            cost = -action.saves
        return self._entry(
            verb,
            pool=stack.pool,
            machine=worker,
            reason=action.reason.value if action else "",
            because=action.because if action else "",
            cost=cost,
            outcome=outcome,
        )


def order_entry(kind: str, at: datetime, **fields: object) -> LogEntry:
    """Return the log entry for an operator's order, outside a run."""
    return LogEntry.model_validate({"at": at, "kind": kind, "origin": find_origin()} | fields)


def log_of_order(kind: str, order: Order, now: datetime, run: str = "") -> LogEntry:
    """Return the log entry for an order that is placed or ended."""
    own = order.model_dump(mode="json", exclude={"order", "at", "reason", "pool", "machine"})
    return order_entry(
        kind,
        now,
        run=run,
        pool=("" if isinstance(order, Hold) else order.pool) or "",
        machine=order.machine if isinstance(order, Hold) else "",
        because=order.reason,
        details={key: ", ".join(v) if isinstance(v, list) else str(v) for key, v in own.items()},
    )


def _money(plan: Plan) -> dict[str, str]:
    """Return the cost of new machines until their deletion, and its lower bound, for the log."""
    found = plan.optimum
    if found is None:
        return {}
    return _without_blanks(
        {
            "currency": plan.currency,
            "planned": str(found.cost),
            "bound": str(found.bound),
            "gap": found.because if found.gap else "",
        }
    )


def _without_blanks(details: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in details.items() if value}


_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MAX_LENGTH = 300
_FORGES = ("GITHUB", "FORGEJO", "GITEA")


def find_origin(environment: Mapping[str, str] = os.environ) -> Origin:
    """Return the origin of this run from a CI job's variables; otherwise from this system."""

    def first(*names: str) -> str:
        return next(
            (environment[name][:_MAX_LENGTH] for name in names if environment.get(name)), ""
        )

    def at_forge(name: str) -> str:
        return first(*(f"{forge}_{name}" for forge in _FORGES))

    commit = first("CI_COMMIT_SHA") or at_forge("SHA")
    run = at_forge("RUN_ID")
    actions = f"{at_forge('SERVER_URL')}/{at_forge('REPOSITORY')}/actions/runs/{run}"
    pipeline = first("CI_PIPELINE_URL") or actions * bool(run)
    return Origin(
        by=first("GITLAB_USER_LOGIN") or at_forge("ACTOR") or name_user(),
        host="" if pipeline else socket.gethostname(),
        commit=commit if _COMMIT.fullmatch(commit) else "",
        pipeline=pipeline,
        job=first("CI_JOB_URL"),
    )


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
