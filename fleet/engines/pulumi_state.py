"""Read and repair the state of the Pulumi engine: checkpoints, their locks and copies.

fleet reads and writes the objects of a backend without the CLI. In folders, S3 buckets and
PostgreSQL, the keys are `.pulumi/stacks/PROJECT/STACK.json` and `.pulumi/locks/…`. Other backends
need the CLI. In PostgreSQL and in a folder of a bucket, the CLI prefixes each key, in PostgreSQL
with the name of the database. Missing parts of a URL come from libpq's variables (PGPASSWORD,
PGPASSFILE, …), as for the CLI. No message shows them.

Each lock is a key of the backend, so a lock remains after the death of its owner.

In a folder, the CLI does not write checkpoints atomically: a full disk leaves a truncated one,
which the next attempt copies over the CLI's backup, `.bak`. Other backends are atomic. So fleet
copies the checkpoint before each change; the copy lists the deletions of the change.
"""

import base64
import gzip
import json
import os
import re
import signal
import socket
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fleet.clock import utc_now
from fleet.engines.projects import Project, check_owner
from fleet.errors import Locked, StoreFailed, needing, touching
from fleet.model.facts import Stack, WorkerInputs
from fleet.ports import StackRef
from fleet.state.confined import announce_connection
from fleet.state.files import replace_file
from fleet.state.s3 import S3Prefix
from fleet.state.zstd import zstd

if TYPE_CHECKING:
    import psycopg


class Objects(Protocol):
    """The objects of one backend, by key. If it is unreachable, methods raise StoreFailed."""

    address: str
    """Location of the backend, without credentials."""

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if the object does not exist."""

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that start with this prefix, sorted."""

    def create(self, key: str, content: bytes) -> None:
        """Create an object; raises StoreFailed if it exists."""

    def remove(self, key: str) -> None:
        """Remove an object. Do nothing if it does not exist."""


def file_root(backend: str) -> Path | None:
    """Return the folder of a file backend; None for other backends."""
    if not backend.startswith("file://"):
        return None
    folder = unquote(backend.removeprefix("file://").split("?")[0])
    return Path(folder).expanduser() / ".pulumi"


def shown_address(backend: str) -> str:
    """Return a backend's URL without password and parameters, which may be secret."""
    parts = urlsplit(backend)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


_ATTRIBUTES_SUFFIX = ".attrs"
"""Suffix of the attribute file that the CLI writes next to each of its files."""


def remove_empty_attribute_files(root: Path, project: str) -> None:
    """Remove the empty attribute files that a killed CLI left and that no CLI can read.

    With such a file, each command fails with "failed to load checkpoint: EOF"; without it,
    commands work. A user's `pulumi` command still writes such files; see `Home.environment`.
    """
    for note in (
        *root.glob(f"*{_ATTRIBUTES_SUFFIX}"),
        *root.glob(f"stacks/{project}/*{_ATTRIBUTES_SUFFIX}"),
    ):
        try:
            if not note.stat().st_size:
                note.unlink()
        except FileNotFoundError:
            # Another process on this computer removed it.
            continue


class FileObjects:
    """The objects of a file backend: a folder with one file per key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = f"file://{folder}"

    def read(self, key: str) -> bytes | None:
        """Return the content of a file; None if the file does not exist."""
        path = self._folder / key
        with touching(path, StoreFailed), suppress(FileNotFoundError, NotADirectoryError):
            return path.read_bytes()
        return None

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys of the files with this path prefix, sorted."""
        folder = self._folder / prefix.rpartition("/")[0]
        found = (
            path
            for path in folder.rglob("*")
            if path.suffix != _ATTRIBUTES_SUFFIX and path.is_file()
        )
        names = (path.relative_to(self._folder).as_posix() for path in found)
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def create(self, key: str, content: bytes) -> None:
        """Create a file atomically; raises StoreFailed if the file exists."""
        path = self._folder / key
        new = path.with_name(f".{path.name}.new")
        with touching(path, StoreFailed):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                new.write_bytes(content)
                path.hardlink_to(new)
            finally:
                new.unlink(missing_ok=True)

    def remove(self, key: str) -> None:
        """Remove a file and its attribute file, if they exist."""
        path = self._folder / key
        with touching(path, StoreFailed):
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}{_ATTRIBUTES_SUFFIX}").unlink(missing_ok=True)


def open_objects(backend: str) -> Objects | None:
    """Return the objects of a backend; None if only the CLI can read the backend."""
    root = file_root(backend)
    if root:
        return FileObjects(root.parent)
    if backend.startswith("s3://"):
        return S3Objects(backend)
    if backend.startswith("postgres://"):
        return PostgresObjects(backend)
    return None


_DEFAULT_TABLE = "pulumi_state"


class PostgresObjects:
    """The objects of a PostgreSQL backend: one row per key, in one table."""

    def __init__(self, backend: str) -> None:
        parts = urlsplit(backend)
        options = dict(parse_qsl(parts.query))
        self.address = shown_address(backend)
        self._table = options.pop("table", _DEFAULT_TABLE)
        self._settings = options
        folder = parts.path.strip("/")
        self._before = f"{folder}/" if folder else ""
        self._url = parts._replace(query="").geturl()

    def read(self, key: str) -> bytes | None:
        """Return the content of a row; None if the row does not exist."""
        rows = self._execute("SELECT data::text FROM {} WHERE key = %s", self._before + key)
        return base64.b64decode(json.loads(rows[0][0])["data"]) if rows else None

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that start with this prefix, sorted."""
        rows = self._execute(
            "SELECT key FROM {} WHERE starts_with(key, %s)", self._before + prefix
        )
        return tuple(sorted(str(row[0]).removeprefix(self._before) for row in rows))

    def create(self, key: str, content: bytes) -> None:
        """Insert a row. Create the table first if it does not exist."""
        data = json.dumps({"data": base64.b64encode(content).decode()})
        self._execute(
            "CREATE TABLE IF NOT EXISTS {} (key text PRIMARY KEY, data json NOT NULL,"
            " updated_at timestamptz NOT NULL DEFAULT now())"
        )
        self._execute("INSERT INTO {} (key, data) VALUES (%s, %s)", self._before + key, data)

    def remove(self, key: str) -> None:
        """Delete a row. Do nothing if it does not exist."""
        self._execute("DELETE FROM {} WHERE key = %s", self._before + key)

    def _execute(self, statement: str, *values: str) -> Sequence[tuple[Any, ...]]:
        with self._connect() as connection:
            import psycopg
            from psycopg import sql

            table = sql.Identifier(*self._table.split("."))
            try:
                # The statement is one of the constants above.
                cursor = connection.execute(
                    sql.SQL(statement).format(table),
                    values or None,
                )
                return cursor.fetchall() if cursor.description else ()
            except psycopg.errors.UndefinedTable:
                return ()

    @contextmanager
    def _connect(self) -> Iterator["psycopg.Connection[tuple[Any, ...]]"]:
        with needing("postgres", self.address, StoreFailed):
            import psycopg
        announce_connection(self.address)
        try:
            with psycopg.connect(self._dsn(), autocommit=True) as connection:
                yield connection
        except (psycopg.Error, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StoreFailed(f"{self.address} does not answer: {reason}") from error

    def _dsn(self) -> str:
        """Return the address for libpq. Parameters unknown to libpq become server settings.

        The CLI's driver accepts both kinds of parameters in the URL.
        """
        from psycopg.pq import Conninfo

        known = {option.keyword.decode() for option in Conninfo.get_defaults()}
        said = {name: value for name, value in self._settings.items() if name in known}
        others = [
            f"-c {name}={value}" for name, value in self._settings.items() if name not in known
        ]
        options = " ".join(filter(None, [said.get("options", ""), *others]))
        said |= {"options": options} if options else {}
        return f"{self._url}?{urlencode(said, quote_via=quote)}" if said else self._url


_TIMEOUT_SECONDS = 10
_MAX_ATTEMPTS = 3


class S3Objects(S3Prefix):
    """The objects of an S3 backend: a bucket, or a prefix in a bucket."""

    def __init__(self, backend: str) -> None:
        super().__init__(
            backend,
            StoreFailed,
            connect_timeout=_TIMEOUT_SECONDS,
            read_timeout=_TIMEOUT_SECONDS,
            retries={"total_max_attempts": _MAX_ATTEMPTS},
        )

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if the object does not exist."""
        found = self.get(key)
        with self.asked():
            return None if found is None else bytes(found.read())

    def create(self, key: str, content: bytes) -> None:
        """Create an object; raises StoreFailed if the object exists."""
        with self.asked():
            self.client.put_object(Body=content, IfNoneMatch="*", **self.at(key))


ROOT = "pulumi:pulumi:Stack"
STACKS = ".pulumi/stacks/"
KEPT = ".kept"
"""Suffix of the copy of a checkpoint in a folder; see `CheckpointCopy`."""
_INIT_ERRORS = "initErrors"


def _unzstd(raw: bytes) -> bytes:
    try:
        return zstd.decompress(raw)
    except zstd.ZstdError as error:
        raise OSError(str(error)) from error


PACKINGS: Mapping[str, Callable[[bytes], bytes]] = MappingProxyType(
    {".gz": gzip.decompress, "": bytes, ".zst": _unzstd}
)
"""Map of suffix to decompression function, in the order in which the CLI prefers suffixes."""


class NotACheckpoint(StoreFailed):
    """The checkpoint is truncated or malformed."""


class Deployment(NamedTuple):
    """A recorded deployment of a stack, with the workers of unfinished steps.

    `unready` are existing machines with an error after their creation.
    """

    stack: Stack
    pending: tuple[WorkerInputs, ...]
    deleting: tuple[WorkerInputs, ...]
    unready: frozenset[str] = frozenset()

    @property
    def is_unfinished(self) -> bool:
        """Return True if an earlier run left pending steps or machines with an error."""
        return self.stack.interrupted or bool(self.deleting or self.unready)


def stack_key(project: str, stack: str) -> str:
    """Return the key of a stack's checkpoint. Compression adds a suffix."""
    return f"{STACKS}{project}/{stack}.json"


def read_checkpoint(objects: Objects, project: str, stack: str) -> dict[str, Any] | None:
    """Return the deployment of a stack; None if the stack does not exist.

    If a full disk truncated the checkpoint, its copy is read.
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
    """Return the decompressed checkpoint of a key; None if it does not exist."""
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
    """Return the existing resources of a deployment, and the outputs of its stack."""
    resources = [each for each in deployment.get("resources") or () if not each.get("delete")]
    roots = (each.get("outputs") or {} for each in resources if each["type"] == ROOT)
    return resources, next(roots, {})


def read_deployment(deployment: Mapping[str, Any], ref: StackRef, project: Project) -> Deployment:
    """Parse the deployment of a stack; raises EngineMismatch if another engine owns it."""
    resources, outputs = resources_of(deployment)
    operations = deployment.get("pending_operations") or ()
    begun = {
        kind: _workers([o["resource"] for o in operations if o.get("type") == kind], project)
        for kind in ("creating", "deleting")
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
            # Keep the ids of unfinished deletions, so that the next plan deletes these machines.
            ids={
                name: ids[name]
                for name in sorted(ids)
                if name in wanted or name in begun["deleting"]
            },
            interrupted=bool(operations),
        ),
        pending=tuple(pending.values()),
        deleting=tuple(begun["deleting"].values()),
        unready=frozenset(_name(each) for each in resources if each.get(_INIT_ERRORS))
        & made.keys(),
    )


def mark_deleting(deployment: dict[str, Any], wanted: Collection[str], project: Project) -> None:
    """Mark the deletion of all workers except `wanted` as started in a deployment."""
    resources = deployment.get("resources") or []
    going = _workers(resources, project).keys() - set(wanted)
    begun = [{"resource": each, "type": "deleting"} for each in resources if _name(each) in going]
    deployment["pending_operations"] = [*(deployment.get("pending_operations") or ()), *begun]


def drop_init_errors(deployment: dict[str, Any], project: Project) -> bool:
    """Remove errors after the creation of workers. Return whether there were any errors."""
    unready = [
        each
        for each in deployment.get("resources") or []
        if each.get(_INIT_ERRORS) and project.worker_of(each["type"], each.get("inputs") or {})
    ]
    for each in unready:
        del each[_INIT_ERRORS]
    return bool(unready)


def drop_worker(deployment: dict[str, Any], worker: str, project: Project) -> bool:
    """Remove a worker's resources from a deployment. Return False if it had no resources."""
    resources = deployment.get("resources") or []
    gone = {
        each["urn"]
        for each in resources
        if _name(each) == worker and project.worker_of(each["type"], each.get("inputs") or {})
    }
    deployment["resources"] = [
        each for each in resources if not gone & {each["urn"], each.get("parent")}
    ]
    # An import keeps the time of the last write, which identifies a state.
    deployment["manifest"]["time"] = utc_now().isoformat()
    return bool(gone)


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
    """Return the last write's time in microseconds, since Pulumi has no serial; 0 if unknown."""
    written = _parse_time(str((deployment.get("manifest") or {}).get("time", "")))
    return int(written.timestamp() * 1_000_000) if written else 0


def _parse_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


_LOCKS_PREFIX = ".pulumi/locks/organization/"
_DRAFT_SUFFIX = ".tmp"
"""Suffix of a lock file that the CLI is still writing."""
_OWNER_NAME_PART = "pulumi"
"""Part of the name of every program that takes a lock on a stack."""
_CLOCK_TOLERANCE_SECONDS = 5.0
_EXITING_FLAG = 0x4
"""The flag PF_EXITING of the Linux kernel."""
_SIGKILL_BIT = 1 << (signal.SIGKILL - 1)


class Lock(NamedTuple):
    """A lock on a stack, with its owner."""

    key: str
    owner: str
    since: str
    alive: bool | None
    """Whether the owner runs; None on another host, or if another Pulumi has its process id."""


def find_locks(objects: Objects, project: str, stack: str) -> tuple[Lock, ...]:
    """Return the locks on a stack, including drafts of locks that a killed CLI left.

    The CLI treats such a draft as a lock.
    """
    found = []
    for key in objects.keys(f"{_LOCKS_PREFIX}{project}/{stack}/"):
        content = None
        try:
            content = objects.read(key)
            lock = dict(json.loads(content or b""))
            alive = is_alive(lock)
        except (StoreFailed, ValueError, TypeError):
            lock = {}
            # A missing lock was just removed, so its owner is alive. A draft is incomplete or is
            # about to become a lock; its loss harms neither state nor machines. An empty lock was
            # written to a full disk, and its owner stopped immediately.
            alive = False if key.endswith(_DRAFT_SUFFIX) or content == b"" else None
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
    """Remove locks, as `pulumi cancel` does."""
    for lock in locks:
        objects.remove(lock.key)


def break_dead_locks(objects: Objects | None, project: str, stack: str) -> None:
    """Remove the locks of dead runs, as `pulumi cancel` does; raises Locked if one may live."""
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
    """Return whether the owner of a lock still runs; None if unknown, as on another host."""
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
        return False if known and not _has_container_process(pid, proc) else None
    except (OSError, UnicodeDecodeError):
        return None
    if is_over(words, status):
        return None if _has_container_process(pid, proc) else False
    age = uptime - int(words[19]) / os.sysconf("SC_CLK_TCK")
    taken = _parse_time(str(lock.get("timestamp", "")))
    held = (datetime.now(taken.tzinfo) - taken).total_seconds() if taken else 0.0
    if age + _CLOCK_TOLERANCE_SECONDS >= held:
        return True
    # Another process with the same id, or the owner after the clock was set forward.
    return None if _OWNER_NAME_PART in name or _has_container_process(pid, proc) else False


def _is_hidden(pid: int) -> bool:
    """Return whether a process exists but the mount option `hidepid` hides it in /proc."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _has_container_process(pid: int, proc: Path) -> bool:
    """Return whether a container on this host may have a process with this id."""
    for path in proc.glob("[0-9]*/status"):
        with suppress(OSError):
            if has_inner_id(pid, path.read_text(encoding="utf-8", errors="replace")):
                return True
    return False


def has_inner_id(pid: int, status: str) -> bool:
    """Return whether a process has this id inside a container.

    See proc(5) for `status`: `NSpid` has the id in each namespace, innermost last.
    """
    numbers = re.search(r"^NSpid:[ \t]+\d+[ \t].*?(\d+)$", status, re.MULTILINE)
    return numbers is not None and int(numbers[1]) == pid


def is_over(stat: Sequence[str], status: str) -> bool:
    """Return whether a process has stopped working, although the kernel still lists it.

    A killed process takes time to exit, especially a large process. See proc(5) for `stat` (from
    the state on) and `status`.
    """
    pending = 0
    for line in status.splitlines():
        key, _, mask = line.partition(":")
        if key in ("SigPnd", "ShdPnd"):
            pending |= int(mask, 16)
    is_exiting = int(stat[6]) & _EXITING_FLAG
    return stat[0] in "ZX" or bool(is_exiting or pending & _SIGKILL_BIT)


class CheckpointCopy:
    """The copy of one stack's checkpoint, in the folder of a file backend."""

    def __init__(self, folder: Path, name: str, stack: str) -> None:
        self._objects = FileObjects(folder)
        self._names = name, stack
        self._key = stack_key(name, stack)
        self._plain = folder / self._key
        self._copy = folder / (self._key + KEPT)

    def keep(self, project: Project, wanted: Collection[str] | None) -> None:
        """Copy the checkpoint before a change that keeps only the `wanted` workers (None: all).

        Raises StoreFailed if there is no space for the copy; the stack is then unchanged.
        """
        try:
            file = find_checkpoint(self._objects, self._key)
        except NotACheckpoint:
            return
        with touching(self._copy, StoreFailed):
            if file is None:
                # Otherwise the copy would be used for a new stack of this name.
                self._copy.unlink(missing_ok=True)
                return
            if wanted is not None:
                mark_deleting(file["checkpoint"].setdefault("latest", {}), wanted, project)
            replace_file(self._copy, json.dumps(file).encode(), mode=self._mode())

    def is_cut(self) -> bool:
        """Return whether the checkpoint is truncated or malformed."""
        try:
            find_checkpoint(self._objects, self._key)
        except NotACheckpoint:
            return True
        return False

    def restore(self) -> None:
        """Replace a truncated checkpoint by its copy.

        Raises Locked if the process that truncated it may still run and complete it.
        """
        if not self.is_cut() or not self._copy.exists():
            return
        break_dead_locks(self._objects, *self._names)
        with touching(self._plain, StoreFailed):
            replace_file(self._plain, self._copy.read_bytes(), mode=self._mode())
            self._drop_others()

    def drop_cut(self) -> None:
        """Remove the truncated checkpoint of a stack whose creation failed."""
        if self.is_cut():
            self._objects.remove(self._key)
            self._drop_others()

    def _drop_others(self) -> None:
        for suffix in filter(None, PACKINGS):
            self._objects.remove(self._key + suffix)

    def _mode(self) -> int:
        files = (self._plain.with_name(self._plain.name + suffix) for suffix in PACKINGS)
        return stat.S_IMODE(next(each for each in files if each.exists()).stat().st_mode)
