"""This module brings up base stacks with the real engine: what the machines of a provider share.

What was made and whose answer was lost is found by its mark and name, and adopted; where that
cannot be, it is deleted first, for nothing uses it yet.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fleet.engines.account import Account
from fleet.engines.projects import evaluate, load_project
from fleet.engines.pulumi_automation import Cli, Events, Home, Session, project_name
from fleet.engines.pulumi_backends import open_objects
from fleet.engines.pulumi_state import ROOT, break_dead_locks, read_checkpoint, serial_of
from fleet.errors import (
    EngineAbsent,
    PlanRefused,
    SecretMissing,
    SourceUnreachable,
    StackFailed,
    StoreFailed,
)
from fleet.model.facts import Base, Part, Unknown
from fleet.ports import Progress, StackRef, Step

Marked = Callable[[str], Mapping[str, str] | Unknown]
_PARTS = TypeAdapter(tuple[Part, ...])


class PulumiBase:
    """Applies one provider's base stack with the Pulumi CLI."""

    def __init__(
        self,
        backend: str,
        home: Path,
        passphrase: Callable[[], str] | None,
        account: Account,
        marked: Marked,
    ) -> None:
        """Open one provider's base; `marked` returns what of it can be adopted."""
        self._objects = open_objects(backend)
        self._cli = Cli(backend, Home(home), passphrase)
        self._account = account
        self._marked = marked
        self._previewed: int | None = None
        """The serial of what the last preview began with; None: none is to be kept to."""

    def read(self, ref: StackRef) -> Base | Unknown | None:
        """Return the base as recorded; of a file backend without starting the CLI."""
        try:
            found = self._deployment(ref)
            if found is None:
                return None
            base = _base_of(found, ref)
            return base.model_copy(update={"interrupted": True}) if self._cli.is_cut(ref) else base
        except (StoreFailed, StackFailed, EngineAbsent, SecretMissing) as error:
            return Unknown(unknown=str(error))

    def preview(self, ref: StackRef, parts: Sequence[Part]) -> tuple[Step, ...]:
        """Return what `up` would do to each resource."""
        found = self._deployment(ref)
        self._previewed = serial_of(found or {})
        if found is None:
            # Pulumi previews only stacks that exist, and a preview must not make one.
            named = evaluate(
                lambda: load_project(ref.project).program(_inputs(ref, parts, {})),
                project=ref.project,
                stack=ref.name,
            )
            steps = (Step(worker=each.name, operation="create") for each in named)
            return tuple(sorted(steps, key=lambda step: step.worker))
        self._cli.restore(ref)
        events = Events(self._cli.secrets(self._account))
        session = self._session(ref, parts)
        session.run(lambda: session.stack.preview(on_event=events), events)
        return events.planned

    def up(self, ref: StackRef, parts: Sequence[Part], progress: Progress) -> tuple[Step, ...]:
        """Make it so; a part that fails does not stop the others.

        Refused where somebody changed the stack since its preview, which showed something else.
        """
        found = self._deployment(ref)
        break_dead_locks(self._objects, project_name(load_project(ref.project)), ref.name)
        self._cli.restore(ref)
        previewed, self._previewed = self._previewed, None
        if previewed not in (None, serial_of(found or {})):
            raise PlanRefused(
                f"refused: stack {ref.name} was changed after its preview; nothing was changed in "
                "this run; the next apply plans again"
            )
        if found is None:
            self._cli.make(ref, self._account)
        elif found.get("pending_operations"):
            self._cli.forget_pending(ref, self._account)
        if found is not None:
            self._delete_unknown(ref, found, parts)
        events = Events(self._cli.secrets(self._account), progress)
        session = self._session(ref, parts)
        self._configure(ref, parts)
        self._cli.keep(ref)
        session.run(
            lambda: session.stack.up(on_event=events, continue_on_error=True, show_secrets=False),
            events,
        )
        return events.done

    def _deployment(self, ref: StackRef) -> dict[str, Any] | None:
        if self._objects:
            project = project_name(load_project(ref.project))
            return read_checkpoint(self._objects, project, ref.name)
        return self._cli.export(ref, self._account)

    def _session(self, ref: StackRef, parts: Sequence[Part]) -> Session:
        program = load_project(ref.project).program
        inputs = _inputs(ref, parts, self._adopted(ref, parts))
        session = self._cli.open(ref, self._account, lambda: program(inputs))
        self._cli.configure(ref, self._account.config)
        return session

    def _adopted(self, ref: StackRef, parts: Sequence[Part]) -> dict[str, str]:
        """Return the ids of what exists although the state does not know it."""
        wanted = {each.key for each in parts}
        recorded = _known(self._deployment(ref) or {})
        adopted: dict[str, str] = {}
        for fleet in {each.inputs["labels"]["fleet"] for each in parts}:
            marked = self._marked(fleet)
            if isinstance(marked, Unknown):
                raise StackFailed(
                    f"stack {ref.name}: its provider cannot say what exists: {marked.unknown}"
                )
            adopted |= {
                key: each
                for key, each in marked.items()
                if _part(key) in wanted and _resource(key) not in recorded
            }
        return adopted

    def _delete_unknown(
        self, ref: StackRef, found: Mapping[str, Any], parts: Sequence[Part]
    ) -> None:
        try:
            for each in parts:
                self._account.clear(each.inputs["labels"]["fleet"], each.name, _known(found))
        except SourceUnreachable as error:
            raise StackFailed(
                f"stack {ref.name}: what an earlier run left cannot be deleted: {error}"
            ) from error

    def _configure(self, ref: StackRef, parts: Sequence[Part]) -> None:
        """Write the parts into the settings: `pulumi up` by hand finds the same and no more."""
        project = project_name(load_project(ref.project))
        inputs = _inputs(ref, parts, {})
        self._cli.configure(
            ref, {f"{project}:{key}": json.dumps(inputs[key]) for key in inputs if key != "adopt"}
        )


def _known(deployment: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of what exists as a stack records it."""
    return frozenset(
        str(each["urn"]).rpartition("::")[2]
        for each in deployment.get("resources") or ()
        if each.get("id") and not each.get("delete")
    )


def _part(key: str) -> str:
    """Return the part that an id belongs to: a network's subnet is of the network."""
    return key.removesuffix("/subnet")


def _resource(key: str) -> str:
    """Return the name that a stack has for what a key tells."""
    return key.partition("/")[2].replace("/", "-")


def _inputs(ref: StackRef, parts: Sequence[Part], adopt: Mapping[str, str]) -> dict[str, Any]:
    told = json.dumps([each.model_dump(mode="json") for each in parts], sort_keys=True)
    return {
        "workers": [],
        **{
            f"{kind}s": [{"name": each.name, **each.inputs} for each in parts if each.kind == kind]
            for kind in sorted({each.kind for each in parts})
        },
        "adopt": dict(adopt),
        "owner": {"engine": "pulumi", "provider": ref.provider, "parts": told},
    }


def _base_of(deployment: Mapping[str, Any], ref: StackRef) -> Base:
    kinds = load_project(ref.project).parts
    resources = [each for each in deployment.get("resources") or () if not each.get("delete")]
    outputs = next((each.get("outputs") or {} for each in resources if each["type"] == ROOT), {})
    try:
        parts = _PARTS.validate_json(outputs.get("parts", "[]"))
    except ValidationError as error:
        raise StoreFailed(f"stack {ref.name} does not record its parts") from error
    ids = {
        f"{kinds[each['type']]}/{str(each['urn']).rpartition('::')[2]}": str(each["id"])
        for each in resources
        if each["type"] in kinds and each.get("id")
    }
    return Base(
        serial=serial_of(deployment),
        parts=parts,
        ids=dict(sorted(ids.items())),
        # What it was asked to hold is told also of a run in which a part failed; this is not.
        laid="laid" in outputs and outputs["laid"] == outputs.get("parts"),
        interrupted=bool(deployment.get("pending_operations")),
    )
