"""Invent fleets and queues for `bench.reconcile`, always the same for a seed.

Pools: one architecture each (amd64 most often), 2 to 48 cores, at 0.7 to 1.6 times 0.03 EUR per
core and hour, so that several fit a request at different prices. All build; six in ten test, four
in ten also check installing. One in five works for one scope only; one in ten is powerful: on
demand and exclusive. Machines boot in 1 to 8 minutes. Half of the pools have a target_wait.

Requests: three scopes, five priorities, expected durations log-normal around 15 minutes from one
minute to 20 hours, a minimum of memory in one of five, one in fifty asks for a powerful machine.
All that a signature has in common is drawn once; requests share it unevenly, as packages do.

Workers: seven in ten busy and in the middle of their work, two idle, one booting.

A limited fleet holds each pool to a few machines and a budget per hour, powerful machines to a
number in all and per submitter, and a scope to money per day.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from fleet.model.facts import (
    Demand,
    Ledger,
    Listing,
    Machine,
    MachineState,
    QueueReading,
    Request,
    Stack,
    Work,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.schema.model import Fleet, Pool

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
QUEUE = "debian"
SHORTEST, LONGEST = 60, 20 * 3600
ARCHITECTURES = ("amd64", "arm64", "riscv64", "ppc64el", "s390x", "armhf", "i386", "loong64")
TASKS = {"sbuild": 1.0, "autopkgtest": 0.6, "piuparts": 0.4}
"""Task to the share of pools that run it."""
SCOPES = ("debian", "kali", "pardus")
POWERFUL = "worker:class:powerful"
MOST_WORKERS = 10_000
"""What the pools of a limited fleet may hold in all, about."""
PRIORITIES = (0, 0, 0, 0, 10, 10, 50, -10, -10, 200)


@dataclass(frozen=True)
class Size:
    """What is invented: how much of each, and whether limits hold."""

    requests: int
    signatures: int
    pools: int
    workers: int
    limited: bool = False
    seed: int = 7

    def __str__(self) -> str:
        """Return the sizes in words."""
        kind = "limited" if self.limited else "unlimited"
        return (
            f"{self.requests} requests in {self.signatures} signatures, {self.pools} pools, "
            f"{self.workers} workers, seed {self.seed}, {kind}"
        )


@dataclass(frozen=True)
class Box:
    """One machine and what it runs; it gives work from `ready` on, and is free from `until`."""

    name: str
    pool: str
    created: datetime
    ready: datetime
    until: datetime
    """When its work ends, or ended; when it became ready where it has had none."""
    runs: Request | None = None


@dataclass(frozen=True)
class Scene:
    """A fleet and what happens around it at one time."""

    fleet: Fleet
    time: datetime
    requests: tuple[Request, ...]
    boxes: tuple[Box, ...]


def scene_of(size: Size) -> Scene:
    """Return the invented fleet, queue and workers of this size."""
    chance, document = _begun(size)
    fleet = Fleet.model_validate(document)
    architectures = _architectures(size.pools)
    signatures = [_signature(chance, architectures, n) for n in range(size.signatures)]
    shares = [1 / (1 + n % 97) for n in range(size.signatures)]
    drawn = [*signatures, *chance.choices(signatures, shares, k=size.requests - size.signatures)]
    waiting = [_request(chance, signature, n) for n, signature in enumerate(drawn)]
    boxes = _boxes(chance, fleet, signatures, size.workers)
    return Scene(fleet, NOW, tuple(waiting), boxes)


def document_of(size: Size) -> dict[str, object]:
    """Return the same fleet as fleet.yaml says it."""
    return _begun(size)[1]


def _begun(size: Size) -> tuple[random.Random, dict[str, object]]:
    chance = random.Random(size.seed)  # noqa: S311 - the same world in every run
    return chance, _fleet(chance, size)


def with_target_wait(scene: Scene, seconds: int | None) -> Scene:
    """Return the same scene where work of every pool may wait this long."""
    pools = {
        name: pool.model_copy(update={"target_wait": seconds})
        for name, pool in scene.fleet.pools.items()
    }
    return replace(scene, fleet=scene.fleet.model_copy(update={"pools": pools}))


def world_of(scene: Scene) -> World:
    """Return what is observed of a scene."""
    providers: dict[str, list[Box]] = {name: [] for name in scene.fleet.providers}
    stacks: dict[str, list[Box]] = {name: [] for name in scene.fleet.pools}
    for box in scene.boxes:
        pool = pool_of(scene.fleet, box.pool)
        providers[pool.provider].append(box)
        stacks[box.pool].append(box)
    demand = Demand(read_at=scene.time, requests=scene.requests)
    workers = tuple(_worker(box, scene.time) for box in scene.boxes if box.ready <= scene.time)
    return World(
        fleet=scene.fleet.fleet,
        time=scene.time,
        queues={QUEUE: QueueReading(demand=demand, workers=workers)},
        providers={
            name: Listing(
                read_at=scene.time,
                machines=tuple(_machine(scene, box) for box in boxes),
            )
            for name, boxes in providers.items()
        },
        stacks={name: _stack(scene.fleet, name, boxes) for name, boxes in stacks.items() if boxes},
        ledger=Ledger(charged_until=scene.time),
    )


def grouped(scene: Scene) -> Scene:
    """Return the same scene as SQL tells it: alike requests as one, with their count."""
    alike: defaultdict[tuple[object, ...], list[Request]] = defaultdict(list)
    for request in scene.requests:
        key = (request.task, request.required, request.provided, request.priority)
        alike[*key, request.expected_seconds, request.requester, request.scope].append(request)
    requests = (
        min(each, key=lambda r: (r.pending_since or NOW, r.id)).model_copy(
            update={"count": len(each)}
        )
        for each in alike.values()
    )
    return replace(scene, requests=tuple(requests))


def pool_of(fleet: Fleet, name: str) -> Pool:
    """Return a pool that machines are made for."""
    pool = fleet.pools[name]
    if not isinstance(pool, Pool):
        raise TypeError(name)
    return pool


def type_of(pool: Pool) -> str:
    """Return the name of the only machine type of an invented pool."""
    if not isinstance(pool.machine, str):
        raise TypeError(pool.machine)
    return pool.machine


def _architectures(pools: int) -> Sequence[str]:
    return ARCHITECTURES[: max(1, min(len(ARCHITECTURES), pools // 5))]


def _fleet(chance: random.Random, size: Size) -> dict[str, object]:
    architectures = _architectures(size.pools)
    types: dict[str, dict[str, object]] = {"near": {}, "far": {}}
    pools = {}
    for number in range(size.pools):
        # The first pools are one for each architecture: everything can be built somewhere.
        general = number < len(architectures)
        others = (*architectures, *["amd64"] * (len(architectures) // 2))
        architecture = architectures[number] if general else chance.choice(others)
        cores = 48 if general else chance.choice((2, 4, 8, 16, 32, 48))
        provider = chance.choice(sorted(types))
        price = round(cores * 0.03 * chance.uniform(0.7, 1.6), 4)
        types[provider][f"m{number}"] = {
            "cores": cores,
            "memory": f"{cores * 4}GiB",
            "disk": "160GiB",
            "price": f"{price} EUR/h",
            "architecture": architecture,
        }
        made = {"provider": provider, "machine": f"m{number}", "image": architecture}
        pools[f"pool-{number:03}"] = made | _pool(chance, size, number, price)
    fleet: dict[str, object] = {
        "fleet": "bench",
        "cadence": "5m",
        "providers": {name: {"kind": "sim", "types": own} for name, own in types.items()},
        "queues": {QUEUE: {"kind": "world", "path": "world.json"}},
        "images": {
            name: {"suite": "trixie", "architecture": name} for name in sorted(set(architectures))
        },
        "tags": {
            "memory_gib": {"kind": "number"},
            POWERFUL: {"on_demand": True, "exclusive": True} | _limits(size),
        },
        "pools": pools,
        # Guards hold back what allocation asks for, which is what is measured.
        "guards": {
            "throttle": {
                "create": {"share": "100%", "free_below": 100_000, "count": 100_000},
                "delete": {"count": 100_000},
            }
        },
    }
    if size.limited:
        fleet["budgets"] = {"kali": {"scope": "kali", "per_day": f"{size.requests // 10} EUR"}}
    return fleet


def _limits(size: Size) -> dict[str, object]:
    if not size.limited:
        return {}
    return {"limits": {"total": max(2, size.pools // 4), "per": {"submitter": 2}}}


def _most(size: Size) -> int:
    """Return what a limited pool may hold: a third of what waits, or twice what there is."""
    waiting = min(size.requests // (3 * size.pools), MOST_WORKERS // size.pools)
    return max(2, waiting, 2 * size.workers // size.pools)


def _pool(chance: random.Random, size: Size, number: int, price: float) -> dict[str, object]:
    general = number < len(_architectures(size.pools))
    tasks = [task for task, share in TASKS.items() if general or chance.random() < share]
    powerful = not general and number % 10 == 9  # noqa: PLR2004 - one in ten
    own_scope = not general and not powerful and chance.random() < 0.2  # noqa: PLR2004 - one in five
    most = _most(size) if size.limited else size.requests
    pool: dict[str, object] = {
        "provides": [
            *(f"worker:task:worker:{task}:version:1" for task in tasks),
            *([POWERFUL] if powerful else []),
        ],
        "requires": [f"task:scope:{chance.choice(SCOPES)}"] if own_scope else [],
        "workers": {"max": most},
        "boot": {"expected": f"{chance.randint(60, 480)}s"},
    }
    wait = chance.choice((None, None, "30m", "2h"))
    if wait and not powerful:
        pool["target_wait"] = wait
    if size.limited and chance.random() < 0.3:  # noqa: PLR2004 - three in ten
        pool["budget"] = {"per_hour": f"{round(price * most * 0.7 + price, 2)} EUR"}
    return pool


@dataclass(frozen=True)
class _Signature:
    task: str
    required: tuple[str, ...]
    provided: tuple[str, ...]
    scope: str
    package: str
    requester: str
    priority: int
    seconds: int


def _signature(chance: random.Random, architectures: Sequence[str], number: int) -> _Signature:
    architecture = chance.choice((*architectures, *["amd64"] * len(architectures)))
    task = chance.choice(("sbuild", "sbuild", "sbuild", "autopkgtest", "piuparts"))
    scope = chance.choice((*SCOPES, "debian", "debian"))
    powerful = chance.random() < 0.02  # noqa: PLR2004 - one in fifty
    seconds = chance.lognormvariate(6.8, 1.3) * (8 if powerful else 1)
    required = [f"worker:build-arch:{architecture}", f"worker:task:worker:{task}:version:1"]
    if powerful:
        required.append(POWERFUL)
    elif chance.random() < 0.2:  # noqa: PLR2004 - one in five
        required.append(f"memory_gib>={chance.choice((16, 32, 64, 128))}")
    package = f"package{number}"
    return _Signature(
        task=task,
        required=tuple(required),
        provided=(f"task:scope:{scope}", f"task:source-package:{package}"),
        scope=scope,
        package=package,
        requester=f"user{chance.randrange(40)}",
        priority=chance.choice(PRIORITIES),
        seconds=int(min(max(seconds, SHORTEST), LONGEST)) // 60 * 60,
    )


def _request(chance: random.Random, signature: _Signature, number: int) -> Request:
    return Request(
        id=str(100_000 + number),
        task=signature.task,
        required=signature.required,
        provided=signature.provided,
        priority=signature.priority,
        pending_since=NOW - timedelta(seconds=chance.randrange(3600)),
        expected_seconds=signature.seconds,
        requester=signature.requester,
        scope=signature.scope,
        package=signature.package,
    )


def _boxes(
    chance: random.Random, fleet: Fleet, signatures: Sequence[_Signature], count: int
) -> tuple[Box, ...]:
    """Return machines of pools that are not on demand, as far as each has room."""
    names = [name for name in sorted(fleet.pools) if POWERFUL not in pool_of(fleet, name).provides]
    room = {name: pool_of(fleet, name).workers.max for name in names}
    boxes = []
    for number in range(count):
        name = chance.choice(names)
        room[name] -= 1
        if not room[name]:
            names.remove(name)
        boxes.append(_box(chance, fleet, name, number, chance.choice(signatures)))
    return tuple(boxes)


def _box(
    chance: random.Random, fleet: Fleet, pool: str, number: int, signature: _Signature
) -> Box:
    boot = timedelta(seconds=pool_of(fleet, pool).boot.expected)
    name = f"bench-{pool}-w{number}"
    state = chance.random()
    if state < 0.1:  # noqa: PLR2004 - one in ten boots
        created = NOW - boot * chance.random()
        return Box(name, pool, created, created + boot, created + boot)
    created = NOW - boot - timedelta(seconds=chance.randrange(60, 7200))
    if state < 0.3:  # noqa: PLR2004 - two in ten are idle
        return Box(name, pool, created, created + boot, NOW - timedelta(seconds=60))
    running = replace(signature, priority=0)
    began = NOW - timedelta(seconds=chance.randrange(running.seconds))
    return Box(
        name,
        pool,
        min(created, began - boot),
        min(created + boot, began),
        began + timedelta(seconds=running.seconds),
        _request(chance, running, 10_000_000 + number),
    )


def _machine(scene: Scene, box: Box) -> Machine:
    pool = pool_of(scene.fleet, box.pool)
    return Machine(
        name=box.name,
        id=f"id-{box.name}",
        pool=box.pool,
        type=type_of(pool),
        state=MachineState.RUNNING if box.ready <= scene.time else MachineState.STARTING,
        created_at=box.created,
        image=pool.image,
    )


def _worker(box: Box, now: datetime) -> Worker:
    runs = box.runs if box.until > now else None
    return Worker(
        name=box.name,
        machine=box.name,
        pool=box.pool,
        state=WorkerState.BUSY if runs else WorkerState.IDLE,
        running=runs.id if runs else None,
        work=_work(runs, box.until) if runs else None,
        since=now if runs else box.until,
        last_seen=now,
    )


def _work(runs: Request, until: datetime) -> Work:
    seconds = runs.expected_seconds or 0
    return Work(
        task=runs.task,
        required=runs.required,
        started_at=until - timedelta(seconds=seconds),
        expected_seconds=seconds,
        requester=runs.requester,
        scope=runs.scope,
    )


def _stack(fleet: Fleet, name: str, boxes: Iterable[Box]) -> Stack:
    pool = pool_of(fleet, name)
    names = sorted(box.name for box in boxes)
    return Stack(
        engine="embedded",
        provider=pool.provider,
        serial=1,
        workers=tuple(
            WorkerInputs(
                name=worker, type=type_of(pool), image=pool.image, architecture=pool.image
            )
            for worker in names
        ),
        ids={worker: f"id-{worker}" for worker in names},
    )
