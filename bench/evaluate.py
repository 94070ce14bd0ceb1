"""Let a queue run on what a policy buys, and count waits and money.

Everything waits at the start. Each run, `cadence` apart, the policy says how many machines to make
in each pool, as long as something waits. A machine boots, then takes the first request in the
queue's order (priority, age, id) that fits it, one at a time, for exactly its expected duration.
One without work for `retire.idle_after` goes in the next run. A machine costs its price from the
start or its creation until it goes, at least a minute: the same for every policy.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from time import perf_counter

from bench.worlds import Box, Scene, pool_of, type_of
from fleet.model.facts import Request
from fleet.model.prices import price_of_type
from fleet.tagrules.offers import Matcher, ask_of_tags, offer_of_pool

LEAST_PAID = 60
PATIENCE = 24
"""After so many runs in which nothing begins although nothing runs, the rest never will."""


@dataclass(frozen=True)
class Site:
    """What does not change while a queue runs: prices, and which pools fit which request."""

    prices: Mapping[str, float]
    fits: Mapping[str, tuple[str, ...]]
    """Request to the pools that fit it, the cheapest first."""


@dataclass(frozen=True)
class Outcome:
    """What came of a policy."""

    cost: float
    waits: tuple[float, ...]
    """Seconds that each request waited from the start, sorted."""
    unserved: int
    made: int
    slowest: float
    """Seconds that the longest decision took."""

    @property
    def p95_wait(self) -> float:
        """Return what 95 of 100 served requests waited at most, in seconds."""
        return self.waits[max(0, -(-95 * len(self.waits) // 100) - 1)] if self.waits else 0.0


Policy = Callable[[Site, Scene], Mapping[str, int]]
"""Says how many machines to make in each pool."""


def site_of(scene: Scene) -> Site:
    """Return what stays the same in a scene."""
    fleet = scene.fleet
    offers = Matcher({name: offer_of_pool(fleet, name, ()) for name in fleet.pools})
    prices = {name: _price(scene, name) for name in fleet.pools}
    fits = {}
    for request in scene.requests:
        able = offers.fitting(ask_of_tags(fleet, request.required, request.provided))
        fits[request.id] = tuple(sorted(able, key=lambda name: (prices[name], name)))
    return Site(prices, fits)


def queue_order(request: Request) -> tuple[int, datetime | None, int]:
    """Return a request's place in the order of service."""
    return (-request.priority, request.pending_since, int(request.id))


def evaluate(scene: Scene, policy: Policy) -> Outcome:
    """Let the queue run until all that can be served has begun."""
    site = site_of(scene)
    run = _Run(scene, site)
    began, slowest, still = scene.time, 0.0, 0
    while run.waiting and still < PATIENCE:
        now = run.scene()
        at = perf_counter()
        wanted = policy(site, now)
        slowest = max(slowest, perf_counter() - at)
        run.make(wanted)
        before = run.waiting
        run.advance()
        stuck = run.waiting == before and not run.busy
        still = still + 1 if stuck else 0
    return Outcome(
        cost=run.cost(),
        waits=tuple(sorted((at - began).total_seconds() for at in run.begun)),
        unserved=len(scene.requests) - len(run.begun),
        made=run.made,
        slowest=slowest,
    )


class _Run:
    """The state of a queue while it runs."""

    def __init__(self, scene: Scene, site: Site) -> None:
        self._start = scene
        self._site = site
        self._now = scene.time
        self._step = timedelta(seconds=scene.fleet.cadence)
        self._queue = _Queue(scene.requests, site)
        self._boxes = {box.name: box for box in scene.boxes}
        self._gone: list[tuple[Box, datetime]] = []
        self.begun: list[datetime] = []
        self.made = 0

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Say whether any work is going on."""
        return any(box.runs and box.until > self._now for box in self._boxes.values())

    def scene(self) -> Scene:
        """Return what there is now."""
        requests = tuple(self._queue)
        return replace(
            self._start, time=self._now, requests=requests, boxes=tuple(self._boxes.values())
        )

    def make(self, wanted: Mapping[str, int]) -> None:
        """Begin to boot what a policy wants."""
        for name, count in sorted(wanted.items()):
            boot = timedelta(seconds=pool_of(self._start.fleet, name).boot.expected)
            for _ in range(count):
                self.made += 1
                ready = self._now + boot
                box = Box(f"bench-{name}-n{self.made}", name, self._now, ready, ready)
                self._boxes[box.name] = box

    def advance(self) -> None:
        """Let everything happen until the next run."""
        end = self._now + self._step
        free = [(max(box.until, self._now), box.name) for box in self._boxes.values()]
        heapify(free)
        while free and free[0][0] < end:
            at, name = heappop(free)
            box = self._boxes[name]
            request = self._queue.take(box.pool)
            if request is not None:
                self.begun.append(at)
                until = at + timedelta(seconds=request.expected_seconds or 0)
                self._boxes[name] = replace(box, runs=request, until=until)
                heappush(free, (until, name))
        self._now = end
        for box in list(self._boxes.values()):
            if box.until + self._patience(box) <= end:
                self._gone.append((box, end))
                del self._boxes[box.name]

    def cost(self) -> float:
        """Return what every machine costs until it goes."""
        last = [
            (box, self._next_run(box.until + self._patience(box))) for box in self._boxes.values()
        ]
        total = 0.0
        for box, end in (*self._gone, *last):
            paid = (end - max(box.created, self._start.time)).total_seconds()
            total += self._site.prices[box.pool] * max(LEAST_PAID, paid) / 3600
        return total

    def _patience(self, box: Box) -> timedelta:
        return timedelta(seconds=pool_of(self._start.fleet, box.pool).retire.idle_after)

    def _next_run(self, moment: datetime) -> datetime:
        runs = -(-(moment - self._start.time) // self._step)
        return self._start.time + runs * self._step


class _Queue:
    """What waits, so that a machine finds the first that fits it quickly."""

    def __init__(self, requests: Iterable[Request], site: Site) -> None:
        self._kinds: defaultdict[tuple[str, ...], deque[Request]] = defaultdict(deque)
        self._of_pool: defaultdict[str, list[deque[Request]]] = defaultdict(list)
        for request in sorted(requests, key=queue_order):
            if site.fits[request.id]:
                self._kinds[site.fits[request.id]].append(request)
        for pools, kind in self._kinds.items():
            for pool in pools:
                self._of_pool[pool].append(kind)

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted((r for kind in self._kinds.values() for r in kind), key=queue_order))

    def take(self, pool: str) -> Request | None:
        """Take out the first request that fits a pool; None when none waits."""
        kinds = [kind for kind in self._of_pool[pool] if kind]
        return min(kinds, key=lambda kind: queue_order(kind[0])).popleft() if kinds else None


def _price(scene: Scene, name: str) -> float:
    pool = pool_of(scene.fleet, name)
    price = price_of_type(scene.fleet, pool.provider, type_of(pool))
    if price is None:
        raise ValueError(f"an invented pool has a price: {name}")
    return float(price)
