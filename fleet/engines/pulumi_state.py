"""This module reads what the real engine recorded: the deployment, as JSON."""

import gzip
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from fleet.engines.objects import Objects
from fleet.engines.projects import Project
from fleet.errors import EngineMismatch, StoreFailed
from fleet.facts import Stack, WorkerInputs
from fleet.ports import StackRef

ROOT = "pulumi:pulumi:Stack"
STACKS = ".pulumi/stacks/"
KEPT = ".kept"
"""Ends the key of the copy that is kept of a checkpoint in a folder; see pulumi_kept."""
_FAILED = "initErrors"


def _unzstd(raw: bytes) -> bytes:
    import zstandard

    try:
        return zstandard.ZstdDecompressor().stream_reader(raw).read()
    except zstandard.ZstdError as error:
        raise OSError(str(error)) from error


PACKINGS: Mapping[str, Callable[[bytes], bytes]] = MappingProxyType(
    {".gz": gzip.decompress, "": bytes, ".zst": _unzstd}
)
"""Suffix to how it is unpacked, in the order in which the CLI would have left one for another."""


class NotACheckpoint(StoreFailed):
    """What is in a checkpoint's place is none, or a piece of one."""


class Deployment(NamedTuple):
    """A recorded deployment, with the workers whose creation or deletion was begun, not ended.

    Machines that are there although something failed after their creation are `unready`.
    """

    stack: Stack
    pending: tuple[WorkerInputs, ...]
    deleting: tuple[WorkerInputs, ...]
    unready: frozenset[str] = frozenset()

    @property
    def is_unfinished(self) -> bool:
        """Say whether an earlier run left something to be cleaned up."""
        return self.stack.interrupted or bool(self.deleting or self.unready)


def stack_key(project: str, stack: str) -> str:
    """Return where a stack's checkpoint is; a compressed one has a further suffix."""
    return f"{STACKS}{project}/{stack}.json"


def read_checkpoint(objects: Objects, project: str, stack: str) -> dict[str, Any] | None:
    """Return a stack's deployment; None when the stack does not exist.

    Of one that a full disk cut it is what was kept before that.
    """
    key = stack_key(project, stack)
    try:
        file = find_checkpoint(objects, key)
    except NotACheckpoint:
        kept = objects.read(key + KEPT)
        if kept is None:
            raise
        file = _checkpoint(f"{objects.place}/{key}{KEPT}", kept, bytes)
    return None if file is None else dict(file["checkpoint"].get("latest") or {})


def find_checkpoint(objects: Objects, key: str) -> dict[str, Any] | None:
    """Return what is recorded behind a key, unpacked; None when there is nothing."""
    for suffix, unpacked in PACKINGS.items():
        raw = objects.read(key + suffix)
        if raw is not None:
            return _checkpoint(f"{objects.place}/{key}{suffix}", raw, unpacked)
    return None


def _checkpoint(place: str, raw: bytes, unpacked: Callable[[bytes], bytes]) -> dict[str, Any]:
    try:
        file = json.loads(unpacked(raw))
        file["checkpoint"].get("latest")
        return dict(file)
    except (OSError, EOFError) as error:
        raise NotACheckpoint(f"{place}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotACheckpoint(f"{place} is not a Pulumi checkpoint: {error}") from error


def read_deployment(deployment: Mapping[str, Any], ref: StackRef, project: Project) -> Deployment:
    """Return the stack that a deployment records; raises EngineMismatch for another's."""
    resources = [each for each in deployment.get("resources") or () if not each.get("delete")]
    operations = deployment.get("pending_operations") or ()
    begun = {
        kind: _workers(_touched(operations, kind), project) for kind in ("creating", "deleting")
    }
    made = _workers(resources, project)
    ids = {_name(each): str(each["id"]) for each in resources if each.get("id")}
    pending = {name: each for name, each in begun["creating"].items() if name not in made}
    wanted = {name: each for name, each in made.items() if name not in begun["deleting"]} | pending
    outputs = next((each.get("outputs") or {} for each in resources if each["type"] == ROOT), {})
    if outputs.get("engine", "pulumi") != "pulumi":
        raise EngineMismatch(f"stack {ref.name} belongs to the engine {outputs['engine']!r}")
    return Deployment(
        stack=Stack(
            engine="pulumi",
            provider=str(outputs.get("provider", ref.provider)),
            serial=serial_of(deployment),
            workers=tuple(wanted[name] for name in sorted(wanted)),
            # What was being deleted is told with its id, so that the next plan deletes it.
            ids={
                name: ids[name]
                for name in sorted(ids)
                if name in wanted or name in begun["deleting"]
            },
            interrupted=bool(operations),
        ),
        pending=tuple(pending.values()),
        deleting=tuple(begun["deleting"].values()),
        unready=frozenset(_name(each) for each in resources if each.get(_FAILED)) & made.keys(),
    )


def begin_deleting(deployment: dict[str, Any], wanted: Collection[str], project: Project) -> None:
    """Have a deployment say of all workers but these that their deletion was begun."""
    resources = deployment.get("resources") or []
    going = _workers(resources, project).keys() - set(wanted)
    begun = [{"resource": each, "type": "deleting"} for each in resources if _name(each) in going]
    deployment["pending_operations"] = [*(deployment.get("pending_operations") or ()), *begun]


def drop_init_errors(deployment: dict[str, Any], project: Project) -> bool:
    """Take what failed after a worker's creation out of a deployment; say whether any did."""
    unready = [
        each
        for each in deployment.get("resources") or []
        if each.get(_FAILED) and project.worker_of(each["type"], each.get("inputs") or {})
    ]
    for each in unready:
        del each[_FAILED]
    return bool(unready)


def drop_worker(deployment: dict[str, Any], worker: str, project: Project) -> bool:
    """Take a worker's resources out of a deployment, and say whether there were any."""
    resources = deployment.get("resources") or []
    gone = {
        each["urn"]
        for each in resources
        if _name(each) == worker and project.worker_of(each["type"], each.get("inputs") or {})
    }
    deployment["resources"] = [
        each for each in resources if not gone & {each["urn"], each.get("parent")}
    ]
    # An import keeps the time of the last write, which tells one state from the next.
    deployment["manifest"]["time"] = datetime.now(UTC).isoformat()
    return bool(gone)


def _touched(operations: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [each["resource"] for each in operations if each.get("type") == kind]


def _workers(resources: Sequence[Mapping[str, Any]], project: Project) -> dict[str, WorkerInputs]:
    found = {}
    for each in resources:
        worker = project.worker_of(each["type"], each.get("inputs") or {})
        if worker:
            found[_name(each)] = worker
    return found


def _name(resource: Mapping[str, Any]) -> str:
    return str(resource["urn"]).rpartition("::")[2]


def serial_of(deployment: Mapping[str, Any]) -> int:
    """Return the microsecond of the last write: the engine itself counts nothing."""
    written = _moment(str((deployment.get("manifest") or {}).get("time", "")))
    return int(written.timestamp() * 1_000_000) if written else 0


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
