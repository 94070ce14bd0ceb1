"""The Pulumi engine, which runs stack programs with the Pulumi CLI.

After a killed run, the next run removes its lock and its pending operations. It adopts machines
that exist but are missing from state, instead of creating them again.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from fleet.engines.projects import (
    AbsenceCheck,
    ProviderAccount,
    check_holds,
    check_provider,
    check_still_there,
    evaluate,
    find_listed,
    is_made_from,
    load_project,
    project_name,
    two_step_change,
)
from fleet.engines.pulumi_cli import CliStack, Events, Home, Program, UpdateGate
from fleet.engines.pulumi_state import (
    Deployment,
    break_dead_locks,
    find_locks,
    open_objects,
    read_checkpoint,
    read_deployment,
    resources_of,
    serial_of,
)
from fleet.errors import (
    EngineAbsent,
    PlanRefused,
    SecretMissing,
    SourceUnreachable,
    StackFailed,
    StoreFailed,
)
from fleet.model.facts import Base, SharedResource, Stack, Unknown, WorkerInputs
from fleet.ports import NO_USER_DATA, Progress, StackChange, StackRef, StackStep
from fleet.state.processes import find_tokens


class _Stacks(ABC):
    """Stacks of one Pulumi backend, read without the CLI if fleet can read the backend."""

    def __init__(self, backend: str, home: Path, passphrase: Callable[[], str] | None) -> None:
        self._objects = open_objects(backend)
        self._place = backend, Home(home), passphrase

    @abstractmethod
    def _account(self, ref: StackRef) -> ProviderAccount:
        """Return the access to the provider of a stack."""

    def _deployment(self, ref: StackRef) -> dict[str, Any] | None:
        if self._objects:
            return read_checkpoint(self._objects, project_name(ref.project), ref.name)
        return self._stack(ref).export()

    def _stack(self, ref: StackRef) -> CliStack:
        return CliStack(*self._place, ref, self._account)

    def _configure(self, ref: StackRef, settings: Mapping[str, Any]) -> None:
        """Write inputs into the settings, so that a manual `pulumi up` declares the resources."""
        project = project_name(ref.project)
        texts = {f"{project}:{key}": json.dumps(settings[key], sort_keys=True) for key in settings}
        self._stack(ref).configure(texts)

    def _repair(self, ref: StackRef) -> None:
        """Remove a killed run's lock, and restore a checkpoint that a full disk truncated."""
        break_dead_locks(self._objects, project_name(ref.project), ref.name)
        self._stack(ref).restore()


class PulumiEngine(_Stacks):
    """Engine that applies stacks with the Pulumi CLI."""

    name: Literal["embedded", "pulumi"] = "pulumi"

    def __init__(
        self,
        backend: str,
        home: Path,
        passphrase: Callable[[], str] | None,
        accounts: Mapping[str, ProviderAccount],
    ) -> None:
        super().__init__(backend, home, passphrase)
        self._accounts = accounts
        self._absences = AbsenceCheck()
        self._checked_inputs: tuple[StackRef, Sequence[WorkerInputs]] | None = None

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the recorded stack, without the CLI if fleet can read the backend."""
        try:
            deployment = self._read_recorded(ref)
            unsure = deployment and self._needs_cleanup(ref)
        except (StoreFailed, StackFailed, EngineAbsent, SecretMissing) as error:
            return Unknown.of(error)
        if deployment is None:
            return None
        return deployment.stack.altered(interrupted=deployment.stack.interrupted or bool(unsure))

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[StackStep, ...]:
        """Return the steps that `up` would do, sorted by name, without unchanged resources."""
        self._check_inputs(ref, workers)
        recorded = self._read_recorded(ref)
        if recorded is None:
            # Pulumi previews only existing stacks, and a preview must not create a stack.
            names = sorted(worker.name for worker in workers)
            return tuple(StackStep(worker=name, operation="create") for name in names)
        stack = self._stack(ref)
        stack.restore()
        left = self._leftovers(ref, recorded, workers)
        events = Events(stack.secrets)
        stack.preview(self._program(ref, _ProgramInputs(workers, left.adopted)), events)
        gone = tuple(StackStep(worker=each.name, operation="delete") for each in left.orphans)
        # `up` first removes errors after a creation, so that it does not do a step without a
        # changed input.
        planned = (
            step
            for step in events.planned
            if step.worker not in recorded.unready
            or step != StackStep(worker=step.worker, operation="update")
        )
        steps = (*(step for step in planned if step.worker not in left.gone), *gone)
        return tuple(sorted(steps, key=lambda step: step.worker))

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[StackChange]:
        """Start an update that waits after its preview, with its stack locked."""
        recorded = self._read_recorded(ref)
        if recorded is None or recorded.is_unfinished or self._needs_cleanup(ref):
            # Leftovers are cleaned up before an update, but not before a preview.
            yield two_step_change(self, ref, workers)
            return
        adopted = self._leftovers(ref, recorded, workers).adopted
        with UpdateGate(ref, self._program(ref, _ProgramInputs(workers, adopted))) as gate:
            stack = self._stack(ref)
            secrets = list(stack.secrets)
            events = Events(secrets)

            def make(progress: Progress, user_data: Mapping[str, str]) -> tuple[StackStep, ...]:
                # Machines may have been deleted since the preview.
                there = self._leftovers(ref, recorded, workers).adopted if adopted else adopted
                check_still_there(ref, user_data, {*there, *recorded.stack.ids})
                new = {name: t for name, t in user_data.items() if name not in recorded.stack.ids}
                given = _ProgramInputs(workers, there, new)
                secrets[:0] = given.secrets
                self._configure(ref, self._settings(ref, workers))
                stack.keep([each.name for each in workers])
                events.go_on(progress)
                try:
                    gate.let_through(self._program(ref, given))
                except StackFailed as failure:
                    return self._check_unknown_results(ref, given, failure, events)
                return events.done

            stack.keep()
            gate.start(lambda: stack.up_through(gate, events))
            if not events.wait_for_summary():
                raise StackFailed(f"stack {ref.name}: Pulumi ended without a preview")
            yield StackChange(events.planned, make)

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        """Apply the changes. After a failed step, continue with the other steps."""
        self._check_inputs(ref, workers)
        recorded = self._read_recorded(ref)
        left = _Leftovers()
        # Even if the stack is missing: a run that was killed while creating it had locked it.
        self._repair(ref)
        if recorded or "" in user_data.values():
            # The machines of a missing stack possibly still exist.
            empty = Stack(engine="pulumi", provider=ref.provider, serial=0)
            known = recorded or Deployment(empty, pending=(), deleting=())
            left = self._leftovers(ref, known, workers)
        if recorded and recorded.stack.interrupted:
            self._stack(ref).forget_pending()
        if recorded and recorded.unready:
            self._stack(ref).forget_init_errors()
        for name in sorted(left.gone):
            # The machine was already deleted; a provider may refuse a second deletion.
            self._stack(ref).forget_worker(name)
        check_still_there(ref, user_data, {*left.adopted, *_ids(recorded)})
        if recorded and left.orphans:
            # Pulumi deletes only resources in its state, so first adopt an unwanted machine.
            kept = [each for each in recorded.stack.workers if each.name in recorded.stack.ids]
            kept = [each for each in (*kept, *recorded.deleting) if each.name not in left.gone]
            hidden = Events(self._stack(ref).secrets)
            self._up(ref, _ProgramInputs([*kept, *left.orphans], left.orphan_ids), hidden)
        if recorded is None:
            self._stack(ref).make()
        new = {name: text for name, text in user_data.items() if name not in _ids(recorded)}
        given = _ProgramInputs(workers, left.adopted, new)
        events = Events((*self._stack(ref).secrets, *given.secrets), progress)
        try:
            self._up(ref, given, events)
        except StackFailed as failure:
            done = self._check_unknown_results(ref, given, failure, events)
        else:
            done = events.done
        return tuple(step for step in done if step.worker not in left.gone)

    def forget(self, ref: StackRef, worker: str) -> None:
        """Remove a worker from state and settings, without calling the provider."""
        recorded = self._read_recorded(ref)
        check_holds(ref, worker, recorded.stack.ids if recorded else ())
        if recorded and (recorded.pending or recorded.deleting):
            # Pulumi's import would drop the unfinished operations of that run.
            raise PlanRefused(
                f"stack {ref.name}: an earlier apply did not finish; run `fleet apply`, then "
                f"forget {worker}"
            )
        self._repair(ref)
        self._stack(ref).forget_worker(worker)
        after = self._read_recorded(ref)
        self._configure(ref, self._settings(ref, after.stack.workers if after else ()))

    def _read_recorded(self, ref: StackRef) -> Deployment | None:
        found = self._deployment(ref)
        if found is None:
            return None
        deployment = read_deployment(found, ref, load_project(ref.project))
        holds = bool(deployment.stack.workers or deployment.stack.ids)
        check_provider(ref, deployment.stack.provider, holds_machines=holds)
        return deployment

    def _needs_cleanup(self, ref: StackRef) -> bool:
        objects = self._objects
        is_locked = objects and find_locks(objects, project_name(ref.project), ref.name)
        return bool(is_locked) or self._stack(ref).is_cut()

    def _leftovers(
        self, ref: StackRef, recorded: Deployment, workers: Sequence[WorkerInputs]
    ) -> "_Leftovers":
        """Find the machines of a killed run: missing from the state, or only in the state."""
        wanted = {each.name: each for each in workers}
        # An interrupted deletion may have deleted its machine, so the listing decides.
        unsure = {each.name: each for each in recorded.deleting if each.name not in wanted}
        suspects = (
            unsure
            | {each.name: each for each in recorded.pending}
            | {name: each for name, each in wanted.items() if name not in recorded.stack.ids}
        )
        found = find_listed(self._account(ref).provider, suspects) if suspects else {}
        if isinstance(found, Unknown):
            if recorded.pending or unsure:
                raise StackFailed(
                    f"stack {ref.name}: an earlier run did not finish, and the machines of its "
                    f"provider are unknown: {found.unknown}"
                )
            found = {}
        ids = {name: m.id for name, m in found.items() if is_made_from(m, suspects[name])}
        orphans = {name for name in ids if name not in wanted and name not in unsure}
        unlisted = [each for name, each in unsure.items() if name not in ids]
        return _Leftovers(
            adopted={name: each for name, each in ids.items() if name in wanted},
            orphans=tuple(suspects[name] for name in sorted(orphans)),
            orphan_ids={name: ids[name] for name in orphans},
            gone=frozenset(self._surely_gone(ref, recorded, unlisted)),
        )

    def _check_unknown_results(
        self, ref: StackRef, given: "_ProgramInputs", failure: StackFailed, events: Events
    ) -> tuple[StackStep, ...]:
        """Check machines whose step has no known result; return done steps, or raise the failures.

        A machine that was created without a reply is missing from state. A machine that was
        deleted without a reply is still in the state.
        """
        if self._stack(ref).is_cut():
            raise failure
        recorded = self._read_recorded(ref)
        if recorded is None:
            raise failure
        if recorded.unready and not recorded.stack.interrupted:
            self._stack(ref).forget_init_errors()
        names = {each.name for each in given.workers}
        failed = [each for each in given.workers if each.name in failure.failed]
        left = self._leftovers(ref, recorded, failed) if failed else _Leftovers()
        going = failure.failed.keys() - names
        begun = [each for each in recorded.stack.workers if each.name in going]
        # Their deletion failed, but their provider may no longer list them.
        deleted = self._surely_gone(ref, recorded, begun)
        if not (left.adopted or deleted):
            raise failure
        for name in deleted:
            self._stack(ref).forget_worker(name)
        if left.adopted:
            known = {*recorded.stack.ids, *left.adopted}
            there = [each for each in given.workers if each.name in known]
            self._up(ref, _ProgramInputs(there, left.adopted), events)
        steps = (*events.done, *(StackStep(worker=name, operation="delete") for name in deleted))
        machines = (names | recorded.stack.ids.keys()) - set(deleted)
        others = {name: said for name, said in events.failed.items() if name in machines}
        if others:
            done = tuple(step.worker for step in steps)
            raise StackFailed(str(failure), done=done, failed=others) from failure
        return tuple(sorted(steps, key=lambda step: step.worker))

    def _surely_gone(
        self, ref: StackRef, recorded: Deployment, going: Sequence[WorkerInputs]
    ) -> tuple[str, ...]:
        provider = self._account(ref).provider
        return self._absences.surely_gone(provider, going, recorded.stack.ids)

    def _check_inputs(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> None:
        """Raise the program's error for invalid inputs before any step starts."""
        if (ref, workers) == self._checked_inputs:
            return
        program = load_project(ref.project).program
        inputs = self._inputs(ref, _ProgramInputs(workers))
        evaluate(lambda: program(inputs), project=ref.project, stack=ref.name)
        self._checked_inputs = (ref, workers)

    def _settings(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> dict[str, Any]:
        return {
            "workers": [worker.model_dump(mode="json") for worker in workers],
            "owner": {"engine": self.name, "provider": ref.provider},
        }

    def _inputs(self, ref: StackRef, given: "_ProgramInputs") -> dict[str, Any]:
        given_once = {"user_data": dict(given.user_data), "adopt": dict(given.adopt)}
        return {**self._account(ref).inputs, **self._settings(ref, given.workers), **given_once}

    def _up(self, ref: StackRef, given: "_ProgramInputs", events: Events) -> None:
        stack = self._stack(ref)
        self._configure(ref, self._settings(ref, given.workers))
        stack.keep([each.name for each in given.workers])
        stack.up(self._program(ref, given), events)

    def _program(self, ref: StackRef, given: "_ProgramInputs") -> Program:
        return partial(load_project(ref.project).program, self._inputs(ref, given))

    def _account(self, ref: StackRef) -> ProviderAccount:
        account = self._accounts.get(ref.provider)
        if account is None:
            known = ", ".join(sorted(self._accounts)) or "none"
            raise PlanRefused(
                f"stack {ref.name}: there is no provider {ref.provider!r} (known: {known})"
            )
        return account


class _ProgramInputs(NamedTuple):
    """The inputs of a stack program. The user data is secret."""

    workers: Sequence[WorkerInputs] = ()
    adopt: Mapping[str, str] = MappingProxyType({})
    user_data: Mapping[str, str] = NO_USER_DATA

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return texts that messages mask: user data, and words in it that may be tokens."""
        texts = self.user_data.values()
        return (*texts, *(word for text in texts for word in find_tokens(text)))


class _Leftovers(NamedTuple):
    """Machines that the state lacks, wanted or not, and machines that only the state has."""

    adopted: Mapping[str, str] = MappingProxyType({})
    orphans: tuple[WorkerInputs, ...] = ()
    orphan_ids: Mapping[str, str] = MappingProxyType({})
    gone: frozenset[str] = frozenset()


def _ids(recorded: Deployment | None) -> Mapping[str, str]:
    return recorded.stack.ids if recorded else {}


ListMarked = Callable[[str], Mapping[str, str] | Unknown]
_PARTS = TypeAdapter(tuple[SharedResource, ...])


class PulumiBase(_Stacks):
    """Applies the stack of a provider's shared resources, with the Pulumi CLI."""

    def __init__(
        self,
        backend: str,
        home: Path,
        passphrase: Callable[[], str] | None,
        account: ProviderAccount,
        marked: ListMarked,
    ) -> None:
        """`marked` lists the existing resources of a fleet that the stack can adopt."""
        super().__init__(backend, home, passphrase)
        self._own = account
        self._marked = marked
        self._previewed_serial: int | None = None
        """Serial of the state in the last preview; None if no preview restricts `up`."""

    def read(self, ref: StackRef) -> Base | Unknown | None:
        """Return the recorded shared resources, without the CLI if fleet can read the backend."""
        try:
            found = self._deployment(ref)
            if found is None:
                return None
            kinds = load_project(ref.project).parts
            resources, outputs = resources_of(found)
            try:
                parts = _PARTS.validate_json(outputs.get("parts", "[]"))
            except ValidationError as invalid:
                raise StoreFailed(f"stack {ref.name} does not record its parts") from invalid
            ids = {
                f"{kinds[each['type']]}/{str(each['urn']).rpartition('::')[2]}": str(each["id"])
                for each in resources
                if each["type"] in kinds and each.get("id")
            }
            base = Base(
                serial=serial_of(found),
                parts=parts,
                ids=dict(sorted(ids.items())),
                # `parts` is recorded even if a resource failed in that run, `laid` is not.
                laid="laid" in outputs and outputs["laid"] == outputs.get("parts"),
                interrupted=bool(found.get("pending_operations")),
            )
            return base.altered(interrupted=True) if self._stack(ref).is_cut() else base
        except (StoreFailed, StackFailed, EngineAbsent, SecretMissing) as error:
            return Unknown.of(error)

    def preview(self, ref: StackRef, parts: Sequence[SharedResource]) -> tuple[StackStep, ...]:
        """Return the steps that `up` would do, sorted by name."""
        found = self._deployment(ref)
        self._previewed_serial = serial_of(found or {})
        if found is None:
            # Pulumi previews only existing stacks, and a preview must not create a stack.
            named = evaluate(
                lambda: load_project(ref.project).program(_settings(ref, parts) | {"adopt": {}}),
                project=ref.project,
                stack=ref.name,
            )
            steps = (StackStep(worker=each.name, operation="create") for each in named)
            return tuple(sorted(steps, key=lambda step: step.worker))
        stack = self._stack(ref)
        stack.restore()
        events = Events(stack.secrets)
        stack.preview(self._program(ref, parts), events)
        return events.planned

    def up(
        self, ref: StackRef, parts: Sequence[SharedResource], progress: Progress
    ) -> tuple[StackStep, ...]:
        """Apply the changes. After a failed resource, continue with the others.

        Raises PlanRefused if the stack was changed since its preview.
        """
        found = self._deployment(ref)
        self._repair(ref)
        previewed, self._previewed_serial = self._previewed_serial, None
        if previewed not in (None, serial_of(found or {})):
            raise PlanRefused(
                f"refused: stack {ref.name} was changed after its preview; nothing was changed in "
                "this run; the next apply plans again"
            )
        stack = self._stack(ref)
        if found is None:
            stack.make()
        elif found.get("pending_operations"):
            stack.forget_pending()
        try:
            for each in parts if found is not None else ():
                known = _existing_names(found or {})
                self._own.clear(each.inputs["labels"]["fleet"], each.name, known)
        except SourceUnreachable as error:
            raise StackFailed(
                f"stack {ref.name}: what an earlier run left cannot be deleted: {error}"
            ) from error
        events = Events(stack.secrets, progress)
        program = self._program(ref, parts)
        self._configure(ref, _settings(ref, parts))
        stack.keep()
        stack.up(program, events)
        return events.done

    def _account(self, ref: StackRef) -> ProviderAccount:  # noqa: ARG002 - there is one provider
        return self._own

    def _program(self, ref: StackRef, parts: Sequence[SharedResource]) -> Program:
        """Return the program, which adopts existing resources that the state lacks."""
        wanted = {each.key for each in parts}
        recorded = _existing_names(self._deployment(ref) or {})
        adopted: dict[str, str] = {}
        for fleet in {each.inputs["labels"]["fleet"] for each in parts}:
            marked = self._marked(fleet)
            if isinstance(marked, Unknown):
                raise StackFailed(
                    f"stack {ref.name}: resources of its provider are unknown: {marked.unknown}"
                )
            adopted |= {
                key: each
                for key, each in marked.items()
                # A subnet is a part of its network.
                if key.removesuffix("/subnet") in wanted
                and key.partition("/")[2].replace("/", "-") not in recorded
            }
        inputs = _settings(ref, parts) | {"adopt": adopted}
        return partial(load_project(ref.project).program, inputs)


def _existing_names(deployment: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of recorded resources that exist at the provider."""
    return frozenset(
        str(each["urn"]).rpartition("::")[2]
        for each in deployment.get("resources") or ()
        if each.get("id") and not each.get("delete")
    )


def _settings(ref: StackRef, parts: Sequence[SharedResource]) -> dict[str, Any]:
    told = json.dumps([each.model_dump(mode="json") for each in parts], sort_keys=True)
    return {
        "workers": [],
        **{
            f"{kind}s": [{"name": each.name, **each.inputs} for each in parts if each.kind == kind]
            for kind in sorted({each.kind for each in parts})
        },
        "owner": {"engine": "pulumi", "provider": ref.provider, "parts": told},
    }
