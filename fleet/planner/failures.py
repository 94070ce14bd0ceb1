"""Failed attempts to create machines: which ways are closed, until when, and why.

A provider that reports a shortage of stock or quota is believed immediately. Any other failure
counts only as a rate of the tries, so that one error never silences a pool. A name that another
machine has closes no way: the next run uses another name.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from fleet.model.facts import Attempt, AttemptResult, Machine, Market, World
from fleet.planner.inventory import PoolInventory, attempts_of
from fleet.planner.units import DEAF_SAID, State, Unit, why_late
from fleet.schema.model import BootFailures, Fleet, HooksProvider, Pool

BASE = timedelta(minutes=3)
"""How long the first failure closes; each one after it doubles that. Karpenter's figure."""
CAP = timedelta(minutes=30)
"""How long any failure closes at most. Cluster-autoscaler's figure."""
RESET = timedelta(hours=3)
"""A failure longer ago than this is forgotten. Cluster-autoscaler's figure."""
BOOT_MEMORY = timedelta(hours=24)
"""A boot longer ago than this no longer counts against its image, which is then tried again."""
SAMPLE = 4
"""With fewer tries that ended, no rate is formed."""
RATE = 0.5
"""A rate of failures from which on a way to make machines is closed."""
LATEST = 20
"""How many tries of one pool, machine type and market are looked at, the latest ones."""

_WHY_FAILED: Mapping[State | None, str] = {
    State.DEAF: DEAF_SAID,
    State.STOPPED: "its machine stopped before its worker registered",
}
_FAILED = frozenset({"failed", "error", "out-of-stock", "quota", "name-taken"})
_ENDED = frozenset({"registered", "failed", "error"})
MOST_TAKEN = 8
"""Runs in a row whose names were all taken: then it is no longer believed to be about names."""
_STATED = re.compile(r"\A\S+: new reports (out-of-stock|quota|name-taken|error): ")
"""An outcome that a person's own command states: docs/how-to/use-your-own-commands.md."""
_NO_STOCK = re.compile(
    r"\b(resource_unavailable|placement_error"  # Hetzner
    r"|Insufficient\w*Capacity|InsufficientFreeAddressesInSubnet|UnfulfillableCapacity"  # AWS
    r"|ReservationCapacityExceeded|not supported in your requested Availability Zone"
    r"|No ?valid ?host|Exhausted all hosts|not enough hosts available"  # OpenStack
    r"|No more IP addresses available|IpAddressGenerationFailure"
    r"|cannot_start_capacity|insufficient[ _-]capacity|no more capacity"  # IBM
    r"|(ZONE_)?RESOURCE_POOL_EXHAUSTED(_WITH_DETAILS)?|IP_SPACE_EXHAUSTED|stockout"  # GCP
    r"|not have enough resources available"
    r"|Out of (host )?capacity"  # Oracle
    r"|SkuNotAvailable|\w*AllocationFailed|Overconstrained\w*AllocationRequest)\b",  # Azure
    re.IGNORECASE,
)
_NO_QUOTA = re.compile(
    r"\b(resource_limit_exceeded|\w*LimitExceeded|MaxSpotInstanceCountExceeded"  # Hetzner, AWS
    # A full disk says "Disk quota exceeded".
    r"|(?<!disk )\w*quota[ _]?(\S+ ){0,4}exceeded"  # OpenStack, IBM, GCP, Azure
    r"|over[ _-]?quota|exceed(s|ed|ing)? (\S+ ){0,6}quota)\b",
    re.IGNORECASE,
)
_TOO_FAST = re.compile(
    r"(rate_?limit_?exceeded|RequestLimitExceeded|\bper (second|minute|100 seconds)\b)",
    re.IGNORECASE,
)
"""A limit of calls, which says nothing of machines."""
_TAKEN = re.compile(
    r"\b(uniqueness_error|validation_unique_failed|RESOURCE_ALREADY_EXISTS|DuplicateName"
    r"|IdempotentParameterMismatch)\b",
    re.IGNORECASE,
)
"""Codes of Hetzner, IBM, GCP, VMware and EC2 for a name, or a token, of another machine."""
_TIMED_OUT = re.compile(r"\bnew did not finish within \S+ and was stopped")
"""The text of a `new` that was ended because it took too long."""
_ABANDONED = "its run stopped before `new` ended"
_SHOWN = 200
"""Letters of a refusal that a sentence about attempts shows."""
_OURS = re.compile(
    r"\blocal_fault\b|: the disk (is full|quota is used up)\b|\bdatabase or disk is full\b"
    r"|\S*pulumi\S*: (no space left on device|disk quota exceeded)"  # its files and plugins
)
"""What this computer could not do, as on a full disk, says nothing of a machine type."""


def classify(said: str, worker: str = "") -> AttemptResult:
    """Return the result of an attempt to create this worker's machine, by the refusal's text."""
    if _OURS.search(said):
        return "gone"
    if stated := _STATED.match(said):
        return stated[1]  # type: ignore[return-value]  # the pattern lists results
    if _NO_STOCK.search(said):
        return "out-of-stock"
    if _NO_QUOTA.search(said) and not _TOO_FAST.search(said):
        return "quota"
    if _TAKEN.search(said) or (worker and _is_taken(said, worker)):
        return "name-taken"
    return "error"


def _is_taken(said: str, worker: str) -> bool:
    """Say whether a text states that this very name is in use, not another object's."""
    name, state = re.escape(worker), r"already (exists?|in use|used|taken|defined|registered)"
    before = rf"{name}\W{{0,3}}(\s+(with|that|this|name|is|was|has been))*\s*{state}"
    after = rf"{state}\W+(\w+\W+){{0,3}}{name}(?![\w/-]|\.\w)"
    return re.search(f"(?<![\\w-])({before}|{after})", said, re.IGNORECASE) is not None


def settle(
    fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]
) -> tuple[Attempt, ...]:
    """Return the tries that the world says have ended, each with what became of it.

    A machine that is nowhere, although both witnesses were heard, is `gone`: it is unknown whether
    it would have registered, or whether it was made before its apply was killed. A `new` without a
    machine after its time limit has failed, also if its run was killed before that.
    """
    states = {
        name: {unit.name: _ended_as(unit) for unit in inventory.units}
        for name, inventory in inventories.items()
        if not inventory.blind
    }
    unmade = {
        (name, unit.name)
        for name, inventory in inventories.items()
        for unit in inventory.having(State.UNFINISHED)
        if unit.machine is None
    }
    limits = _creation_limits(fleet)
    settled = []
    for attempt in attempts_of(fleet, world):
        if attempt.result != "starting" or attempt.at >= world.time or attempt.pool not in states:
            continue
        state = states[attempt.pool].get(attempt.worker)
        limit = limits.get(attempt.pool)
        if limit and (attempt.pool, attempt.worker) in unmade and attempt.at + limit < world.time:
            settled.append(attempt.altered(result="error", detail=_ABANDONED))
        elif result := _became(state):
            late = why_late(fleet.pools.get(attempt.pool))
            detail = late if state is State.NEVER_REGISTERED else _WHY_FAILED.get(state, "")
            settled.append(attempt.altered(result=result, detail=detail))
    return tuple(settled)


def _creation_limits(fleet: Fleet) -> dict[str, timedelta]:
    """Return the time limit of `new` by pool, where a person's own commands create machines."""
    return {
        name: timedelta(seconds=provider.timeouts.new)
        for name, pool in fleet.dynamic_pools.items()
        if isinstance(provider := fleet.providers.get(pool.provider), HooksProvider)
    }


def _ended_as(unit: Unit) -> State:
    """Return a unit's state; of one that stopped, whether its worker had registered before."""
    if unit.state is State.STOPPED and not unit.awaits_token:
        return State.DISABLED
    return unit.state


def _became(state: State | None) -> AttemptResult | None:
    match state:
        case None:
            return "gone"
        case State.NEVER_REGISTERED | State.DEAF | State.STOPPED:
            return "failed"
        case State.IDLE | State.BUSY | State.DRAINING | State.DISCONNECTED | State.DISABLED:
            return "registered"
        case _:
            return None


@dataclass(frozen=True)
class Memory:
    """Every try that still counts, the latest first."""

    now: datetime
    by_pool: Mapping[str, Sequence[Attempt]]
    by_account: Mapping[tuple[str, Market], Sequence[Attempt]]
    """Provider and market to the tries of all its pools: a quota is the account's."""
    least: timedelta = timedelta()
    """How long a failure closes at least."""
    limits: Mapping[str, timedelta] = field(default_factory=dict)
    """Pool to the time limit of its `new`."""

    @cached_property
    def has_failures(self) -> bool:
        """Say whether any of them failed, so that there is something to look for."""
        return any(t.result in _FAILED for tries in self.by_pool.values() for t in tries)

    def end_of(self, attempt: Attempt) -> datetime:
        """Return the end of an attempt; one that hung began long before it failed."""
        hung = _TIMED_OUT.search(attempt.detail) or attempt.detail == _ABANDONED
        return attempt.at + (self.limits.get(attempt.pool, timedelta()) if hung else timedelta())

    def is_recent(self, attempt: Attempt) -> bool:
        """Say whether an attempt counts for the rate of failures.

        Attempts that hang follow each other slowly, so as many as a rate needs are remembered.
        """
        took = self.end_of(attempt) - attempt.at
        return self.now - attempt.at <= RESET + SAMPLE * took * 2


def recall(fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]) -> Memory:
    """Return what is remembered, tries that have ended since counted by what became of them."""
    settled = {(each.worker, each.at): each for each in settle(fleet, world, inventories)}
    by_pool: defaultdict[str, list[Attempt]] = defaultdict(list)
    by_account: defaultdict[tuple[str, Market], list[Attempt]] = defaultdict(list)
    tries = attempts_of(fleet, world)
    for attempt in sorted(tries, key=attrgetter("at", "worker"), reverse=True):
        if attempt.at > world.time:
            continue
        known = settled.get((attempt.worker, attempt.at), attempt)
        by_pool[attempt.pool].append(known)
        pool = fleet.pools.get(attempt.pool)
        if isinstance(pool, Pool):
            by_account[pool.provider, attempt.market].append(known)
    return Memory(world.time, by_pool, by_account, limits=_creation_limits(fleet))


def describe_creations(memory: Memory, pool: str) -> dict[str, str]:
    """Return the result of the last creation of each worker of a pool, if that failed."""
    latest = {each.worker: each for each in reversed(memory.by_pool.get(pool, ()))}
    return {
        worker: _describe_creation(attempt.detail)
        for worker, attempt in latest.items()
        if attempt.result in _FAILED and attempt.detail not in ("", _ABANDONED)
    }


def _describe_creation(detail: str) -> str:
    hung = _TIMED_OUT.search(detail)
    return (
        f"its creation timed out ({hung[0]})" if hung else f"its creation failed ({_cut(detail)})"
    )


def _cut(detail: str) -> str:
    return detail if len(detail) <= _SHOWN else f"{detail[:_SHOWN]}…"


def find_lost(memory: Memory, inventory: PoolInventory) -> frozenset[str]:
    """Return the machines whose workers had registered, and that no registry knows now.

    One from before everything that is remembered would long have been deleted if it had not
    registered.
    """
    silent = inventory.having(State.STARTING, State.NEVER_REGISTERED, State.STOPPED)
    if not silent:
        return frozenset()
    tries = memory.by_pool.get(inventory.pool, ())
    latest = {attempt.worker: attempt.result for attempt in reversed(tries)}
    oldest = {attempt.type: attempt.at for attempt in tries}

    def had_registered(machine: Machine) -> bool:
        if machine.name in latest:
            return latest[machine.name] == "registered"
        first, created = oldest.get(machine.type), machine.created_at
        return first is not None and created is not None and created < first

    return frozenset(
        unit.name
        for unit in silent
        if unit.machine and not unit.worker and had_registered(unit.machine)
    )


class Failing(NamedTuple):
    """Failures that close a way to create machines, and when it is tried again."""

    said: str = ""
    """Reason; empty while the way is open."""
    until: datetime | None = None


def find_failing(memory: Memory, pool: str, kind: str, market: Market, provider: str) -> Failing:
    """Return the failures that close a way to create machines now."""
    if not memory.has_failures:
        return Failing()
    account = memory.by_account.get((provider, market), ())
    own = [
        each for each in memory.by_pool.get(pool, ()) if (each.type, each.market) == (kind, market)
    ][:LATEST]
    closed = _closed(memory, account, {"quota"})
    if closed:
        said = f"the quota at provider {provider} is used up ({_describe_streak(closed)}"
        return Failing(said, closed.until)
    closed = _closed(memory, own, {"out-of-stock"})
    if closed:
        where = " on the spot market" if market == "spot" else ""
        said = f"{provider} is out of stock of {kind}{where} ({_describe_streak(closed)}"
        return Failing(said, closed.until)
    streak = _closed(memory, own, {"name-taken"})
    if streak and streak.runs >= MOST_TAKEN:
        said = f"{provider} refused every name as taken ({_describe_streak(streak)}"
        return Failing(said, streak.until)
    ended = [a for a in own if a.result in _ENDED and memory.is_recent(a)]
    failures = sum(each.result != "registered" for each in ended)
    closed = _closed(memory, own, {"error", "failed"})
    if closed is None or len(ended) < SAMPLE or failures < RATE * len(ended):
        return Failing()
    said = f"{failures} of {len(ended)} attempts failed ({_describe_streak(closed)}"
    return Failing(said, closed.until)


@dataclass(frozen=True)
class _Streak:
    """Failures in a row: in how many runs, and when it is over."""

    runs: int
    until: datetime


def _closed(memory: Memory, attempts: Sequence[Attempt], kinds: Collection[str]) -> _Streak | None:
    """Return the failures in a row that close something now."""
    streak = _streak(memory, attempts, kinds)
    return streak if streak and memory.now < streak.until else None


def _streak(memory: Memory, attempts: Sequence[Attempt], kinds: Collection[str]) -> _Streak | None:
    """Count runs that failed since the last success; many failures of one run count once."""
    runs, latest, before = 0, None, memory.now
    for at, of_run in groupby(attempts, key=lambda each: each.at):
        tries = list(of_run)
        failed = next((each for each in tries if each.result in kinds), None)
        if failed is None:
            if any(each.result in ("registered", "failed") for each in tries):
                break
            continue
        if before - memory.end_of(failed) > RESET:
            break
        runs, latest, before = runs + 1, latest or failed, at
    if latest is None:
        return None
    closes = min(CAP, BASE * 2 ** min(runs - 1, 10))
    return _Streak(runs, memory.end_of(latest) + max(memory.least, closes))


def describe_failures(memory: Memory, pool: str) -> str:
    """Return how many of a pool's latest attempts failed in a row, and why; empty where none."""
    failed: list[Attempt] = []
    before = memory.now
    for attempt in memory.by_pool.get(pool, ()) if memory.has_failures else ():
        if attempt.result == "registered" or before - memory.end_of(attempt) > RESET:
            break
        before = attempt.at
        if attempt.result in _FAILED:
            failed.append(attempt)
    if not failed:
        return ""
    many = "1 attempt" if len(failed) == 1 else f"{len(failed)} attempts in a row"
    detail = failed[0].detail or failed[0].result
    last = write_time(memory.end_of(failed[0]))
    return f"{many} to create a machine failed, last at {last}: {_cut(detail)}"


def _describe_streak(streak: _Streak) -> str:
    times = "once" if streak.runs == 1 else f"{streak.runs} runs in a row"
    return f"{times}); retried from {write_time(streak.until)}"


def write_time(moment: datetime) -> str:
    """Return a moment to the second, as in 2026-11-29 04:53:18 UTC."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True)
class Stopped:
    """An image that did not come up often enough, and when it is tried again."""

    failures: int
    boots: int
    until: datetime

    @property
    def said(self) -> str:
        """Return what happened as the end of a sentence about the image."""
        return f"failed {self.failures} of its last {self.boots} boots (guards.boot_failures)"

    def __str__(self) -> str:
        """Return that, with when it is tried again."""
        return f"{self.said}; retried from {write_time(self.until)}"


def stopped_images(
    rule: BootFailures, memory: Memory, pool: str
) -> Callable[[str], Stopped | None]:
    """Return what says of a provider's image id whether a pool makes machines from it."""
    boots: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in memory.by_pool.get(pool, ()) if memory.has_failures else ():
        if attempt.result in ("registered", "failed") and memory.now - attempt.at < BOOT_MEMORY:
            boots[attempt.image].append(attempt)
    return dict(_stops(rule, boots)).get


def _stops(
    rule: BootFailures, boots: Mapping[str, Sequence[Attempt]]
) -> Iterator[tuple[str, Stopped]]:
    for image, attempts in boots.items():
        latest = attempts[: rule.of_last]
        failed = sorted(each.at for each in latest if each.result == "failed")
        if len(failed) >= rule.stop_after:
            # When this one is forgotten, fewer than stop_after are left.
            ends = failed[len(failed) - rule.stop_after] + BOOT_MEMORY
            yield image, Stopped(len(failed), len(latest), ends)
