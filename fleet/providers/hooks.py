"""This module is a provider whose machines a person's own commands make, list and delete.

A command that fails is believed to have failed, not to have done nothing: what exists is what
`list` prints. Anything odd about that makes the machines unknown, never fewer.
"""

import fcntl
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from fleet.errors import CreationRefused, SourceUnreachable
from fleet.facts import Listing, Machine, MachineState, Moment, Unknown, Value, WorkerInputs
from fleet.ports import Clock
from fleet.providers.hook_command import Call, HookFailed, run, words_of
from fleet.providers.hook_livechecks import Livechecks
from fleet.schema.sources import Hooks

FIGURES = ("cores", "memory_mib", "disk_mib")
"""What of a machine's settings its commands are told."""
_MOST_LISTED = 16 * 1024 * 1024
_VARIABLES = {"name": "FLEET_MACHINE", "fleet": "FLEET_NAME"}
_ID = re.compile(r"[!-~]{1,200}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")

_Name = Annotated[str, StringConstraints(pattern=rf"^{_NAME.pattern}$")]
_Word = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
_Label = Annotated[str, StringConstraints(max_length=1000)]


class Listed(Value):
    """One machine, as the command `list` prints it."""

    name: _Name
    id: _Word | None = Field(None, description="Left out: its name.")
    type: _Word
    created_at: Moment
    state: Literal["starting", "running", "stopping", "stopped"] = "running"
    labels: dict[str, _Label] = Field(description="What `new` was given in FLEET_LABELS.")
    image: _Word | None = None
    address: _Word | None = None


_LISTED = TypeAdapter(Annotated[list[Listed], Field(max_length=100_000)])


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


class HookMachines:
    """One provider of kind hooks: Provider, Keeper, and what the embedded engine changes."""

    def __init__(self, hooks: Hooks, around: Surroundings, clock: Clock) -> None:
        self._hooks = hooks
        self._around = around
        self._clock = clock
        self._known: dict[str, Machine] = {}
        self._livechecks = Livechecks(
            around.state / "livechecks.json", self._works, every=hooks.livecheck_every
        )

    def create(self, inputs: WorkerInputs, user_data: str = "") -> str:
        """Make a machine and return its id; CreationRefused when surely nothing was made."""
        if not _NAME.fullmatch(inputs.name):
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
        with self._alone(inputs.name) as lock:
            try:
                said = self._run("new", told, user_data=user_data, keeps=(lock.fileno(),))
            except HookFailed as failure:
                raise self._made_of(inputs, failure) from failure
        machine_id = said.strip() or inputs.name
        if not _ID.fullmatch(machine_id):
            raise SourceUnreachable(
                f"{inputs.name}: new printed what is no id of one word; the next apply looks "
                "whether it exists"
            )
        return machine_id

    def delete(self, machine_id: str) -> None:
        """Delete a machine; one that is already gone is fine."""
        machine = self._known.get(machine_id) or self._find(machine_id)
        if machine is None:
            return
        try:
            self._run("delete", _told_of(machine))
        except HookFailed as failure:
            if self._find(machine_id) is not None:
                raise SourceUnreachable(f"{machine.name}: {failure}") from failure
        (self._around.state / f"{machine.name}.lock").unlink(missing_ok=True)

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
        except (HookFailed, OSError, ValueError) as error:
            return Unknown(unknown=f"the machines of {self._around.provider} are unknown: {error}")
        return Listing(read_at=now, machines=machines)

    def _listed(self, fleet: str) -> tuple[Machine, ...]:
        listed = _parse(self._run("list", {"fleet": fleet}, most=_MOST_LISTED))
        ours = tuple(_machine(each) for each in listed if each.labels.get("fleet") == fleet)
        for what, values in (("name", [m.name for m in ours]), ("id", [m.id for m in ours])):
            twice = [value for value, count in Counter(values).items() if count > 1]
            if twice:
                raise ValueError(f"list printed the {what} {twice[0]} more than once")
        self._known = {machine.id: machine for machine in ours}
        return tuple(sorted(ours, key=lambda machine: machine.name))

    def _find(self, machine_id: str) -> Machine | None:
        """Return a machine of ours by its id, looked up now; None where it is gone."""
        try:
            self._listed(self._around.fleet)
        except ValueError as error:
            raise SourceUnreachable(f"machine {machine_id} is out of reach: {error}") from error
        return self._known.get(machine_id)

    def _works(self, machine: Machine) -> bool:
        try:
            self._run("livecheck", _told_of(machine))
        except HookFailed as failure:
            if not failure.started:
                raise
            return False
        return True

    def _judged(self, machine: Machine, failures: Mapping[str, int]) -> Machine:
        if failures.get(machine.id, 0) < self._hooks.livecheck_failures:
            return machine
        return machine.model_copy(update={"state": MachineState.FAILED})

    def _made_of(self, inputs: WorkerInputs, failure: HookFailed) -> Exception:
        """Return what to say of a creation that failed: whether it surely made nothing."""
        said = f"{inputs.name}: {failure}"
        if not failure.started:
            return CreationRefused(said)
        try:
            made = any(each.name == inputs.name for each in self._listed(self._around.fleet))
        except (HookFailed, ValueError) as error:
            return SourceUnreachable(f"{said}; nobody knows whether it made one: {error}")
        if made:
            return SourceUnreachable(f"{said}; but the machine exists: the next apply takes it up")
        if not failure.in_time:
            return SourceUnreachable(f"{said}; the next apply looks whether it exists by then")
        return CreationRefused(said)

    def _run(
        self,
        hook: Literal["new", "delete", "list", "livecheck"],
        told: Mapping[str, str],
        *,
        user_data: str = "",
        most: int = 65536,
        keeps: tuple[int, ...] = (),
    ) -> str:
        told = {"fleet": self._around.fleet, **told}
        given = self._given()
        command = getattr(self._hooks, hook)
        return run(
            Call(
                hook=hook,
                command=[_filled(part, told) for part in command],
                folder=self._around.folder,
                environment={
                    **self._around.environment,
                    **given,
                    **{_VARIABLES.get(k, f"FLEET_{k.upper()}"): v for k, v in told.items()},
                    "FLEET_HOOK": hook,
                    "FLEET_PROVIDER": self._around.provider,
                },
                timeout=getattr(self._hooks.timeouts, hook),
                secrets=frozenset(given.values()) | words_of(user_data),
                stdin=user_data,
                most=most,
                keeps=keeps,
            )
        )

    def _given(self) -> dict[str, str]:
        """Return what of fleet's own environment the commands are to get."""
        ours, names = self._around.ours, self._hooks.environment
        missing = [name for name in names if name not in ours]
        if missing:
            raise HookFailed(
                f"the environment variable {missing[0]} is not set, which "
                f"providers.{self._around.provider}.environment names",
                started=False,
            )
        return {name: ours[name] for name in names}

    @contextmanager
    def _alone(self, name: str) -> Iterator[IO[str]]:
        """Hold a machine's lock, which a command that outlives its fleet goes on holding."""
        path = self._around.state / f"{name}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.open("a")
        except OSError as error:
            raise CreationRefused(f"{name}: {path}: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise SourceUnreachable(
                    f"{name}: `new` of an earlier run has not ended yet; the next apply looks "
                    "what became of it"
                ) from error
            yield lock


def _filled(part: str, told: Mapping[str, str]) -> str:
    """Put what is told of a machine into an argument, in one go: no value is looked at again."""
    return re.sub(r"\{(\w+)\}", lambda found: told.get(found[1], found[0]), part)


def _told_of(machine: Machine) -> dict[str, str]:
    return {
        "id": machine.id,
        "name": machine.name,
        "pool": machine.pool,
        "type": machine.type,
        "image": machine.image or "",
    }


def _parse(said: str) -> list[Listed]:
    """Return what `list` printed; nothing at all is no list of no machines, which is `[]`."""
    if not said.strip():
        raise ValueError("list printed nothing; a list of no machines is []")
    try:
        return _LISTED.validate_json(said)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"list did not print machines as docs/how-to/use-your-own-commands.md says: "
            f"{f'{place}: ' if place else ''}{first['msg']}"
        ) from error


def _machine(listed: Listed) -> Machine:
    return Machine(
        name=listed.name,
        id=listed.id or listed.name,
        pool=listed.labels.get("pool", ""),
        type=listed.type,
        state=MachineState(listed.state),
        created_at=listed.created_at,
        image=listed.image,
        digest=listed.labels.get("digest"),
        address=listed.address,
    )
