"""A small world that a test moves: two clouds, a queue, a store and a clock.

`Farm` looks and acts through the real `observe` and `apply`; only what is outside of the program
is simulated, and it can go blind, run out of stock, lose machines, or be killed in the middle.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fleet.apply.observe import Sources, observe
from fleet.apply.run import apply_plan, settle_accounts
from fleet.errors import WorkerBusy
from fleet.guard import guard
from fleet.model.facts import (
    Listing,
    Machine,
    MachineState,
    Request,
    Stack,
    Unknown,
    Work,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.model.history import Outcome
from fleet.model.plan import Create, Plan
from fleet.planner.inventory import take_inventory
from fleet.ports import StackRef, Tell
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet, Pool
from tests.builders import NOW, a_request
from tests.builders.stores import new_store
from tests.fakes.engine import FakeEngine, Killed
from tests.fakes.queue import FakeQueue
from tests.fakes.source_reader import FakeSourceReader

CLOUDS = ("desk", "shed")
QUEUE = "debian"
_DARK = Unknown(unknown="no answer")


@dataclass
class Made:
    """A machine that exists, and the worker on it once that has registered."""

    cloud: str
    inputs: WorkerInputs
    created_at: datetime
    boots: bool = True
    revoked: bool = False
    disabled: bool = False
    draining: bool = False
    idle_since: datetime | None = None
    """Since when its worker is registered, or idle again; None: it never registered."""
    request: Request | None = None
    """What it runs."""
    uses: int = 0

    @property
    def name(self) -> str:
        """Return the name of machine and worker."""
        return self.inputs.name

    @property
    def pool(self) -> str:
        """Return the pool that its label names."""
        return self.inputs.labels["pool"]

    @property
    def is_registered(self) -> bool:
        """Say whether its worker has registered."""
        return self.idle_since is not None

    @property
    def is_ready(self) -> bool:
        """Say whether its worker would be given work now."""
        return self.is_registered and not (self.disabled or self.draining or self.request)


class Engine(FakeEngine):
    """The written engine, whose record of a pool may be unreadable."""

    def __init__(self) -> None:
        super().__init__()
        self.dark: set[str] = set()

    def read(self, ref: StackRef) -> Stack | None:
        """Return the stack as recorded."""
        return _DARK if ref.pool in self.dark else super().read(ref)  # type: ignore[return-value]  # as the port allows


class Cloud:
    """One provider: it lists the machines there, and their workers register with it."""

    def __init__(self, farm: "Farm", name: str) -> None:
        self._farm = farm
        self._name = name

    def list(self, fleet: str) -> Listing | Unknown:
        """Return what is there, unless it is blind."""
        farm = self._farm
        if self._name in farm.blind:
            return _DARK
        here = [m for m in farm.made.values() if m.cloud == self._name]
        assert all(made.inputs.labels["fleet"] == fleet for made in here)
        return Listing(
            read_at=farm.now,
            machines=tuple(map(_machine, here)),
            workers=tuple(_worker(farm, made) for made in here if made.is_registered),
        )

    def drain(self, worker: str) -> None:
        """Give a worker nothing new."""
        self._farm.burn()
        self._farm.made[worker].draining = True

    def resume(self, worker: str) -> None:
        """Give a worker work again."""
        self._farm.burn()
        self._farm.made[worker].draining = False

    def disable(self, worker: str) -> None:
        """Switch a worker off for good; refused while it runs something."""
        self._farm.burn()
        made = self._farm.made.get(worker)
        if made is None:
            return
        if made.request:
            raise WorkerBusy(f"{worker} runs request {made.request.id}")
        made.disabled = True

    def revoke(self, worker: str) -> None:
        """Take back a token; refused once the worker has registered."""
        self._farm.burn()
        made = self._farm.made[worker]
        if made.is_registered:
            raise WorkerBusy(f"{worker} has registered after all")
        made.revoked = True

    def release(self, worker: str) -> None:
        """Switch off a worker whose machine is gone."""
        self._farm.burn()
        if worker in self._farm.made:
            self._farm.made[worker].disabled = True

    def confirm(self, tell: Tell) -> None:
        """See that what was told stands; here it does."""


@dataclass
class Run:
    """One run of `fleet apply`: what it saw, decided and did."""

    fleet: Fleet
    world: World
    before: Plan
    """As `reconcile` decided it, without guards."""
    plan: Plan
    there: dict[str, Made]
    """The machines that existed when it began."""
    deleted: dict[str, Made] = field(default_factory=dict)
    """Machines that it deleted, as they were then."""
    outcome: Outcome | None = None
    """None where it was killed."""


class Farm:
    """Everything outside of the program, and the means to run it."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.now = NOW
        self.waiting: dict[str, Request] = {}
        self.made: dict[str, Made] = {}
        self.blind: set[str] = set()
        self.sold_out: set[str] = set()
        """Machine types of which there are none."""
        self.engine = Engine()
        self.store = new_store(fleet.fleet)
        self._fuse: int | None = None
        self._asked = 0

    def sources(self) -> Sources:
        """Return the edges, as a command would wire them."""
        clouds = {name: Cloud(self, name) for name in CLOUDS}
        broken = "no answer" if QUEUE in self.blind else ""
        return Sources(
            asking=FakeSourceReader,
            queues={QUEUE: FakeQueue(*self.waiting.values(), broken=broken)},
            providers=clouds,
            registries=clouds,
            engine_of=lambda _: self.engine,
            store=self.store,
        )

    def observe(self) -> World:
        """Return the world as the program sees it."""
        return observe(self.fleet, self.sources(), self.now)

    def run(self, *, dies_after: int | None = None) -> Run:
        """Run once; killed after so many calls that change something, if any is said."""
        world = self.observe()
        before = reconcile(self.fleet, world)
        run = Run(self.fleet, world, before, guard(self.fleet, before), dict(self.made))
        self._prepare(run.plan, dies_after)
        try:
            sources, inventories = self.sources(), take_inventory(self.fleet, world)
            settle_accounts(self.fleet, world, inventories, sources, lambda _: None)
            run.outcome = apply_plan(self.fleet, world, run.plan, sources, lambda _: None)
        except Killed:
            pass
        finally:
            run.deleted = self._settle()
        return run

    def burn(self) -> None:
        """Count a call that changes something; the process may die of it."""
        if self._fuse is not None:
            self._fuse -= 1
            if self._fuse < 0:
                raise Killed

    def _prepare(self, plan: Plan, dies_after: int | None) -> None:
        creates = [action for action in plan.actions if isinstance(action, Create)]
        self.engine.fails = {a.worker for a in creates if a.inputs.type in self.sold_out}
        self.engine.says = "resource_unavailable: none left"
        able = [a.worker for a in creates if a.worker not in self.engine.fails]
        self._fuse = dies_after
        self.engine.dies_at = None
        if dies_after is not None and able:
            self.engine.dies_at = able[dies_after % len(able)]

    def _settle(self) -> dict[str, Made]:
        """Take over what the engine did to the machines; return what it deleted."""
        self._fuse = None
        deleted = {name: m for name, m in self.made.items() if name not in self.engine.machines}
        for name in deleted:
            del self.made[name]
        for stack in self.engine.stacks.values():
            for inputs in stack.workers:
                if inputs.name in self.engine.machines and inputs.name not in self.made:
                    self.made[inputs.name] = Made(stack.provider, inputs, self.now)
        return deleted

    # what happens

    def pass_time(self, **duration: float) -> None:
        """Let time go by."""
        self.now += timedelta(**duration)

    def ask(self, **said: object) -> Request:
        """Have one more request wait."""
        self._asked += 1
        request = a_request(**({"id": str(self._asked), "pending_since": self.now} | said))
        self.waiting[request.id] = request
        return request

    def boot(self, name: str) -> None:
        """Have the worker of a machine register, if it can."""
        made = self.made[name]
        if made.boots and not made.revoked and not made.is_registered:
            made.idle_since = self.now

    def starts(self) -> Iterator[tuple[str, str]]:
        """Yield who could start what: worker and request, as the queue would match them."""
        for made in self.made.values():
            pool = self.fleet.pools.get(made.pool)
            provides = {*pool.provides} if isinstance(pool, Pool) else set()
            for request in self.waiting.values() if made.is_ready else ():
                if provides >= {*request.required} and ("rare" in provides) == (
                    "rare" in request.required
                ):
                    yield made.name, request.id

    def start(self, worker: str, request: str) -> None:
        """Have a worker run a request."""
        self.made[worker].request = self.waiting.pop(request)
        self.made[worker].idle_since = self.now

    def end(self, worker: str) -> None:
        """Have a worker end what it runs."""
        made = self.made[worker]
        made.request, made.idle_since, made.uses = None, self.now, made.uses + 1

    def vanish(self, name: str) -> None:
        """Have a machine be gone, without anybody having said so."""
        del self.made[name]
        del self.engine.machines[name]

    def forget(self, names: Mapping[str, str]) -> None:
        """Have an operator forget machines that are gone; by name, with their pool."""
        for name, pool in names.items():
            for key, stack in self.engine.stacks.items():
                if name in stack.ids:
                    self.engine.forget(
                        StackRef(project="sim", name=key, provider=stack.provider, pool=pool), name
                    )


def _machine(made: Made) -> Machine:
    return Machine(
        name=made.name,
        id=f"fake-{made.name}",
        pool=made.pool,
        type=made.inputs.type,
        state=MachineState.RUNNING if made.is_registered else MachineState.STARTING,
        created_at=made.created_at,
        image=made.inputs.image,
        digest=made.inputs.labels.get("digest"),
    )


def _worker(farm: Farm, made: Made) -> Worker:
    request = made.request
    busy = WorkerState.BUSY if request else WorkerState.IDLE
    return Worker(
        name=made.name,
        machine=made.name,
        pool=made.pool,
        state=WorkerState.DISABLED if made.disabled else busy,
        draining=made.draining,
        running=request.id if request else None,
        work=_work(request, made) if request else None,
        uses=made.uses,
        since=made.idle_since,
        last_seen=farm.now,
    )


def _work(request: Request, made: Made) -> Work:
    return Work(
        task=request.task,
        required=request.required,
        started_at=made.idle_since,
        expected_seconds=request.expected_seconds,
        requester=request.requester,
        owner=request.owner,
        scope=request.scope,
        team=request.team,
    )
