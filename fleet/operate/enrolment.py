"""This module gives each new machine the token that its worker needs, and lets none lie about.

A worker is enrolled right before its machine is made; what surely was not made has its token
revoked again. What a killed run has enrolled is in its queue's registry, where the next one sees
it. Tokens are nowhere but in the user data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from fleet.census.readiness import is_at_cloud
from fleet.errors import FleetError, PlanRefused, WorkerBusy
from fleet.facts import Listing, Stack, Unknown, World
from fleet.making import swap_of
from fleet.making.user_data import write_swap, write_user_data
from fleet.operate.observe import Sources
from fleet.plan import Action, Create
from fleet.ports import Enrolment
from fleet.schema.model import DebusineQueue, Fleet, Pool
from fleet.tagrules.static import static_tags

APART = 2
"""Seconds between the starts of two workers: connecting at once, Debusine loses what they say."""
MARGIN = timedelta(minutes=10)
"""How much longer a token lives than its machine has to come up: making it takes time too."""


def stagger(actions: Sequence[Action]) -> dict[str, int]:
    """Return how many seconds late each new worker starts, one after the other at each queue."""
    waiting: dict[str, int] = {}
    delays = {}
    for action in actions:
        if isinstance(action, Create) and action.registry is not None:
            delays[action.worker] = waiting.get(action.registry, 0)
            waiting[action.registry] = delays[action.worker] + APART
    return delays


@dataclass
class Enrolled:
    """What was enrolled of a pool's creations."""

    creates: list[Create] = field(default_factory=list)
    """The machines that may be made."""
    user_data: dict[str, str] = field(default_factory=dict, repr=False)
    """Worker to what its machine is given, with its token; empty: it was given one before."""
    refused: list[str] = field(default_factory=list)
    """Why some are not made in this run."""
    troubles: list[str] = field(default_factory=list)
    """What failed; what it is about is not made either."""


@dataclass(frozen=True)
class Enrolling:
    """Enrols the new workers of one run."""

    fleet: Fleet
    world: World
    sources: Sources
    delays: Mapping[str, int]

    def enrol(self, creates: Sequence[Create]) -> Enrolled:
        """Enrol each that needs a token; where a registry fails, those behind are not tried."""
        enrolled = Enrolled()
        listed = self._listed()
        failing: set[str] = set()
        for action in creates:
            if action.registry is None:
                enrolled.creates.append(action)
                if swap := self._swap_at_cloud(action):
                    enrolled.user_data[action.worker] = write_swap(swap)
                continue
            if action.worker in listed:
                # A killed run has made this machine already, and given it a token.
                enrolled.user_data[action.worker] = ""
                enrolled.creates.append(action)
                continue
            if action.registry in failing:
                continue
            try:
                enrolled.user_data[action.worker] = self._user_data(action, action.registry)
            except WorkerBusy as busy:
                enrolled.refused.append(f"{action.worker} is not made: {busy}")
            except FleetError as trouble:
                enrolled.troubles.append(f"{action.worker} is not made: {trouble}")
                if not isinstance(trouble, PlanRefused):
                    failing.add(action.registry)
            else:
                enrolled.creates.append(action)
        return enrolled

    def revoke(
        self, creates: Sequence[Create], enrolled: Enrolled, after: Stack | Unknown | None
    ) -> list[str]:
        """Revoke the tokens of what its stack does not know, and return what stood against it.

        What it knows may exist, or is made by the next run; where it was interrupted, so may what
        it does not know: the next run releases what has no machine.
        """
        if isinstance(after, Unknown) or (after and after.interrupted):
            return []
        known = {worker.name for worker in after.workers} | after.ids.keys() if after else set()
        troubles = []
        for action in creates:
            if action.registry is None:
                continue
            if enrolled.user_data.get(action.worker) and action.worker not in known:
                try:
                    self.sources.registries[action.registry].revoke(action.worker)
                except FleetError as trouble:
                    troubles.append(f"the token of {action.worker} was not revoked: {trouble}")
        return troubles

    def _user_data(self, action: Create, registry: str) -> str:
        delay = self.delays.get(action.worker, 0)
        token = self.sources.enrollers[registry].enrol(self._enrolment(action, delay))
        queue = self.fleet.queues[registry]
        url = queue.url if isinstance(queue, DebusineQueue) else ""
        return write_user_data(url, token, delay=delay, swap=self._swap(action))

    def _swap(self, action: Create) -> int:
        pool = self.fleet.pools.get(action.pool)
        return swap_of(pool) if isinstance(pool, Pool) else 0

    def _swap_at_cloud(self, action: Create) -> int:
        """Return what a server that no queue enrols has to make by itself; commands are told."""
        pool = self.fleet.pools.get(action.pool)
        at_cloud = isinstance(pool, Pool) and is_at_cloud(self.fleet, pool)
        return self._swap(action) if at_cloud else 0

    def _enrolment(self, action: Create, delay: int) -> Enrolment:
        pool = self.fleet.pools[action.pool]
        tags = static_tags(self.fleet, action.pool)
        deadline = pool.boot.deadline if isinstance(pool, Pool) else 0
        return Enrolment(
            worker=action.worker,
            fleet=self.fleet.fleet,
            pool=action.pool,
            provides=tags["provided_tags"],
            requires=tags["required_tags"],
            expires=self.world.time + timedelta(seconds=deadline + delay) + MARGIN,
        )

    def _listed(self) -> set[str]:
        listings = [each for each in self.world.providers.values() if isinstance(each, Listing)]
        return {machine.name for listing in listings for machine in listing.machines}
