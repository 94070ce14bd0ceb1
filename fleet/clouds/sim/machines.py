"""The simulated cloud: machines with stock, boot times and injected faults.

The embedded engine calls this module directly, the Pulumi engine through `plugin.py`. Both use the
same file. Like a real cloud, it has no safeguards and deletes a busy machine on request.
"""

import fcntl
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from fleet.errors import CreationRefused, FileUnreadable, FleetError, SourceUnreachable, WorkerBusy
from fleet.model.facts import (
    FoundMachine,
    Listing,
    Machine,
    MachineState,
    Unknown,
    Worker,
    WorkerInputs,
    WorkerState,
)
from fleet.model.values import Moment, Value, first_mistake
from fleet.planner import transitions
from fleet.ports import Clock, Tell
from fleet.state.files import LocalFiles, replace_file

if TYPE_CHECKING:
    from fleet.schema.model import Fleet


_MAX_FILE_BYTES = 200 * 1000 * 1000
_FAULTS = {
    "error": "server_error: something went wrong",
    "quota": "resource_limit_exceeded: quota reached",
    "out-of-stock": "resource_unavailable: {}",
}


class Menu(Value):
    """The machine types that the simulated provider sells, and its injected faults."""

    boot: int = Field(60, description="Seconds from creation to the worker registering.")
    types: dict[str, int | None] = Field(
        default_factory=dict,
        description="Machine type to its stock, `TYPE/spot` on the spot market; None: no end.",
    )
    create: Literal["out-of-stock", "quota", "error"] | None = None
    never_boots: tuple[str, ...] = ()


class SimMachine(Value):
    """A simulated machine and its worker."""

    inputs: WorkerInputs
    created_at: Moment
    boots_at: Moment | None = Field(description="None: never registers.")
    running: str | None = None
    uses: int = Field(0, description="Number of finished requests.")
    since: Moment | None = Field(
        None, description="Start of its worker's state; None: the end of the boot."
    )
    draining: bool = False
    drained_at: Moment | None = Field(
        None, description="Start of its drain; only in files of earlier versions."
    )
    disabled: bool = False
    revoked: bool = Field(False, description="Its token was revoked: it never registers.")
    expires: Moment | None = Field(None, description="Its expiry, extended by each run.")
    given: str = Field("", description="SHA-256 of its user data; empty: no user data.")


class Contents(Value, frozen=False):
    """The content of the simulated cloud's file."""

    format: Literal["fleet-sim-1"]
    menu: Menu | None = None
    made: int = Field(0, description="Number of machines created so far; ids are never reused.")
    machines: dict[str, SimMachine] = Field(default_factory=dict)


@contextmanager
def changing(path: Path) -> Iterator[Contents]:
    """Lock the file, yield its content, and write changed content at the end."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The lock is a separate file, since replacing a locked file would release its lock.
        with path.with_name(path.name + ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = load(path)
            contents = before.altered(machines=dict(before.machines))
            yield contents
            if contents != before:
                text = contents.model_dump_json(indent=1) + "\n"
                replace_file(path, text.encode(), mode=0o600)
    except OSError as error:
        raise SourceUnreachable(
            f"{path}: the simulated cloud could not be written: "
            f"{error.strerror or error}; nothing was changed"
        ) from error


def load(path: Path) -> Contents:
    """Return the content of the file; an empty cloud without a menu if the file is missing."""
    try:
        path.lstat()
        return Contents.model_validate_json(LocalFiles().read(str(path), _MAX_FILE_BYTES))
    except FileNotFoundError:
        return Contents(format="fleet-sim-1")
    except (FileUnreadable, OSError) as error:
        raise SourceUnreachable(f"the simulated cloud could not be read: {error}") from error
    except ValidationError as error:
        raise SourceUnreachable(
            f"{path}: not a simulated cloud (format fleet-sim-1): {first_mistake(error)}; restore "
            "it, or move it away to start with an empty cloud"
        ) from error


def menu_of(fleet: "Fleet", provider: str) -> Menu:
    """Return the menu of a simulated provider, with the types of its pools and the catalogue."""
    # Import late: the plugin must start fast and needs no fleet.yaml.
    from fleet.model.prices import find_types, known_types
    from fleet.schema.model import SimProvider

    declared = fleet.providers[provider]
    if not isinstance(declared, SimProvider):
        raise TypeError(f"provider {provider!r} is of kind {declared.kind}, not sim")
    own = [pool for pool in fleet.dynamic_pools.values() if pool.provider == provider]
    used = {each.name for pool in own for each in find_types(fleet, pool)}
    names = used.union(known_types(fleet, provider))
    stocks = {
        name: declared.types[name].stock if name in declared.types else None
        for name in sorted(names)
    }
    spot = {f"{name}/spot": each.spot_stock for name, each in declared.types.items() if each.spot}
    return Menu(
        boot=declared.boot,
        types=stocks | dict(sorted(spot.items())),
        create=declared.faults.create,
        never_boots=tuple(declared.faults.never_boots),
    )


class SimCloud:
    """A simulated cloud for both engines. Implements Provider and Registry."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock

    def configure(self, menu: Menu) -> None:
        """Write the menu into the file, so that a creation needs only the path of the file."""
        if load(self.path).menu != menu:
            with changing(self.path) as contents:
                contents.menu = menu

    def create(self, inputs: WorkerInputs, user_data: str = "") -> str:
        """Create a machine and return its id; raises CreationRefused if no machine was created."""
        with changing(self.path) as contents:
            self._check_creation(contents, inputs)
            menu = contents.menu or Menu()
            now = self._clock.now()
            boots = {inputs.type, inputs.image}.isdisjoint(menu.never_boots)
            contents.made += 1
            machine_id = f"sim-{contents.made}"
            contents.machines[machine_id] = SimMachine(
                inputs=inputs,
                created_at=now,
                boots_at=now + timedelta(seconds=menu.boot) if boots else None,
                given=sha256(user_data.encode()).hexdigest() if user_data else "",
            )
        return machine_id

    def read(self, machine_id: str) -> WorkerInputs | None:
        """Return the inputs of a machine; None if the machine does not exist."""
        machine = load(self.path).machines.get(machine_id)
        return machine.inputs if machine else None

    def delete(self, machine_id: str) -> None:
        """Delete a machine. Do nothing if it does not exist."""
        if machine_id in load(self.path).machines:
            with changing(self.path) as contents:
                contents.machines.pop(machine_id, None)

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Write the expiry time of machines, by id. Skip machines that do not exist."""
        with changing(self.path) as contents:
            for each in contents.machines.keys() & set(machines):
                contents.machines[each] = contents.machines[each].altered(expires=until)

    def find(self, key: str, value: str) -> tuple[FoundMachine, ...]:
        """Return the machines on which the label with this key is exactly this value."""
        now = self._clock.now()
        return tuple(
            FoundMachine(
                machine=_machine(machine_id, machine, now),
                architecture=machine.inputs.architecture,
                labels=machine.inputs.labels,
                settings=machine.inputs.settings,
                worker=_worker(machine, now) if _is_booted(machine, now) else None,
            )
            for machine_id, machine in load(self.path).machines.items()
            if machine.inputs.labels.get(key) == value
        )

    def mark(self, machine_id: str, inputs: WorkerInputs) -> None:
        """Add a worker's labels to a machine; raises SourceUnreachable if it does not exist."""
        with changing(self.path) as contents:
            machine = contents.machines.get(machine_id)
            if machine is None:
                raise SourceUnreachable(f"{self.path}: there is no machine {machine_id!r}")
            made_from = machine.inputs.altered(labels=machine.inputs.labels | inputs.labels)
            contents.machines[machine_id] = machine.altered(inputs=made_from)

    def list(self, fleet: str) -> Listing | Unknown:
        """Return this fleet's machines, and the workers that have registered on them."""
        now = self._clock.now()
        try:
            contents = load(self.path)
        except FleetError as error:
            return Unknown.of(error)
        ours = sorted(
            (
                (machine_id, machine)
                for machine_id, machine in contents.machines.items()
                if machine.inputs.labels.get("fleet") == fleet
            ),
            key=lambda each: each[1].inputs.name,
        )
        return Listing(
            read_at=now,
            machines=tuple(_machine(machine_id, machine, now) for machine_id, machine in ours),
            notes_expiry=True,
            workers=tuple(
                _worker(machine, now) for _, machine in ours if _is_booted(machine, now)
            ),
        )

    def console(self, machine_id: str) -> str:
        """Return the console output of a simulated machine."""
        machine = load(self.path).machines.get(machine_id)
        if machine is None:
            raise SourceUnreachable(f"there is no machine {machine_id}")
        inputs, now = machine.inputs, self._clock.now()
        lines = [f"[    0.000000] {inputs.name}: {inputs.type}, image {inputs.image}"]
        if _is_booted(machine, now):
            lines.append("[    1.000000] its worker has registered")
        elif machine.boots_at is None:
            lines.append("[    1.000000] Kernel panic - not syncing: faults.never_boots names it")
        return "\n".join(lines) + "\n"

    def assign(self, machine: str, request: str | None) -> None:
        """Assign a request to the worker on a machine. None ends the worker's current request."""

        def assign(worker: Worker, now: datetime) -> Worker:
            if worker.running not in (None, request):
                worker = transitions.end_work(worker, now)
            if request is None:
                return worker
            return transitions.start_work(worker, request, None, now)

        self._change_worker(machine, assign)

    def drain(self, worker: str) -> None:
        """Drain a worker, so that it gets no new work."""
        self._change_worker(worker, partial(transitions.set_draining, draining=True))

    def resume(self, worker: str) -> None:
        """Resume a drained worker."""
        self._change_worker(worker, partial(transitions.set_draining, draining=False))

    def disable(self, worker: str) -> None:
        """Disable a worker permanently; raises WorkerBusy while the worker runs a request."""

        def disable_idle(each: Worker, now: datetime) -> Worker:
            if each.running:
                raise WorkerBusy(f"worker {worker} runs {each.running}; it was not disabled")
            is_off = each.state is WorkerState.DISABLED
            return each if is_off else each.altered(state=WorkerState.DISABLED, since=now)

        self._change_worker(worker, disable_idle)

    def revoke(self, worker: str) -> None:
        """Revoke the token of a worker; raises WorkerBusy if the worker has already registered."""
        now = self._clock.now()

        def take_back(machine: SimMachine) -> Mapping[str, object]:
            if _is_booted(machine, now):
                raise WorkerBusy(f"worker {worker} has registered meanwhile; it was not revoked")
            return {"revoked": True}

        self._set(worker, take_back)

    def release(self, worker: str) -> None:
        """Do nothing, because a worker is deleted with its machine."""

    def confirm(self, tell: Tell) -> None:
        """Do nothing, because changes of these workers have an immediate effect."""

    def _change_worker(self, name: str, change: Callable[[Worker, datetime], Worker]) -> None:
        """Record a change of a worker's state."""
        now = self._clock.now()

        def record(machine: SimMachine) -> Mapping[str, object]:
            after = change(_worker(machine, now), now)
            return {
                "running": after.running,
                "uses": after.uses,
                "since": after.since,
                "draining": after.draining,
                "drained_at": None,
                "disabled": machine.disabled or after.state is WorkerState.DISABLED,
            }

        self._set(name, record)

    def _set(self, name: str, update: Callable[[SimMachine], Mapping[str, object]]) -> None:
        with changing(self.path) as contents:
            for machine_id, machine in contents.machines.items():
                if machine.inputs.name == name:
                    contents.machines[machine_id] = machine.altered(**update(machine))
                    return
        raise SourceUnreachable(f"{self.path}: no machine is named {name!r}")

    def _check_creation(self, contents: Contents, inputs: WorkerInputs) -> None:
        menu = contents.menu
        same = [each for each in contents.machines.values() if each.inputs.name == inputs.name]
        kind = _stock_key(inputs)
        made = sum(_stock_key(each.inputs) == kind for each in contents.machines.values())
        if menu is None:
            problem = f"{self.path} has no menu; run `fleet apply`, which writes it"
        elif same:
            problem = f"uniqueness_error: the name {inputs.name!r} is already used"
        elif menu.create:
            problem = f"{_FAULTS[menu.create].format(kind)} (faults.create is {menu.create})"
        elif kind not in menu.types:
            problem = f"invalid_input: type {kind!r} is not sold; " + ", ".join(menu.types)
        elif (stock := menu.types[kind]) is not None and made >= stock:
            problem = f"resource_unavailable: {kind}: {made} of {stock} exist"
        else:
            return
        raise CreationRefused(f"{inputs.name}: {problem}")


def _stock_key(inputs: WorkerInputs) -> str:
    """Return the key of a stock in the menu: the type, with `/MARKET` unless on demand."""
    market = inputs.settings.get("market", "on-demand")
    return inputs.type if market == "on-demand" else f"{inputs.type}/{market}"


def _is_booted(machine: SimMachine, now: datetime) -> bool:
    boots_at = None if machine.revoked else machine.boots_at
    return boots_at is not None and boots_at <= now


def _machine(machine_id: str, machine: SimMachine, now: datetime) -> Machine:
    inputs = machine.inputs
    made = transitions.create_machine(
        inputs, inputs.labels.get("pool", ""), machine_id, machine.created_at
    )
    # The state is not `boot`, since a simulated machine has no port that can be checked.
    state = MachineState.RUNNING if _is_booted(machine, now) else MachineState.STARTING
    return made.altered(expires=machine.expires, state=state)


def _worker(machine: SimMachine, now: datetime) -> Worker:
    busy = WorkerState.BUSY if machine.running else WorkerState.IDLE
    waits_to_go = machine.draining and not (machine.running or machine.disabled)
    return Worker(
        name=machine.inputs.name,
        machine=machine.inputs.name,
        pool=machine.inputs.labels.get("pool"),
        state=WorkerState.DISABLED if machine.disabled else busy,
        draining=machine.draining,
        running=machine.running,
        uses=machine.uses,
        provides=tuple(machine.inputs.settings.get("provides", "").split()),
        requires=tuple(machine.inputs.settings.get("requires", "").split()),
        since=(machine.drained_at if waits_to_go else None) or machine.since or machine.boots_at,
        last_seen=now,
    )
