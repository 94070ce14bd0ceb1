"""Read and mend what the real engine recorded: checkpoints, their locks and their copies.

Each lock is a key of the backend, of whatever kind that is: its owner's death frees nothing.

The CLI puts what it could write of the next checkpoint in the place of the last one, and at its
next try copies that over its own backup, `.bak`; only in a folder: other backends take all or
nothing. The copy is made before each change, and says what that is about to delete.
"""

import gzip
import json
import os
import re
import signal
import socket
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fleet.clock import utc_now
from fleet.engines.projects import Project, check_owner
from fleet.engines.pulumi_backends import FileObjects, Objects
from fleet.errors import Locked, StoreFailed, touching
from fleet.model.facts import Stack, WorkerInputs
from fleet.ports import StackRef
from fleet.state.files import replace_file
from fleet.state.zstd import zstd

ROOT = "pulumi:pulumi:Stack"
STACKS = ".pulumi/stacks/"
KEPT = ".kept"
"""Ends the key of the copy that is kept of a checkpoint in a folder; see pulumi_kept."""
_FAILED = "initErrors"


def _unzstd(raw: bytes) -> bytes:
    try:
        return zstd.decompress(raw)
    except zstd.ZstdError as error:
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
        file = _checkpoint(f"{objects.address}/{key}{KEPT}", kept, bytes)
    return None if file is None else dict(file["checkpoint"].get("latest") or {})


def find_checkpoint(objects: Objects, key: str) -> dict[str, Any] | None:
    """Return what is recorded behind a key, unpacked; None when there is nothing."""
    for suffix, unpacked in PACKINGS.items():
        raw = objects.read(key + suffix)
        if raw is not None:
            return _checkpoint(f"{objects.address}/{key}{suffix}", raw, unpacked)
    return None


def _checkpoint(address: str, raw: bytes, unpacked: Callable[[bytes], bytes]) -> dict[str, Any]:
    try:
        file = json.loads(unpacked(raw))
        file["checkpoint"].get("latest")
        return dict(file)
    except (OSError, EOFError) as error:
        raise NotACheckpoint(f"{address}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotACheckpoint(f"{address} is not a Pulumi checkpoint: {error}") from error


def resources_of(deployment: Mapping[str, Any]) -> tuple[list[Any], Mapping[str, Any]]:
    """Return the resources that a deployment records as existing, and its stack's outputs."""
    resources = [each for each in deployment.get("resources") or () if not each.get("delete")]
    roots = (each.get("outputs") or {} for each in resources if each["type"] == ROOT)
    return resources, next(roots, {})


def read_deployment(deployment: Mapping[str, Any], ref: StackRef, project: Project) -> Deployment:
    """Return the stack that a deployment records; raises EngineMismatch for another's."""
    resources, outputs = resources_of(deployment)
    operations = deployment.get("pending_operations") or ()
    begun = {
        kind: _workers(_touched(operations, kind), project) for kind in ("creating", "deleting")
    }
    made = _workers(resources, project)
    ids = {_name(each): str(each["id"]) for each in resources if each.get("id")}
    pending = {name: each for name, each in begun["creating"].items() if name not in made}
    wanted = {name: each for name, each in made.items() if name not in begun["deleting"]} | pending
    check_owner(ref, mine="pulumi", owner=outputs.get("engine"))
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
    deployment["manifest"]["time"] = utc_now().isoformat()
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


_LOCKS = ".pulumi/locks/organization/"
_DRAFT = ".tmp"
"""Ends the name under which the CLI writes a lock into a folder, before it holds anything."""
_OWNER = "pulumi"
"""In the name of every program that takes such a lock."""
_SLACK = 5.0
_EXITING = 0x4
"""The kernel's PF_EXITING."""
_KILLED = 1 << (signal.SIGKILL - 1)


class Lock(NamedTuple):
    """Who holds a stack."""

    key: str
    owner: str
    since: str
    alive: bool | None
    """None: unknown here: another host's process, or another Pulumi of its number."""


def find_locks(objects: Objects, project: str, stack: str) -> tuple[Lock, ...]:
    """Return the locks on a stack, and what a killed CLI left of those that it was writing.

    The CLI takes such a draft for a lock as well.
    """
    found = []
    for key in objects.keys(f"{_LOCKS}{project}/{stack}/"):
        content = None
        try:
            content = objects.read(key)
            lock = dict(json.loads(content or b""))
            alive = is_alive(lock)
        except (StoreFailed, ValueError, TypeError):
            lock = {}
            # One that is gone is being removed this very moment: its owner is alive.
            # A draft was cut off, or is about to become a lock: its loss harms neither state nor
            # machines. An empty lock was all that a full disk took: its owner gave up at once.
            alive = False if key.endswith(_DRAFT) or content == b"" else None
        owner = f"{lock.get('username', 'someone')} on {lock.get('hostname', 'some host')}"
        found.append(
            Lock(
                key=key,
                owner=f"{owner} (process {lock.get('pid', 'unknown')})",
                since=str(lock.get("timestamp", "an unknown time")),
                alive=alive,
            )
        )
    return tuple(found)


def drop_locks(objects: Objects, locks: Iterable[Lock]) -> None:
    """Take locks away, as `pulumi cancel` does."""
    for lock in locks:
        objects.remove(lock.key)


def break_dead_locks(objects: Objects | None, project: str, stack: str) -> None:
    """Take away what dead runs hold, as `pulumi cancel` does; Locked where one may live."""
    if objects is None:
        return
    locks = find_locks(objects, project, stack)
    for lock in locks:
        if lock.alive is not False:
            raise Locked(
                f"stack {stack} is being changed by {lock.owner} since {lock.since}; wait, "
                "or if that run is dead: `fleet state unlock`"
            )
    drop_locks(objects, locks)


def is_alive(lock: Mapping[str, Any], proc: Path = Path("/proc")) -> bool | None:
    """Say whether the owner still runs; None: unknown here."""
    pid = lock.get("pid")
    if lock.get("hostname") != socket.gethostname() or not isinstance(pid, int):
        return None
    try:
        name, _, said = (proc / f"{pid}/stat").read_text(encoding="utf-8").rpartition(")")
        words = said.split()
        status = (proc / f"{pid}/status").read_text(encoding="utf-8")
        uptime = float((proc / "uptime").read_text(encoding="utf-8").split()[0])
    except (FileNotFoundError, ProcessLookupError):
        known = (proc / "uptime").exists() and not _is_hidden(pid)
        return False if known and not _is_in_a_container(pid, proc) else None
    except (OSError, UnicodeDecodeError):
        return None
    if is_over(words, status):
        return None if _is_in_a_container(pid, proc) else False
    age = uptime - int(words[19]) / os.sysconf("SC_CLK_TCK")
    taken = _moment(str(lock.get("timestamp", "")))
    held = (datetime.now(taken.tzinfo) - taken).total_seconds() if taken else 0.0
    if age + _SLACK >= held:
        return True
    # It only has the same number, or it is the owner and the clock was set forward.
    return None if _OWNER in name or _is_in_a_container(pid, proc) else False


def _is_hidden(pid: int) -> bool:
    """Say whether a process runs that /proc does not show, as somebody else's with `hidepid`."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _is_in_a_container(pid: int, proc: Path) -> bool:
    """Say whether a process of a container of ours may have written that number into a lock."""
    for path in proc.glob("[0-9]*/status"):
        with suppress(OSError):
            if is_inner(pid, path.read_text(encoding="utf-8", errors="replace")):
                return True
    return False


def is_inner(pid: int, status: str) -> bool:
    """Say whether a process has that number in a container of ours, where it writes locks.

    See proc(5) for `status`: `NSpid` holds its number in each namespace, the innermost last.
    """
    numbers = re.search(r"^NSpid:[ \t]+\d+[ \t].*?(\d+)$", status, re.MULTILINE)
    return numbers is not None and int(numbers[1]) == pid


def is_over(stat: Sequence[str], status: str) -> bool:
    """Say whether a process does nothing of its own any more, though the kernel still lists it.

    A process that was killed takes its time to go, above all a large one; see proc(5) for
    `stat` (from the state on) and `status`.
    """
    pending = 0
    for line in status.splitlines():
        key, _, mask = line.partition(":")
        if key in ("SigPnd", "ShdPnd"):
            pending |= int(mask, 16)
    is_exiting = int(stat[6]) & _EXITING
    return stat[0] in "ZX" or bool(is_exiting or pending & _KILLED)


class Kept:
    """The copy of one stack's checkpoint, in the folder of a backend."""

    def __init__(self, folder: Path, name: str, stack: str) -> None:
        self._objects = FileObjects(folder)
        self._names = name, stack
        self._key = stack_key(name, stack)
        self._plain = folder / self._key
        self._copy = folder / (self._key + KEPT)

    def keep(self, project: Project, wanted: Collection[str] | None) -> None:
        """Copy the checkpoint; all workers but these are about to be deleted (None: none is).

        StoreFailed where there is no room for it: nothing was begun.
        """
        try:
            file = find_checkpoint(self._objects, self._key)
        except NotACheckpoint:
            return
        with touching(self._copy, StoreFailed):
            if file is None:
                # Another stack of this name would be taken for the one before it.
                self._copy.unlink(missing_ok=True)
                return
            if wanted is not None:
                begin_deleting(file["checkpoint"].setdefault("latest", {}), wanted, project)
            replace_file(self._copy, json.dumps(file).encode(), mode=self._mode())

    def is_cut(self) -> bool:
        """Say whether the checkpoint is not whole."""
        try:
            find_checkpoint(self._objects, self._key)
        except NotACheckpoint:
            return True
        return False

    def restore(self) -> None:
        """Put the copy in the place of a checkpoint that was cut.

        Locked where the process that cut it may still run, and write a whole one at its next try.
        """
        if not self.is_cut() or not self._copy.exists():
            return
        break_dead_locks(self._objects, *self._names)
        with touching(self._plain, StoreFailed):
            replace_file(self._plain, self._copy.read_bytes(), mode=self._mode())
            self._drop_others()

    def drop_cut(self) -> None:
        """Remove what was cut of a stack that was to be made just now."""
        if self.is_cut():
            self._objects.remove(self._key)
            self._drop_others()

    def _drop_others(self) -> None:
        for suffix in filter(None, PACKINGS):
            self._objects.remove(self._key + suffix)

    def _mode(self) -> int:
        files = (self._plain.with_name(self._plain.name + suffix) for suffix in PACKINGS)
        return stat.S_IMODE(next(each for each in files if each.exists()).stat().st_mode)
