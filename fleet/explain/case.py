"""The explained run: names of requests, starts, and values that several explanations use."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import groupby

from fleet.explain.given import GivenRules
from fleet.explain.options import OptionFinder, way_of
from fleet.explain.what_if import PlannedRun
from fleet.model.facts import Request
from fleet.model.plan import Create, Signature, WorkerVerdict
from fleet.planner.costs import Way
from fleet.planner.demand import ordered
from fleet.planner.forecast import Class, list_postponed, registered_workers
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.planner.units import UnitState
from fleet.schema.model import WorldQueue
from fleet.tagrules.names import names_of, package_of
from fleet.tagrules.sources import Claim, Enforcement, Enforcer, enforcement_of, weakest
from fleet.tagrules.vocabulary import tag_name


class Case(PlannedRun):
    """The run of `fleet apply` to explain, with cached values that several explanations use."""

    @cached_property
    def line(self) -> dict[str, tuple[int, int]]:
        """Map each request without a machine to the number of requests that are served first.

        The second number counts those of higher priority. Requests that fit none of its pools do
        not count.
        """
        requests = sorted(
            each
            for queue, demand in self.world.demands()
            for request in demand.requests
            for each in ordered(queue, request)
            if each.key in self.unserved and each.key in self.signatures
        )
        found: dict[str, tuple[int, int]] = {}
        counts: Counter[tuple[str, ...]] = Counter()
        for _, alike in groupby(requests, lambda each: self.signatures[each.key].priority):
            before = counts.copy()
            for each in alike:
                pools = self.signatures[each.key].pools
                rivals = [other for other in counts if not set(pools).isdisjoint(other)]
                higher = sum(before[other] for other in rivals)
                found[each.key] = (sum(counts[other] for other in rivals), higher)
                counts[pools] += 1
        return found

    @cached_property
    def postponed(self) -> list[Create]:
        """Return the machines for requests that a throttle postpones to later runs."""
        return list_postponed(self.plan)

    @cached_property
    def given(self) -> GivenRules:
        """Return the finder of the allow-list rules that apply to builds."""
        return GivenRules(self.fleet, self.world.time.date())

    @cached_property
    def verdicts(self) -> dict[str, WorkerVerdict]:
        """Map the name of each worker to the plan's decision about it."""
        return {each.worker: each for each in self.plan.workers}

    @cached_property
    def packages(self) -> dict[str, str]:
        """Map each worker to the package that it builds; only known packages."""
        works = registered_workers(self.fleet, self.world).items()
        return {name: each.work.package for name, each in works if each.work and each.work.package}

    def named(self, name: str) -> list[str]:
        """Return the request with this id, or else all requests of the package with this name."""
        keys = [key for signature in self.plan.signatures for key in signature.requests]
        for is_meant in _IDS:
            if meant := [key for key in keys if is_meant(key, name)]:
                return meant
        return [key for key in keys if (found := self.find(key)) and _is_about(found[0], name)]

    @cached_property
    def options(self) -> OptionFinder:
        """Return the object that finds the machines that could run a request."""
        return OptionFinder(self.fleet, self.world)

    @cached_property
    def inhabited(self) -> frozenset[str]:
        """Return the pools that have machines, or for which the next apply creates some."""
        return frozenset(each.pool for each in self.plan.pools if each.machines or each.create)

    @cached_property
    def created(self) -> dict[str, Way]:
        """Map each worker that the plan creates to the pool, type and market of its machine."""
        return {
            each.worker: way_of(each) for each in self.plan.actions if isinstance(each, Create)
        }

    @cached_property
    def inventory(self) -> dict[str, PoolInventory]:
        """Map each pool to its machines, and to the reasons why machines are unknown."""
        return take_inventory(self.fleet, self.world)

    @cached_property
    def seen(self) -> frozenset[str]:
        """Return the workers that a provider or queue lists, not those that only a stack has."""
        unseen = {unit.name for pool in self.inventory.values() for unit in pool.unseen}
        return frozenset(each.worker for each in self.plan.workers) - unseen

    def worker_of(self, signature: Signature, key: str) -> str | None:
        """Return the existing worker assigned to a request; None if there is no such worker."""
        worker = signature.by_worker.get(key)
        return None if worker in self._uncreated_workers else worker

    @cached_property
    def _uncreated_workers(self) -> frozenset[str]:
        """Return the workers whose creation `fleet apply` has started but that have no machine."""
        return frozenset(
            unit.name
            for pool in self.inventory.values()
            for unit in pool.having(UnitState.UNFINISHED)
            if unit.machine is None
        )

    @cached_property
    def enforcement(self) -> tuple[Enforcement, ...]:
        """Return the enforcer of each tag, exclusivity and limit."""
        return enforcement_of(self.fleet)

    @cached_property
    def classes(self) -> dict[Class, Counter[str]]:
        """Map each class of interchangeable workers to the number of workers per state."""
        states = {each.worker: each.state for each in self.plan.workers}
        found: defaultdict[Class, Counter[str]] = defaultdict(Counter)
        for worker in self.forecast.standing.values():
            found[worker.alike][states[worker.name]] += 1
        return found

    def enforcer(self, tags: Iterable[str], claim: Claim, queue: str) -> Enforcer | None:
        """Return the weakest enforcer of a claim about these tags; None for a recorded queue."""
        if isinstance(self.fleet.queues.get(queue), WorldQueue):
            # A recording assigns no work, so it does not enforce tags.
            return None
        names = {tag_name(tag) for tag in tags}
        found = [
            each.by
            for each in self.enforcement
            if each.tag in names and each.claim == claim and each.queue == queue
        ]
        # The queue itself enforces tags that fleet.yaml neither declares nor provides.
        return weakest(found) or "scheduler"


def _is_first_of(key: str, name: str) -> bool:
    whole = key.removesuffix("#1")
    return whole != key and name in (whole, whole.partition("/")[2])


def _is_about(request: Request, name: str) -> bool:
    return bool(name) and name in (package_of(request), *names_of(request))


_IDS: tuple[Callable[[str, str], bool], ...] = (
    str.__eq__,
    lambda key, name: key.partition("/")[2] == name,
    _is_first_of,
)
"""Tests whether a request has a name, in this order: `queue/id`, id, id of a group."""
