"""A provider whose machines an operator's commands create, list and delete.

A failed command may still have had an effect, so `list` decides which machines exist. If the
output of `list` is invalid, the machines are Unknown instead of fewer.
"""

import fcntl
import json
import os
import re
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Literal

from fleet.clouds.cloud import Cloud
from fleet.clouds.hooks.interface import (
    MOST_LISTED,
    NAME,
    HookLog,
    OwnInterface,
    ResallocInterface,
    is_held,
    machine_of,
    tidy,
)
from fleet.clouds.hooks.memory import Deleting, HookMemory, Undeleted, noting
from fleet.clouds.ready import FileMemory, Livechecks, Slots
from fleet.errors import CreationRefused, DeletionPending, SourceUnreachable, touching
from fleet.model.facts import Listing, Machine, MachineState, Unknown, WorkerInputs
from fleet.ports import Cleaned, Clock
from fleet.schema.model import Hooks, HooksProvider, is_named_by_fleet
from fleet.state.processes import CommandFailed, Invocation, find_tokens, mask, run

FIGURES = ("cores", "memory_mib", "disk_mib", "swap_mib")
"""Machine settings that commands get as environment variables."""
_VARIABLES = {"name": "FLEET_MACHINE", "fleet": "FLEET_NAME"}
Hears = Callable[[str, bytes], None]
"""Function that receives a part of a command's output: the stream's name and the bytes."""
NOTHING: Mapping[str, str] = MappingProxyType({})
_POLL_SECONDS = 0.5
_MAX_SHOWN_LENGTH = 100
"""Maximum characters of a command in a message."""
_MAX_OUTPUT_BYTES = 65536
"""Maximum bytes of the output of a command other than `list`."""
_ID = re.compile(r"[!-~]{1,200}")
OUTCOMES = ("out-of-stock", "quota", "name-taken", "error")
"""Codes that a failed `new` may print on its first line, to state the reason."""


@dataclass(frozen=True)
class CommandContext:
    """The environment in which commands run."""

    provider: str
    fleet: str
    folder: Path
    """Working directory of the commands: the folder of fleet.yaml."""
    state: Path
    """Folder of records that are kept between runs."""
    environment: Mapping[str, str]
    """Environment of each command. fleet's own environment may contain secrets."""
    ours: Mapping[str, str]
    """fleet's own environment. Commands get only those of its variables that fleet.yaml names."""
    pools: Collection[str] = ()
    """Pools whose machines the commands create."""
    looks: bool = True
    """Whether to run `livecheck`. If False, the recorded results are used."""
    slots: Slots = field(default_factory=Slots)


class HookMachines:
    """A provider whose commands list, create, clean and delete machines."""

    def __init__(self, hooks: Hooks, around: CommandContext, clock: Clock) -> None:
        self._hooks = hooks
        self._context = around
        self._clock = clock
        self._known: dict[str, Machine] = {}
        self._strangers: tuple[str, ...] = ()
        """Machines of other fleets in the latest list that have names of our form."""
        self._livechecks, self._unlisted = (
            Livechecks(
                FileMemory(around.state / f"{name}.json"),
                self._works if around.looks else None,
                every=hooks.livecheck_every,
                at_once=hooks.at_once,
            )
            for name in ("livechecks", "livechecks-unlisted")
        )
        self._doubted: frozenset[str] = frozenset()
        self.at_once = hooks.at_once
        self._look_turn = threading.Lock()
        self._looked_at = float("-inf")
        """Monotonic start time of the latest list that was run after a deletion."""
        self._going: set[str] = set()
        """Machines whose `delete` was started in this run and has not failed."""
        self._cut = threading.Event()
        """Flag that stops running commands and prevents further commands."""
        # All providers of the fleet use one file, since they share counters.
        self._memory = HookMemory(around.state.parent / "hook-machines.json", around.provider)
        self._interface = (
            OwnInterface(self._memory, hooks.named_counters)
            if hooks.interface == "fleet"
            else ResallocInterface(
                self._memory,
                hooks.named_counters,
                lambda name: is_held(self._lock_of(name)),
                (around.fleet, around.pools),
                ignores_exit=hooks.list_exit == "ignored",
            )
        )

    def cut_short(self) -> None:
        """Stop the running commands, and start no further commands."""
        self._cut.set()

    def go_on(self) -> None:
        """Permit commands again after `cut_short`."""
        self._cut.clear()

    def create(self, inputs: WorkerInputs, user_data: str = "") -> str:
        """Create a machine and return its id; raises CreationRefused if surely none exists."""
        if not NAME.fullmatch(inputs.name):
            raise CreationRefused(f"{inputs.name}: invalid_input: not a name for a machine")
        figures = {key: inputs.settings[key] for key in FIGURES if key in inputs.settings}
        told = {
            "name": inputs.name,
            "pool": inputs.labels.get("pool", ""),
            "type": inputs.type,
            "image": inputs.image,
            "architecture": inputs.architecture,
            "labels": json.dumps(inputs.labels, sort_keys=True),
            **figures,
        }
        with self._hold_lock(inputs.name) as lock, self._recording(inputs.name):
            # A recorded deletion belongs to an earlier machine of this name.
            self._memory.forget_deletion(inputs.name)
            self._interface.begin(inputs, self._clock.now())
            try:
                with self._slot():
                    said = self._run("new", told, user_data=user_data, keeps=(lock.fileno(),))
            except CommandFailed as failure:
                raise self._creation_error(inputs, failure) from failure
            machine_id = self._interface.made(inputs.name, said)
        if not _ID.fullmatch(machine_id):
            raise SourceUnreachable(
                f"{inputs.name}: new did not print an id of one word; the next apply checks "
                "whether the machine exists"
            )
        return machine_id

    def delete(self, machine_id: str) -> None:
        """Delete a machine, if it exists; raises DeletionPending while `list` has the machine."""
        machine = self._known.get(machine_id) or self._find(machine_id)
        if machine is None:
            with noting(machine_id):
                if NAME.fullmatch(machine_id) and is_held(self._lock_of(machine_id)):
                    raise SourceUnreachable(
                        f"{machine_id} not forgotten: `new` of an earlier run still runs"
                    )
                self._interface.forget(machine_id)
            return
        with noting(machine.name):
            failed = self._memory.undeleted().get(machine.name)
            accepted = self._memory.deleting().get(machine.name)
        # A user's deletion ignores the pause after a failure; only `apply` and `serve` obey it.
        waits = self._context.looks and failed and failed.at <= self._clock.now() < failed.again
        if waits:
            raise SourceUnreachable(f"{machine.name}: {failed}")
        now = self._clock.now()
        if self._context.looks and accepted and accepted.at <= now < accepted.again(self._limit):
            raise DeletionPending(f"{machine.name}: deleting since {accepted.since:%F %H:%M}Z")
        self._going.add(machine.name)
        try:
            with self._slot():
                self._run("delete", _machine_fields(machine))
        except CommandFailed as failure:
            self._going.discard(machine.name)
            if self._find(machine_id) is not None:
                with noting(machine.name):
                    self._memory.note_undeleted(machine.name, str(failure), self._clock.now())
                raise SourceUnreachable(f"{machine.name}: {failure}") from failure
        else:
            self._check_gone(machine)
        with noting(machine.name):
            # A `new` that still runs after its fleet was killed holds the lock.
            if not is_held(lock := self._lock_of(machine.name)):
                lock.unlink(missing_ok=True)
            self._interface.forget(machine.name)

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Do nothing, because commands cannot store an expiry. Listings report this limit."""

    def list(self, fleet: str) -> Listing | Unknown:
        """Return this fleet's machines; enough failed livechecks make a machine `failed`."""
        now = self._clock.now()
        try:
            machines = self._list_machines(fleet)
            if self._hooks.livecheck is not None:
                failures = self._livechecks.failures(machines, now)
                machines = tuple(
                    each.altered(state=MachineState.FAILED)
                    if failures.get(each.id, 0) >= self._hooks.livecheck_failures
                    else each
                    for each in machines
                )
                self._doubted = frozenset(m.name for m in machines if failures.get(m.id))
            undeleted, deleting = self._memory.undeleted(), self._memory.deleting()
            machines = tuple(
                self._set_deletion_state(each, undeleted.get(each.name), deleting.get(each.name))
                for each in machines
            )
        except (CommandFailed, OSError, ValueError) as error:
            return Unknown(unknown=str(error))
        return Listing(read_at=now, machines=machines, strangers=self._strangers)

    def doubted(self) -> Collection[str]:
        """Return the machines of the last listing whose latest livecheck failed."""
        return self._doubted

    def clean(self, machine: Machine) -> Cleaned:
        """Run `release` on a machine, and return the result of cleaning."""
        if self._hooks.release is None:
            return Cleaned()
        try:
            with self._slot():
                self._run("release", _machine_fields(machine))
        except CommandFailed as failure:
            return Cleaned(str(failure), begun=failure.started)
        return Cleaned()

    def check_unlisted(self, machines: Sequence[Machine]) -> Mapping[str, bool]:
        """Map the id of each unlisted machine to True if alive. Undecided machines are omitted."""
        if self._hooks.livecheck is None:
            return {}
        try:
            failures = self._unlisted.failures(machines, self._clock.now())
        except (CommandFailed, OSError, ValueError):
            return {}
        enough = self._hooks.livecheck_failures
        return {key: not count for key, count in failures.items() if not 0 < count < enough}

    def forget(self, name: str) -> None:
        """Remove the record of a deleted machine, so that new machines can use its numbers."""
        with noting(name):
            self._interface.forget(name)

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return the data that commands printed about a machine, for the client of its ticket."""
        return self._interface.particulars(machine.name)

    def _list_machines(self, fleet: str) -> tuple[Machine, ...]:
        with ThreadPoolExecutor(self.at_once, thread_name_prefix="list") as threads:
            rounds = self._interface.rounds()
            said = "\n".join(threads.map(partial(self._run_list, fleet), rounds))
        listed = self._interface.parse(said)
        ours = tuple(machine_of(each) for each in listed if each.labels.get("fleet") == fleet)
        for what, values in (("name", [m.name for m in ours]), ("id", [m.id for m in ours])):
            twice = [value for value, count in Counter(values).items() if count > 1]
            if twice:
                raise ValueError(f"list printed the {what} {twice[0]} more than once")
        self._known = {machine.id: machine for machine in ours}
        own = self._context.fleet
        # Machines of other fleets may have names of our form.
        strangers = {each.name for each in listed if each.labels.get("fleet") != own}
        self._strangers = tuple(
            name
            for name in sorted(strangers)
            if any(is_named_by_fleet(own, pool, name) for pool in self._context.pools)
        )
        return tuple(sorted(ours, key=lambda machine: machine.name))

    def _run_list(self, fleet: str, more: Mapping[str, str]) -> str:
        try:
            return self._run("list", {"fleet": fleet}, more=more)
        except CommandFailed as failure:
            if self._interface.is_empty(failure, self._going):
                return ""
            raise

    def _find(self, machine_id: str) -> Machine | None:
        """Return the machine with this id in a new list; None if it is not listed."""
        try:
            return self._find_listed(lambda machine: machine.id == machine_id)
        except (OSError, ValueError) as error:
            raise SourceUnreachable(f"machine {machine_id} is unreachable: {error}") from error

    def _find_listed(self, is_it: Callable[[Machine], bool]) -> Machine | None:
        """Return a machine from a new list. Try twice, because one list may be incomplete."""
        for _ in range(2):
            found = next(filter(is_it, self._list_machines(self._context.fleet)), None)
            if found is not None:
                return found
        return None

    @property
    def _limit(self) -> timedelta:
        """Maximum time between a successful `delete` and the machine's removal from lists."""
        return timedelta(seconds=self._hooks.timeouts.delete)

    def _check_gone(self, machine: Machine) -> None:
        """Raise DeletionPending if a list from after the deletion still has the machine."""
        ended = time.monotonic()
        # Concurrent deletions share a list if it started after all of them ended.
        with self._look_turn, noting(machine.name):
            noted = self._memory.note_deleting(machine.name, self._clock.now())
            if self._looked_at < ended:
                began = time.monotonic()
                self._list_machines(self._context.fleet)
                self._looked_at = began
            if machine.id in self._known:
                raise DeletionPending(f"{machine.name}: deleting since {noted.since:%F %H:%M}Z")

    def _set_deletion_state(
        self, machine: Machine, failed: Undeleted | None, accepted: Deleting | None
    ) -> Machine:
        """Return a machine with the recorded state of its deletion."""
        if accepted is None:
            return machine.altered(trouble=str(failed)) if failed else machine
        is_late = self._clock.now() >= accepted.since + self._limit
        trouble = str(failed) if failed else accepted.describe(self._limit) if is_late else ""
        return machine.altered(deleting_since=accepted.since, trouble=trouble)

    def _works(self, machine: Machine) -> bool:
        try:
            self._run("livecheck", _machine_fields(machine))
        except CommandFailed as failure:
            if not failure.started:
                raise
            return False
        return True

    def _creation_error(self, inputs: WorkerInputs, failure: CommandFailed) -> Exception:
        """Return the error of a failed creation: CreationRefused if surely no machine exists."""
        said = f"{inputs.name}: {failure}"
        if not failure.started:
            return CreationRefused(said)
        if failure.first_line in OUTCOMES:
            said = f"{inputs.name}: new reports {failure.first_line}: {failure}"
        try:
            made = self._find_listed(lambda machine: machine.name == inputs.name)
        except (CommandFailed, ValueError) as error:
            return SourceUnreachable(f"{said}; whether it made a machine is unknown: {error}")
        if made:
            return SourceUnreachable(f"{said}; but the machine exists: the next apply adopts it")
        if not failure.in_time:
            return SourceUnreachable(f"{said}; the next apply checks whether it exists")
        if inputs.name in self._strangers:
            said = f"{inputs.name}: new reports name-taken: {failure}; list has a stranger's"
        return CreationRefused(said)

    def _run(
        self,
        hook: Literal["new", "delete", "list", "livecheck", "release"],
        told: Mapping[str, str],
        *,
        user_data: str = "",
        more: Mapping[str, str] = NOTHING,
        keeps: tuple[int, ...] = (),
    ) -> str:
        told = {"fleet": self._context.fleet, **told}
        given = self._passed_variables()
        remembered = self._recorded_variables(told.get("name", ""))
        command = getattr(self._hooks, hook)
        secrets = frozenset(given.values()) | find_tokens(user_data)
        shown = mask(shlex.join(command), given.values())[:_MAX_SHOWN_LENGTH]
        advice = (
            f"; what ran: {shown}; where it needs longer, raise `timeouts: {{{hook}: …}}` of the "
            f"hooks of {self._context.provider}"
        )
        # Commands for Resalloc may contain braces of the shell, such as ${name}.
        fills = self._hooks.interface == "fleet"
        with self._log_call(hook, told.get("name", ""), secrets) as hears:
            return run(
                Invocation(
                    what=hook,
                    # In one pass, so that inserted values stay unchanged.
                    command=[
                        re.sub(r"\{(\w+)\}", lambda found: told.get(found[1], found[0]), part)
                        for part in command
                    ]
                    if fills
                    else command,
                    folder=self._context.folder,
                    environment={
                        **self._context.environment,
                        **given,
                        **{_VARIABLES.get(k, f"FLEET_{k.upper()}"): v for k, v in told.items()},
                        **remembered,
                        **more,
                        "FLEET_HOOK": hook,
                        "FLEET_PROVIDER": self._context.provider,
                    },
                    timeout=getattr(self._hooks.timeouts, hook),
                    advice=advice,
                    secrets=secrets,
                    stdin=user_data,
                    most=MOST_LISTED if hook == "list" else _MAX_OUTPUT_BYTES,
                    keeps=keeps,
                    hears=hears,
                    is_cut=self._cut.is_set,
                )
            )

    @contextmanager
    def _log_call(self, hook: str, machine: str, secrets: Collection[str]) -> Iterator[Hears]:
        """Log a call, and add the log's path to an error. Read-only runs do not log `list`."""
        folder = self._context.state.parent / "hooks"
        is_list = hook == "list"
        path = folder / (machine or self._context.provider) / f"{hook}.log"
        if (is_list and not self._context.looks) or not NAME.fullmatch(path.parent.name):
            yield lambda _stream, _data: None
            return
        log = HookLog(path, hook, secrets, quiet=is_list)
        try:
            yield log.hear
        except CommandFailed as failure:
            log.end(f"failed: {failure}", failed=True)
            if log.is_written and failure.started:
                base = self._context.folder
                shown = path.relative_to(base) if path.is_relative_to(base) else path
                failure.args = (f"{failure}; log: {shown}",)
            raise
        except BaseException:
            log.end("was stopped with fleet", failed=True)
            raise
        log.end("succeeded", failed=False)
        if hook in ("new", "delete"):
            tidy(folder)

    def _passed_variables(self) -> dict[str, str]:
        """Return the variables for commands; raises CommandFailed if fleet lacks one."""
        ours, names = self._context.ours, self._hooks.environment
        missing = [name for name in names if name not in ours]
        if missing:
            raise CommandFailed(
                f"the environment variable {missing[0]} is not set, which "
                f"`environment` of provider {self._context.provider} names",
                started=False,
            )
        return {name: ours[name] for name in names}

    def _recorded_variables(self, name: str) -> Mapping[str, str]:
        """Return the variables from a machine's record; raises CommandFailed if unreadable."""
        try:
            return self._interface.told(name)
        except (OSError, ValueError) as error:
            raise CommandFailed(str(error), started=False) from error

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Hold one of the `at_once` slots for commands that change machines."""
        slots = self._context.slots.of(self._context.provider, self.at_once)
        while not slots.acquire(timeout=_POLL_SECONDS):
            if self._cut.is_set():
                raise CommandFailed("not started: fleet is stopping", started=False)
        try:
            yield
        finally:
            slots.release()

    def _lock_of(self, name: str) -> Path:
        return self._context.state / f"{name}.lock"

    @contextmanager
    def _recording(self, name: str) -> Iterator[None]:
        """Keep the record of a machine, but remove it if the body raises CreationRefused."""
        with noting(name):
            try:
                yield
            except CreationRefused:
                self._interface.forget(name)
                raise

    @contextmanager
    def _hold_lock(self, name: str) -> Iterator[IO[str]]:
        """Hold the lock of a machine. A command that outlives fleet keeps the lock."""
        path = self._lock_of(name)
        with touching(f"{name}: local_fault: {path}", CreationRefused):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.open("a")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise SourceUnreachable(
                    f"{name}: `new` of an earlier run still runs; the next apply checks its result"
                ) from error
            yield lock


def _machine_fields(machine: Machine) -> dict[str, str]:
    return {
        "id": machine.id,
        "name": machine.name,
        "pool": machine.pool,
        "type": machine.type,
        "image": machine.image or "",
    }


class OwnCommands(Cloud[HooksProvider]):
    """A provider whose machines an operator's commands create, list and delete."""

    lists_all = False

    def open(self) -> HookMachines:
        """Return the machines that the commands manage."""
        site, pools = self.site, self.site.fleet.dynamic_pools
        around = CommandContext(
            provider=site.name,
            fleet=site.fleet.fleet,
            folder=site.folder,
            state=site.storage.folder / f"hooks-{site.name}",
            environment=site.bare_environment,
            ours=os.environ,
            pools=frozenset(name for name, pool in pools.items() if pool.provider == site.name),
            looks=site.slots is not None,
            slots=site.slots or Slots(),
        )
        return HookMachines(self.declared, around, site.clock)

    def unchecked(self) -> Iterator[tuple[str, str]]:
        """Yield quotas as unchecked, because commands do not report quotas."""
        yield "quotas", "only its commands know what they may do"
