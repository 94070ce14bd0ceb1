"""This module reads what the real engine recorded: the deployment as JSON, and its locks.

For a file backend no program is started: the checkpoint is a file.
"""

import gzip
import json
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fleet.engines.projects import Project
from fleet.errors import EngineMismatch, StoreFailed
from fleet.facts import Stack, WorkerInputs
from fleet.ports import StackRef

ROOT = "pulumi:pulumi:Stack"


class Deployment(NamedTuple):
    """A recorded deployment, with the workers whose creation or deletion was begun, not ended."""

    stack: Stack
    pending: tuple[WorkerInputs, ...]
    deleting: tuple[WorkerInputs, ...]


class Lock(NamedTuple):
    """Who holds a stack of a file backend."""

    owner: str
    since: str
    alive: bool


def file_root(backend: str) -> Path | None:
    """Return the folder of a file backend; None for any other."""
    if not backend.startswith("file://"):
        return None
    return Path(backend.removeprefix("file://").split("?")[0]).expanduser() / ".pulumi"


def read_checkpoint(root: Path, project: str, stack: str) -> dict[str, Any] | None:
    """Return a stack's deployment from a file backend; None when the stack does not exist."""
    path = root / "stacks" / project / f"{stack}.json"
    zipped = path.with_suffix(".json.gz")
    try:
        raw = gzip.decompress(zipped.read_bytes()) if zipped.exists() else path.read_bytes()
        checkpoint = json.loads(raw)["checkpoint"]
        return dict(checkpoint.get("latest") or {})
    except FileNotFoundError:
        return None
    except (OSError, EOFError) as error:
        raise StoreFailed(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreFailed(f"{path} is not a Pulumi checkpoint: {error}") from error


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
            serial=_serial(deployment),
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
    )


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


def find_locks(root: Path, project: str, stack: str) -> tuple[Lock, ...]:
    """Return the locks on a stack of a file backend."""
    found = []
    for path in sorted((root / "locks" / "organization" / project / stack).glob("*.json")):
        try:
            lock = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            # Being written or taken away this very moment: whoever does it is alive.
            lock = {}
        owner = f"{lock.get('username', 'someone')} on {lock.get('hostname', 'some host')}"
        found.append(
            Lock(
                owner=f"{owner} (process {lock.get('pid', 'unknown')})",
                since=str(lock.get("timestamp", "an unknown time")),
                alive=_is_alive(lock),
            )
        )
    return tuple(found)


def _is_alive(lock: Mapping[str, Any]) -> bool:
    """Say whether the owner may still run; on another host nobody here can tell."""
    pid = lock.get("pid")
    if lock.get("hostname") != socket.gethostname() or not isinstance(pid, int):
        return True
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
    except FileNotFoundError:
        return not Path("/proc/uptime").exists()
    except OSError:
        return True
    # A process that is younger than the lock only has the same number.
    age = uptime - int(words[19]) / os.sysconf("SC_CLK_TCK")
    taken = _moment(str(lock.get("timestamp", "")))
    slack = 5.0
    held = (datetime.now(taken.tzinfo) - taken).total_seconds() if taken else 0.0
    return words[0] != "Z" and age + slack >= held


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


def _serial(deployment: Mapping[str, Any]) -> int:
    """Return the microsecond of the last write: the engine itself counts nothing."""
    written = _moment(str((deployment.get("manifest") or {}).get("time", "")))
    return int(written.timestamp() * 1_000_000) if written else 0


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
