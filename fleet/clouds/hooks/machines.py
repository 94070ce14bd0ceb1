"""A provider whose machines a person's own commands create, list and delete.

A command that fails is believed to have failed, not to have done nothing: what exists is what
`list` prints. Anything odd about that makes the machines unknown, never fewer.
"""

import fcntl
import json
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

from fleet.clouds.hooks.interface import (
    MOST_LISTED,
    NAME,
    HookLog,
    Listed,
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
from fleet.schema.model import is_named_by_fleet
from fleet.schema.sources import Hooks
from fleet.state.processes import Call, CommandFailed, find_tokens, mask, run

FIGURES = ("cores", "memory_mib", "disk_mib", "swap_mib")
"""What of a machine's settings its commands are told."""
_VARIABLES = {"name": "FLEET_MACHINE", "fleet": "FLEET_NAME"}
Hears = Callable[[str, bytes], None]
"""Takes what a command writes to a stream."""
NOTHING: Mapping[str, str] = MappingProxyType({})
_LOOK_SECONDS = 0.5
_SHOWN = 100
"""Letters of a command that a message shows."""
_MOST_SAID = 65536
"""Bytes that any other command may print."""
_ID = re.compile(r"[!-~]{1,200}")
OUTCOMES = ("out-of-stock", "quota", "name-taken", "error")
"""Words by which a `new` that failed may state, on its first line, which failure it was."""


@dataclass(frozen=True)
class Surroundings:
    """What commands run in."""

    provider: str
    fleet: str
    folder: Path
    """Where they run: the folder of fleet.yaml."""
    state: Path
    """Where it is noted what outlives a run."""
    environment: Mapping[str, str]
    """All that they get beside what they are told of a machine; fleet's own holds secrets."""
    ours: Mapping[str, str]
    """Fleet's own environment, of which they get what fleet.yaml names."""
    pools: Collection[str] = ()
    """The pools whose machines they make."""
    looks: bool = True
    """Whether `livecheck` is run; else what the last looks found counts."""
    slots: Slots = field(default_factory=Slots)


class HookMachines:
    """One provider of kind hooks: lists, cleans, creates and deletes machines by commands."""

    def __init__(self, hooks: Hooks, around: Surroundings, clock: Clock) -> None:
        self._hooks = hooks
        self._around = around
        self._clock = clock
        self._known: dict[str, Machine] = {}
        self._strangers: tuple[str, ...] = ()
        """Names like those of our machines that the latest list had for others' machines."""
        self._livechecks = Livechecks(
            FileMemory(around.state / "livechecks.json"),
            self._works if around.looks else None,
            every=hooks.livecheck_every,
            at_once=hooks.at_once,
        )
        self._unlisted = Livechecks(
            FileMemory(around.state / "livechecks-unlisted.json"),
            self._works if around.looks else None,
            every=hooks.livecheck_every,
            at_once=hooks.at_once,
        )
        self._doubted: frozenset[str] = frozenset()
        self.at_once = hooks.at_once
        self._look_turn = threading.Lock()
        self._looked_at = float("-inf")
        """When the latest list after a deletion began."""
        self._going: set[str] = set()
        """Machines whose `delete` began in this run and did not fail."""
        self._cut = threading.Event()
        """While it is set, commands end, and none is begun."""
        # One for all providers of the fleet: counters are shared.
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
        """End the commands that run, and begin none."""
        self._cut.set()

    def go_on(self) -> None:
        """Begin commands again."""
        self._cut.clear()

    def create(self, inputs: WorkerInputs, user_data: str = "") -> str:
        """Make a machine and return its id; CreationRefused when surely nothing was made."""
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
        with self._alone(inputs.name) as lock, self._remembering(inputs.name):
            # A deletion that is remembered was that of an older machine of this name.
            self._memory.forget_deletion(inputs.name)
            self._interface.begin(inputs, self._clock.now())
            try:
                with self._room():
                    said = self._run("new", told, user_data=user_data, keeps=(lock.fileno(),))
            except CommandFailed as failure:
                raise self._made_of(inputs, failure) from failure
            machine_id = self._interface.made(inputs.name, said)
        if not _ID.fullmatch(machine_id):
            raise SourceUnreachable(
                f"{inputs.name}: new did not print an id of one word; the next apply checks "
                "whether the machine exists"
            )
        return machine_id

    def delete(self, machine_id: str) -> None:
        """Delete a machine; one that is already gone is fine."""
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
        # A person who has a machine deleted does not wait; only `apply` and `serve` look.
        waits = self._around.looks and failed and failed.at <= self._clock.now() < failed.again
        if waits:
            raise SourceUnreachable(f"{machine.name}: {failed}")
        with noting(machine.name):
            accepted = self._memory.deleting().get(machine.name)
        now = self._clock.now()
        if self._around.looks and accepted and accepted.at <= now < accepted.again(self._limit):
            raise DeletionPending(f"{machine.name}: deleting since {accepted.since:%F %H:%M}Z")
        self._going.add(machine.name)
        try:
            with self._room():
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
            # A `new` that outlived its fleet holds it still, and goes on to.
            if not is_held(lock := self._lock_of(machine.name)):
                lock.unlink(missing_ok=True)
            self._interface.forget(machine.name)

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Note nothing: the commands have no place for it, and a listing says so."""

    def list(self, fleet: str) -> Listing | Unknown:
        """Return this fleet's machines; one whose livechecks fail for long has failed."""
        now = self._clock.now()
        try:
            machines = self._listed(fleet)
            if self._hooks.livecheck is not None:
                failures = self._livechecks.failures(machines, now)
                machines = tuple(self._judged(each, failures) for each in machines)
                self._doubted = frozenset(m.name for m in machines if failures.get(m.id))
            undeleted, deleting = self._memory.undeleted(), self._memory.deleting()
            machines = tuple(
                self._marked(each, undeleted.get(each.name), deleting.get(each.name))
                for each in machines
            )
        except (CommandFailed, OSError, ValueError) as error:
            return Unknown(unknown=f"the machines of {self._around.provider} are unknown: {error}")
        return Listing(read_at=now, machines=machines, strangers=self._strangers)

    def doubted(self) -> Collection[str]:
        """Return the machines whose latest livecheck failed, as of the last listing."""
        return self._doubted

    def clean(self, machine: Machine) -> Cleaned:
        """Run `release` on a machine; return how that went."""
        if self._hooks.release is None:
            return Cleaned()
        try:
            with self._room():
                self._run("release", _machine_fields(machine))
        except CommandFailed as failure:
            return Cleaned(str(failure), begun=failure.started)
        return Cleaned()

    def check_unlisted(self, machines: Sequence[Machine]) -> Mapping[str, bool]:
        """Return by id whether `livecheck` finds that unlisted machines work, where it tells."""
        if self._hooks.livecheck is None:
            return {}
        try:
            failures = self._unlisted.failures(machines, self._clock.now())
        except (CommandFailed, OSError, ValueError):
            return {}
        enough = self._hooks.livecheck_failures
        return {key: not count for key, count in failures.items() if not 0 < count < enough}

    def forget(self, name: str) -> None:
        """Give back the numbers of a machine that is gone."""
        with noting(name):
            self._interface.forget(name)

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return what else its own commands told of a machine."""
        return self._interface.particulars(machine.name)

    def _listed(self, fleet: str) -> tuple[Machine, ...]:
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
        self._strangers = tuple(sorted({each.name for each in listed if self._is_strange(each)}))
        return tuple(sorted(ours, key=lambda machine: machine.name))

    def _is_strange(self, listed: Listed) -> bool:
        """Say whether a machine of another fleet, or of none, has a name as ours get."""
        fleet = self._around.fleet
        return listed.labels.get("fleet") != fleet and any(
            is_named_by_fleet(fleet, pool, listed.name) for pool in self._around.pools
        )

    def _run_list(self, fleet: str, more: Mapping[str, str]) -> str:
        try:
            return self._run("list", {"fleet": fleet}, more=more)
        except CommandFailed as failure:
            if self._interface.is_empty(failure, self._going):
                return ""
            raise

    def _find(self, machine_id: str) -> Machine | None:
        """Return a machine of ours by its id, looked up now; None where it is gone."""
        try:
            return self._look_for(lambda machine: machine.id == machine_id)
        except (OSError, ValueError) as error:
            raise SourceUnreachable(f"machine {machine_id} is unreachable: {error}") from error

    def _look_for(self, is_it: Callable[[Machine], bool]) -> Machine | None:
        """Return a machine as it is listed now; None where two lists lack it: one may be short."""
        for _ in range(2):
            found = next(filter(is_it, self._listed(self._around.fleet)), None)
            if found is not None:
                return found
        return None

    @property
    def _limit(self) -> timedelta:
        """How long a deletion that succeeded may take until the machine is no longer listed."""
        return timedelta(seconds=self._hooks.timeouts.delete)

    def _check_gone(self, machine: Machine) -> None:
        """Raise DeletionPending if a list that began after the deletion shows the machine."""
        ended = time.monotonic()
        # Machines are deleted at the same time: one list answers for all deleted before it began.
        with self._look_turn, noting(machine.name):
            noted = self._memory.note_deleting(machine.name, self._clock.now())
            if self._looked_at < ended:
                began = time.monotonic()
                self._listed(self._around.fleet)
                self._looked_at = began
            if machine.id in self._known:
                raise DeletionPending(f"{machine.name}: deleting since {noted.since:%F %H:%M}Z")

    def _marked(
        self, machine: Machine, failed: Undeleted | None, accepted: Deleting | None
    ) -> Machine:
        """Return a machine with the state of its deletion."""
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

    def _judged(self, machine: Machine, failures: Mapping[str, int]) -> Machine:
        if failures.get(machine.id, 0) < self._hooks.livecheck_failures:
            return machine
        return machine.altered(state=MachineState.FAILED)

    def _made_of(self, inputs: WorkerInputs, failure: CommandFailed) -> Exception:
        """Return what to say of a creation that failed: whether it surely made nothing."""
        said = f"{inputs.name}: {failure}"
        if not failure.started:
            return CreationRefused(said)
        if failure.first_line in OUTCOMES:
            said = f"{inputs.name}: new reports {failure.first_line}: {failure}"
        try:
            made = self._look_for(lambda machine: machine.name == inputs.name)
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
        told = {"fleet": self._around.fleet, **told}
        given = self._given()
        remembered = self._remembered(told.get("name", ""))
        command = getattr(self._hooks, hook)
        secrets = frozenset(given.values()) | find_tokens(user_data)
        # What was written for Resalloc has braces of a shell's, as in ${name}.
        fills = self._hooks.interface == "fleet"
        with self._logged(hook, told.get("name", ""), secrets) as hears:
            return run(
                Call(
                    what=hook,
                    command=[_filled(part, told) for part in command] if fills else command,
                    folder=self._around.folder,
                    environment={
                        **self._around.environment,
                        **given,
                        **{_VARIABLES.get(k, f"FLEET_{k.upper()}"): v for k, v in told.items()},
                        **remembered,
                        **more,
                        "FLEET_HOOK": hook,
                        "FLEET_PROVIDER": self._around.provider,
                    },
                    timeout=getattr(self._hooks.timeouts, hook),
                    advice=self._advice(hook, mask(shlex.join(command), given.values())),
                    secrets=secrets,
                    stdin=user_data,
                    most=MOST_LISTED if hook == "list" else _MOST_SAID,
                    keeps=keeps,
                    hears=hears,
                    is_cut=self._cut.is_set,
                )
            )

    @contextmanager
    def _logged(self, hook: str, machine: str, secrets: Collection[str]) -> Iterator[Hears]:
        """Log one call; its failure says where. Who only reads logs no `list`."""
        folder = self._around.state.parent / "hooks"
        is_list = hook == "list"
        path = folder / (machine or self._around.provider) / f"{hook}.log"
        if (is_list and not self._around.looks) or not NAME.fullmatch(path.parent.name):
            yield lambda _stream, _data: None
            return
        log = HookLog(path, hook, secrets, quiet=is_list)
        try:
            yield log.hear
        except CommandFailed as failure:
            log.end(f"failed: {failure}", failed=True)
            if log.is_written and failure.started:
                failure.args = (f"{failure}; log: {self._shown(path)}",)
            raise
        except BaseException:
            log.end("was stopped with fleet", failed=True)
            raise
        log.end("succeeded", failed=False)
        if hook in ("new", "delete"):
            tidy(folder)

    def _shown(self, path: Path) -> Path:
        """Return a path as a person finds it: from the folder of fleet.yaml where it is there."""
        folder = self._around.folder
        return path.relative_to(folder) if path.is_relative_to(folder) else path

    def _advice(self, hook: str, command: str) -> str:
        """Return what to do about a command that takes too long."""
        return (
            f"; what ran: {command[:_SHOWN]}; where it needs longer, raise "
            f"`timeouts: {{{hook}: …}}` of the hooks of {self._around.provider}"
        )

    def _given(self) -> dict[str, str]:
        """Return what of fleet's own environment the commands are to get."""
        ours, names = self._around.ours, self._hooks.environment
        missing = [name for name in names if name not in ours]
        if missing:
            raise CommandFailed(
                f"the environment variable {missing[0]} is not set, which "
                f"`environment` of provider {self._around.provider} names",
                started=False,
            )
        return {name: ours[name] for name in names}

    def _remembered(self, name: str) -> Mapping[str, str]:
        """Return what the commands are told of what was noted of a machine."""
        try:
            return self._interface.told(name)
        except (OSError, ValueError) as error:
            raise CommandFailed(str(error), started=False) from error

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Wait until fewer than `at_once` commands run that change something."""
        slots = self._around.slots.of(self._around.provider, self.at_once)
        while not slots.acquire(timeout=_LOOK_SECONDS):
            if self._cut.is_set():
                raise CommandFailed("not started: fleet is stopping", started=False)
        try:
            yield
        finally:
            slots.release()

    def _lock_of(self, name: str) -> Path:
        return self._around.state / f"{name}.lock"

    @contextmanager
    def _remembering(self, name: str) -> Iterator[None]:
        """Remember a machine from before it is made; one that was surely not made is forgotten."""
        with noting(name):
            try:
                yield
            except CreationRefused:
                self._interface.forget(name)
                raise

    @contextmanager
    def _alone(self, name: str) -> Iterator[IO[str]]:
        """Hold a machine's lock, which a command that outlives its fleet goes on holding."""
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


def _filled(part: str, told: Mapping[str, str]) -> str:
    """Put what is told of a machine into an argument, in one go: no value is looked at again."""
    return re.sub(r"\{(\w+)\}", lambda found: told.get(found[1], found[0]), part)


def _machine_fields(machine: Machine) -> dict[str, str]:
    return {
        "id": machine.id,
        "name": machine.name,
        "pool": machine.pool,
        "type": machine.type,
        "image": machine.image or "",
    }
