"""The plan of one pool while it is made: its actions so far, and what its limits still leave.

Replacements and warm machines are created beside allocation and take their part of each limit
here, so that no action takes a count or money past one.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Literal, NamedTuple

from fleet.model.facts import WorkerInputs, market_of
from fleet.model.orders import FLEET
from fleet.model.plan import Action, Cause, Create, Delete, Drain, Holding, Reason, Resume
from fleet.model.prices import price_of_type
from fleet.planner.demand import Row
from fleet.planner.images import ImageChoice
from fleet.planner.inventory import PoolInventory
from fleet.planner.machine_inputs import Option
from fleet.planner.units import State, Unit
from fleet.schema.model import Fleet, Pool
from fleet.schema.pools import Market
from fleet.tagrules.offers import Offer


@dataclass(frozen=True)
class Stopped:
    """A limit that forbids one machine more that is there to stay, and what that would take."""

    row: Row
    need: Decimal


class Headroom:
    """What is left of each limit once waiting requests have theirs."""

    def __init__(
        self,
        rows: Sequence[Row],
        machines: Mapping[str, int],
        served: Mapping[tuple[str, str], int],
    ) -> None:
        self._left = [row.room - row.taken(machines, served) for row in rows]
        self._of: defaultdict[str, list[tuple[int, Row]]] = defaultdict(list)
        for number, row in enumerate(rows):
            for place in row.kept or row.machines:
                self._of[place].append((number, row))
        self.kept: defaultdict[str, int] = defaultdict(int)
        """Place to how many machines were taken that are there to stay."""

    def take(self, place: str) -> Stopped | None:
        """Take one machine that is there to stay; return the limit that forbids it, or None."""
        takes = [
            (number, (row.kept or row.machines)[place], row) for number, row in self._of[place]
        ]
        for number, amount, row in takes:
            if amount > self._left[number]:
                return Stopped(row, amount)
        for number, amount, _ in takes:
            self._left[number] -= amount
        self.kept[place] += 1
        return None


_GOING = frozenset({State.DRAINING, State.DISABLED, State.STOPPED, State.UNDELETED})
_CAUSES = {
    Reason.ABOVE_MAX: Cause.CONFIG,
    Reason.OUTDATED: Cause.CONFIG,
    Reason.POOL_DRAINING: Cause.CONFIG,
    Reason.POOL_REMOVED: Cause.CONFIG,
    Reason.REGISTRATION_LOST: Cause.KNOWLEDGE,
    Reason.LIVECHECK_FAILED: Cause.KNOWLEDGE,
    Reason.GONE: Cause.KNOWLEDGE,
    Reason.ORPHAN: Cause.KNOWLEDGE,
}
_OWN = frozenset({Reason.ORPHAN, Reason.REGISTRATION_LOST, Reason.GONE})
"""Reasons that guards count: what they find is no later step of a drain."""
_NOTHING = Offer(frozenset())
_REASONS = frozenset(reason.value for reason in Reason)
Because = tuple[Reason, str]


@dataclass
class PoolPlan:
    """One pool's part of the plan."""

    fleet: Fleet
    inventory: PoolInventory
    pool: Pool | None
    """None where fleet.yaml no longer has it."""
    names: Iterator[str]
    closed: str
    """Why it makes no machine; empty when it may."""
    options: tuple[Option, ...] = ()
    """Every way to make a machine here, in the order of fleet.yaml."""
    failures: str = ""
    """How many of its latest attempts failed in a row, and why; empty where none did."""
    digests: frozenset[str] = frozenset()
    """Digests of what its machines are made from today, one for each way."""
    lost: frozenset[str] = frozenset()
    """Units that had registered, and that no registry knows now."""
    creations: Mapping[str, str] = field(default_factory=dict)
    """Worker to the result of its last creation, if that failed."""
    choice: ImageChoice = field(default_factory=ImageChoice)
    """What its next machine boots."""
    offer: Offer = _NOTHING
    """What its future workers offer."""
    headroom: Headroom = field(default_factory=lambda: Headroom((), {}, {}))
    """What is left of every limit, over all pools."""
    used: dict[str, str] = field(default_factory=dict)
    """Unit name to the request it is counted for."""
    served: int = 0
    """How many waiting requests its workers, and those it makes, are counted for."""
    awaited: bool = False
    """Requests that it fits are not served, for a limit stops them."""
    short_of_room: int = 0
    """How many requests nothing but its `workers` keeps from a machine here."""
    due: dict[str, "Because"] = field(default_factory=dict)
    """Unit name to why it is due to be replaced."""
    kept: dict[str, "Because"] = field(default_factory=dict)
    """Unit name to why it stays although something speaks for its going."""
    short: dict[Reason, tuple[str, Stopped | None]] = field(default_factory=dict)
    """How many of `min` or `spare` are not made, and the limit that stops them, if one does."""
    actions: list[Action] = field(default_factory=list)
    holds: list[Holding] = field(default_factory=list)
    """Machines that failed to boot and are held from now on."""
    _with_candidate: int = 0
    """How many new machines boot the candidate."""
    _alike: dict[tuple[str, Market, bool], Create] = field(default_factory=dict)
    """Type, market and whether it exists to a creation that others are made like."""

    @property
    def name(self) -> str:
        """Return the pool's name."""
        return self.inventory.pool

    @property
    def on_demand(self) -> bool:
        """Say whether it holds no machine while nothing asks for a tag of its workers."""
        return bool(self.offer.on_demand)

    @property
    def unwanted(self) -> Reason | None:
        """Return why fleet.yaml no longer wants the pool at all; None when it does."""
        if self.pool is None:
            return Reason.POOL_REMOVED
        return Reason.POOL_DRAINING if self.pool.mode == "drain" else None

    @property
    def price(self) -> Decimal | None:
        """Return what one more machine costs per hour; None when that is not known."""
        ways = [option] if (option := self.option) else self.options
        return min((way.price for way in ways if way.price is not None), default=None)

    @property
    def option(self) -> Option | None:
        """Return the cheapest way to make a machine here now; None where every way is closed."""
        ways = (each for each in self.options if not each.closed)
        return min(ways, key=lambda each: each.price or Decimal(0), default=None)

    @property
    def leaving(self) -> set[str]:
        """Return the units that this plan drains or deletes."""
        return {a.worker for a in self.actions if not isinstance(a, Create)}

    @property
    def staying(self) -> list[Unit]:
        """Return the units that are neither draining nor on their way out."""
        leaving = self.leaving
        return [unit for unit in self.at_work if unit.name not in leaving]

    @cached_property
    def at_work(self) -> list[Unit]:
        """Return the units that get work, those among them too that this plan removes."""
        return [unit for unit in self.inventory.units if not is_going(unit)]

    @property
    def made(self) -> int:
        """Return how many new machines this plan makes here."""
        return sum(
            isinstance(a, Create) and a.reason is not Reason.INTERRUPTED for a in self.actions
        )

    @property
    def unused(self) -> list[Unit]:
        """Return the free units that no waiting request is counted for."""
        return [u for u in self.staying if u.is_capacity and u.name not in self.used]

    @property
    def is_full(self) -> bool:
        """Say whether workers.max leaves no room for another machine."""
        return self.pool is None or len(self.inventory.units) + self.made >= self.pool.workers.max

    def is_outdated(self, unit: Unit) -> bool:
        """Say whether a machine was made from something else than today's config or image."""
        digest = unit.machine.digest if unit.machine else None
        return bool(digest and self.digests and digest not in self.digests)

    def gives_way(self, unit: Unit) -> bool:
        """Say whether a unit is to be replaced because it is outdated, or by a candidate."""
        due, _ = self.due.get(unit.name, (None, ""))
        return due is Reason.OUTDATED or self.is_outdated(unit)

    def goes_by_itself(self, unit: Unit) -> bool:
        """Say whether a unit that stays now goes later without anybody's doing."""
        return self.kept.get(unit.name, (None, ""))[0] is Reason.ORPHAN

    @cached_property
    def canaries(self) -> tuple[int, int]:
        """Return how many units that get work boot the candidate, and how many get work."""
        return sum(map(self.is_canary, self.at_work)), len(self.at_work)

    def is_canary(self, unit: Unit) -> bool:
        """Say whether a unit boots the candidate."""
        image = unit.machine.image if unit.machine else unit.inputs.image if unit.inputs else ""
        return bool(image) and image == self.choice.candidate

    def next_way(self, option: Option) -> Option:
        """Return a way with what the next machine boots: the candidate, where its share lacks."""
        if not self.choice.candidate:
            return option
        booting, at_work = self.canaries
        is_due = booting + self._with_candidate < self.choice.share_of(at_work + self.made + 1)
        return replace(option, image=self.choice.candidate) if is_due else option

    @property
    def may_remove(self) -> bool:
        """Say whether anything may be drained or deleted here in this run."""
        paused = self.pool is not None and self.pool.mode == "pause"
        return not (self.inventory.blind or self.inventory.frozen or paused)

    @property
    def may_shrink(self) -> bool:
        """Say whether idle machines may go: not while some of the work is not known."""
        return self.may_remove and not self.inventory.sampled

    @property
    def booting(self) -> list[Unit]:
        """Return the units that have not registered yet and can be kept from it.

        Without a way to revoke a token one might register, and take work, while it is deleted.
        """
        if self.inventory.tokens is None:
            return []
        return [
            unit
            for unit in self.staying
            if unit.state is State.STARTING and unit.awaits_token and unit.name not in self.lost
        ]

    @property
    def resumes(self) -> Iterator[Resume]:
        """Yield the drains that are lifted because the hold they were for is over."""
        if not self.may_remove or (self.pool is not None and self.pool.mode == "observe"):
            return
        leaving = self.leaving
        for unit in self.inventory.units:
            for each in unit.resumes if unit.name not in leaving else ():
                yield Resume(
                    pool=self.name,
                    worker=unit.name,
                    registry=each.registry,
                    because="its hold is over, and nothing else speaks for its going",
                )

    def cost_of(self, unit: Unit) -> Decimal | None:
        """Return what a unit costs per hour; None when that is not known."""
        kind = unit.machine.type if unit.machine else unit.inputs.type if unit.inputs else ""
        return self._price_of(kind, market_of(unit.inputs))

    def _price_of(self, kind: str, market: Market) -> Decimal | None:
        for option in self.options:
            if (option.type, option.market) == (kind, market):
                return option.price
        return price_of_type(self.fleet, self.inventory.provider, kind, market)

    def create(self, inputs: WorkerInputs, why: "Why") -> None:
        """Add the creation of a worker."""
        self._with_candidate += inputs.image == self.choice.candidate and not why.exists
        market = market_of(inputs)
        alike = inputs.type, market, why.exists
        if alike not in self._alike:
            price = self._price_of(inputs.type, market)
            self._alike[alike] = Create(
                pool=self.name,
                worker=inputs.name,
                registry=self.inventory.enrols,
                inputs=inputs,
                reason=why.reason,
                cause=why.cause,
                because=why.because,
                # What exists already is counted in what the pool costs now.
                cost=Decimal(0) if why.exists else price or Decimal(0),
            )
        made = self._alike[alike].altered(
            worker=inputs.name,
            inputs=inputs,
            reason=why.reason,
            cause=why.cause,
            because=why.because,
            serves=why.serves,
            until_idle=why.until_idle,
            assumed=why.assumed,
            turn=why.turn,
        )
        self.actions.append(made)

    def drain(self, unit: Unit, reason: Reason, because: str) -> None:
        """Add the drain of a registered worker, where anything may be removed."""
        if unit.is_leaving and reason is not Reason.HELD:
            reason = reason_of_departure(unit) or reason
        may_go = unit.held is None or reason is Reason.HELD or unit.held.by == FLEET
        if self.may_remove and may_go and unit.registry is not None:
            self.actions.append(
                Drain(
                    pool=self.name,
                    worker=unit.name,
                    registry=unit.registry,
                    reason=reason,
                    cause=cause_of(reason),
                    because=because,
                )
            )

    def delete(
        self,
        unit: Unit,
        reason: Reason,
        because: str,
        *,
        forgets: bool = False,
        absent: Literal["", "gone", "unmade"] = "",
    ) -> None:
        """Add the deletion of a worker that runs nothing, where anything may be removed.

        `forgets`: its machine is gone with what it ran, so that its stack only forgets it.
        """
        revokes = unit.awaits_token and self.inventory.tokens is not None
        carried = reason_of_departure(unit) if is_going(unit) and reason not in _OWN else None
        reason = carried or reason
        if self.may_remove and (forgets or not unit.may_run) and unit.held is None:
            self.actions.append(
                Delete(
                    pool=self.name,
                    worker=unit.name,
                    registry=unit.registry or (self.inventory.tokens if revokes else None),
                    reason=reason,
                    cause=cause_of(reason),
                    because=because,
                    # Without a machine it was not counted in what the pool costs now.
                    saves=(self.cost_of(unit) if unit.machine else None) or Decimal(0),
                    revokes=revokes,
                    releases=forgets or unit.holds_in_vain,
                    begun=carried is not None and unit.state is not State.DRAINING,
                    forgets=forgets,
                    absent=absent,
                )
            )


class Why(NamedTuple):
    """The reason of a creation."""

    reason: Reason
    cause: Cause
    because: str
    serves: tuple[str, ...] = ()
    turn: int = 0
    """Its place in the order of service, over all pools; 0 goes before every request."""
    until_idle: Decimal | None = None
    """Money that it is billed until it is deleted after its idle time-out."""
    assumed: int = 0
    """How many of these requests nothing says how long they run."""
    exists: bool = False
    """Its machine is there already; only the record of it is missing."""


def is_going(unit: Unit) -> bool:
    """Say whether a unit gets no new work any more; a busy one ends what it runs first.

    What an operator holds stays all the same.
    """
    is_told = unit.worker is not None and unit.worker.draining
    return unit.state in _GOING or is_told or unit.held is not None


def reason_of_departure(unit: Unit) -> Reason | None:
    """Return the reason for which a run drained a unit or switched it off; None: unknown.

    A drain for a hold is no departure, nor one of a newer fleet with reasons of its own.
    """
    reasons = (each.reason for each in unit.departures if each.over is None)
    known = (Reason(each) for each in reasons if each in _REASONS)
    return next((each for each in known if each is not Reason.HELD), None)


def gives_back(unit: Unit) -> str:
    """Return what is said of a deletion that gives its request back; empty for another."""
    if unit.worker is None or not unit.holds_in_vain:
        return ""
    return f"; request {unit.worker.running} goes back to the queue"


def cause_of(reason: Reason) -> Cause:
    """Return what made it necessary that a worker goes."""
    return _CAUSES.get(reason, Cause.DEMAND)
