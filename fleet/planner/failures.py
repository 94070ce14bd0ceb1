"""Stop buying a machine type and market (an option) after failed attempts to create machines.

A reported shortage of stock or quota closes an option immediately. Any other failure closes the
option only at a high failure rate, so that one error never closes a pool. If another machine has
the name already, the next run uses another name. Each closed option has a retry time and a reason.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter

from fleet.model.facts import Attempt, AttemptResult, Machine, World
from fleet.model.prices import find_types
from fleet.planner.inventory import PoolInventory, attempts_of
from fleet.planner.units import UnitState, why_late
from fleet.schema.model import BootFailures, Fleet, HooksProvider, Market
from fleet.words import images as words
from fleet.words.lives import DEAF

MIN_BACKOFF = timedelta(minutes=3)
"""Back-off after the first failure; each further failure doubles it. Value of Karpenter."""
MAX_BACKOFF = timedelta(minutes=30)
"""Maximum back-off. Value of Cluster Autoscaler."""
FAILURE_MEMORY = timedelta(hours=3)
"""Age from which a failure no longer counts. Value of Cluster Autoscaler."""
BOOT_MEMORY = timedelta(hours=24)
"""Age from which a failed boot no longer counts against its image."""
MIN_ATTEMPTS = 4
"""Minimum finished attempts for a failure rate."""
MAX_FAILURE_RATE = 0.5
"""Failure rate that closes an option."""
MAX_ATTEMPTS = 20
"""Number of latest attempts to evaluate per pool, machine type and market."""

_WHY_FAILED: Mapping[UnitState | None, str] = {
    UnitState.DEAF: DEAF,
    UnitState.STOPPED: words.STOPPED_BEFORE,
}
_RESULTS: Mapping[UnitState | None, AttemptResult] = {
    None: "gone",
    **dict.fromkeys((UnitState.NEVER_REGISTERED, UnitState.DEAF, UnitState.STOPPED), "failed"),
    **dict.fromkeys((UnitState.IDLE, UnitState.BUSY, UnitState.DRAINING), "registered"),
    **dict.fromkeys((UnitState.DISCONNECTED, UnitState.DISABLED), "registered"),
}
"""State of an attempt's machine (None: no machine) to the result; no result in other states."""
_FAILED = frozenset({"failed", "error", "out-of-stock", "quota", "name-taken"})
_ENDED = frozenset({"registered", "failed", "error"})
MAX_TAKEN_RUNS = 8
"""Consecutive runs with taken names that close an option: the message probably misleads."""
_STATED = re.compile(r"\A\S+: new reports (out-of-stock|quota|name-taken|error): ")
"""A result that an operator's command reports: docs/how-to/use-your-own-commands.md."""
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
"""A rate limit of API calls, not a quota of machines."""
_NAME_TAKEN = re.compile(
    r"\b(uniqueness_error|validation_unique_failed|RESOURCE_ALREADY_EXISTS|DuplicateName"
    r"|IdempotentParameterMismatch)\b",
    re.IGNORECASE,
)
"""Error codes of Hetzner, IBM, GCP, VMware and EC2 for a taken name or token."""
_TIMED_OUT = re.compile(r"\bnew did not finish within \S+ and was stopped")
"""The message about a `new` command that fleet stopped at its time limit."""
_ABANDONED = "its run stopped before `new` ended"
_MAX_DETAIL = 200
"""Maximum characters of an error in a message about attempts."""
_LOCAL_FAULT = re.compile(
    r"\blocal_fault\b|: the disk (is full|quota is used up)\b|\bdatabase or disk is full\b"
    r"|\S*pulumi\S*: (no space left on device|disk quota exceeded)"  # its files and plugins
)
"""A fault of the computer that runs fleet, such as a full disk: it closes no option."""


def classify(message: str, worker: str = "") -> AttemptResult:
    """Classify the error message of a failed attempt to create a worker's machine."""
    if _LOCAL_FAULT.search(message):
        return "gone"
    if stated := _STATED.match(message):
        return stated[1]  # type: ignore[return-value]  # the pattern lists results
    if _NO_STOCK.search(message):
        return "out-of-stock"
    if _NO_QUOTA.search(message) and not _TOO_FAST.search(message):
        return "quota"
    if _NAME_TAKEN.search(message) or (worker and _is_taken(message, worker)):
        return "name-taken"
    return "error"


def _is_taken(message: str, worker: str) -> bool:
    """Return True if a message reports that another machine has the worker's name."""
    name, state = re.escape(worker), r"already (exists?|in use|used|taken|defined|registered)"
    before = rf"{name}\W{{0,3}}(\s+(with|that|this|name|is|was|has been))*\s*{state}"
    after = rf"{state}\W+(\w+\W+){{0,3}}{name}(?![\w/-]|\.\w)"
    return re.search(f"(?<![\\w-])({before}|{after})", message, re.IGNORECASE) is not None


def settle(
    fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]
) -> tuple[Attempt, ...]:
    """Return the attempts that have finished since they were recorded, with their results.

    If the readable provider and stack do not report a machine, the result is `gone`: the machine
    may never have existed. If a `new` command has no machine after its time limit, the result is
    `error`, even if the run of fleet was killed earlier.
    """
    states = {
        name: {
            # A machine that had registered and is switched off counts as disabled.
            unit.name: UnitState.DISABLED
            if unit.state is UnitState.STOPPED and not unit.awaits_token
            else unit.state
            for unit in inventory.units
        }
        for name, inventory in inventories.items()
        if not inventory.blind
    }
    unmade = {
        (name, unit.name)
        for name, inventory in inventories.items()
        for unit in inventory.having(UnitState.UNFINISHED)
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
        elif result := _RESULTS.get(state):
            late = why_late(fleet.dynamic_pool(attempt.pool))
            detail = late if state is UnitState.NEVER_REGISTERED else _WHY_FAILED.get(state, "")
            settled.append(attempt.altered(result=result, detail=detail))
    return tuple(settled)


def _creation_limits(fleet: Fleet) -> dict[str, timedelta]:
    """Return the time limit of `new` per pool that an operator's commands create."""
    return {
        name: timedelta(seconds=provider.timeouts.new)
        for name, pool in fleet.dynamic_pools.items()
        if isinstance(provider := fleet.providers.get(pool.provider), HooksProvider)
    }


@dataclass(frozen=True)
class BootAttempts:
    """The recorded attempts to create machines, latest first."""

    now: datetime
    by_pool: Mapping[str, Sequence[Attempt]]
    by_account: Mapping[tuple[str, Market], Sequence[Attempt]]
    """(Provider, market) to the attempts of all its pools: a quota applies to the account."""
    least: timedelta = timedelta()
    """Minimum back-off after a failure."""
    limits: Mapping[str, timedelta] = field(default_factory=dict)
    """Pool name to the time limit of its `new` command."""

    def end_of(self, attempt: Attempt) -> datetime:
        """Return the end of an attempt: its start, plus the time limit if the command hung."""
        hung = _TIMED_OUT.search(attempt.detail) or attempt.detail == _ABANDONED
        return attempt.at + (self.limits.get(attempt.pool, timedelta()) if hung else timedelta())

    def is_recent(self, attempt: Attempt) -> bool:
        """Return True if an attempt counts for the failure rate.

        For long attempts, extend the window so that it can contain `MIN_ATTEMPTS`.
        """
        took = self.end_of(attempt) - attempt.at
        return self.now - attempt.at <= FAILURE_MEMORY + MIN_ATTEMPTS * took * 2


NO_ATTEMPTS = BootAttempts(datetime.min.replace(tzinfo=UTC), {}, {})


def recall(fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]) -> BootAttempts:
    """Return the recorded attempts, with updated results of attempts that have finished since."""
    settled = {(each.worker, each.at): each for each in settle(fleet, world, inventories)}
    by_pool: defaultdict[str, list[Attempt]] = defaultdict(list)
    by_account: defaultdict[tuple[str, Market], list[Attempt]] = defaultdict(list)
    tries = [attempt for attempt in attempts_of(fleet, world) if attempt.at <= world.time]
    for attempt in sorted(tries, key=attrgetter("at", "worker"), reverse=True):
        known = settled.get((attempt.worker, attempt.at), attempt)
        by_pool[attempt.pool].append(known)
        if pool := fleet.dynamic_pool(attempt.pool):
            by_account[pool.provider, attempt.market].append(known)
    return BootAttempts(world.time, by_pool, by_account, limits=_creation_limits(fleet))


def describe_creations(memory: BootAttempts, pool: str) -> dict[str, str]:
    """Return the error message per worker of a pool whose latest creation failed."""
    latest = {each.worker: each for each in reversed(memory.by_pool.get(pool, ()))}
    return {
        worker: words.describe_creation(
            hung[0] if (hung := _TIMED_OUT.search(attempt.detail)) else "",
            _shorten(attempt.detail),
        )
        for worker, attempt in latest.items()
        if attempt.result in _FAILED and attempt.detail not in ("", _ABANDONED)
    }


def _shorten(detail: str) -> str:
    return detail if len(detail) <= _MAX_DETAIL else f"{detail[:_MAX_DETAIL]}…"


def find_lost(memory: BootAttempts, inventory: PoolInventory) -> frozenset[str]:
    """Return the machines whose workers had registered, but are in no registry now.

    Include machines older than all records: they must have registered, or a run would have deleted
    them.
    """
    silent = inventory.having(UnitState.STARTING, UnitState.NEVER_REGISTERED, UnitState.STOPPED)
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


def find_failing(  # noqa: PLR0913 - the facts that identify an option
    memory: BootAttempts,
    pool: str,
    kind: str,
    market: Market,
    provider: str,
    *,
    images: Collection[str] = (),
) -> tuple[str, datetime | None]:
    """Return why failures forbid a machine type and market (empty if allowed), and the retry time.

    Failed boots count only of these `images`; empty: of every image.
    """
    account = memory.by_account.get((provider, market), ())
    own = [
        each
        for each in memory.by_pool.get(pool, ())
        if (each.type, each.market) == (kind, market)
        and (not images or each.result != "failed" or each.image in images)
    ][:MAX_ATTEMPTS]
    if closed := _active_streak(memory, account, {"quota"}):
        return words.explain_quota(provider, closed.said), closed.until
    if closed := _active_streak(memory, own, {"out-of-stock"}):
        stock = words.explain_stock(provider, kind, market == "spot", closed.said)
        return stock, closed.until
    streak = _active_streak(memory, own, {"name-taken"})
    if streak and streak.runs >= MAX_TAKEN_RUNS:
        return words.explain_taken(provider, streak.said), streak.until
    ended = [a for a in own if a.result in _ENDED and memory.is_recent(a)]
    failures = sum(each.result != "registered" for each in ended)
    closed = _active_streak(memory, own, {"error", "failed"})
    if closed is None or len(ended) < MIN_ATTEMPTS or failures < MAX_FAILURE_RATE * len(ended):
        return "", None
    return words.explain_failed_attempts(failures, len(ended), closed.said), closed.until


@dataclass(frozen=True)
class _Streak:
    """The number of consecutive failed runs, and the end of the back-off."""

    runs: int
    until: datetime

    @property
    def said(self) -> str:
        """Return the number of failed runs and the retry time, as the end of a sentence."""
        return words.describe_streak(self.runs, self.until)


def _active_streak(
    memory: BootAttempts, attempts: Sequence[Attempt], kinds: Collection[str]
) -> _Streak | None:
    """Return the streak of failures of these kinds; None if its back-off has ended."""
    runs, latest, before = 0, None, memory.now
    for at, of_run in groupby(attempts, key=lambda each: each.at):
        tries = list(of_run)
        failed = next((attempt for attempt in tries if attempt.result in kinds), None)
        if failed is None:
            if any(attempt.result in ("registered", "failed") for attempt in tries):
                break
            continue
        if before - memory.end_of(failed) > FAILURE_MEMORY:
            break
        runs, latest, before = runs + 1, latest or failed, at
    if latest is None:
        return None
    closes = min(MAX_BACKOFF, MIN_BACKOFF * 2 ** min(runs - 1, 10))
    until = memory.end_of(latest) + max(memory.least, closes)
    return _Streak(runs, until) if memory.now < until else None


def describe_failures(fleet: Fleet, memory: BootAttempts, pool: str) -> str:
    """Describe a pool's latest consecutive failures with their cause; empty if none failed.

    Attempts with a machine type that the pool no longer has do not count.
    """
    failed: list[Attempt] = []
    before = memory.now
    tries = memory.by_pool.get(pool, ())
    if known := fleet.dynamic_pool(pool):
        kinds = [each.name for each in find_types(fleet, known)]
        tries = [attempt for attempt in tries if attempt.type in kinds]
    for attempt in tries:
        if attempt.result == "registered" or before - memory.end_of(attempt) > FAILURE_MEMORY:
            break
        before = attempt.at
        if attempt.result in _FAILED:
            failed.append(attempt)
    if not failed:
        return ""
    detail = _shorten(failed[0].detail or failed[0].result)
    return words.describe_attempts(len(failed), memory.end_of(failed[0]), detail)


@dataclass(frozen=True)
class StoppedImage:
    """Boots of an image that failed too often on machine types of a pool, and the retry time."""

    counts: tuple[words.BootCount, ...]
    """The failed and all counted boots, per machine type."""
    until: datetime
    failed: tuple[str, ...]
    """The machines that did not boot, latest first."""
    retries: int
    """Number of successful boots that end the stop."""

    @property
    def summary(self) -> str:
        """Return the failures, as the end of a sentence about the image."""
        return words.describe_failures(self.counts)

    @property
    def said(self) -> str:
        """Return the failures and the retry time, as the end of a sentence about the image."""
        return words.describe_stop(words.describe_failures(self.counts), self.until)


def stopped_boots(
    rule: BootFailures, memory: BootAttempts, pool: str
) -> dict[str, dict[str, StoppedImage]]:
    """Map image id to the machine types on which the guard stops the image in this pool."""
    boots: defaultdict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for attempt in memory.by_pool.get(pool, ()):
        if attempt.result in ("registered", "failed") and memory.now - attempt.at < BOOT_MEMORY:
            boots[attempt.image, attempt.type].append(attempt)
    found: defaultdict[str, dict[str, StoppedImage]] = defaultdict(dict)
    for (image, kind), attempts in boots.items():
        latest = attempts[: rule.of_last]
        failed = [attempt for attempt in latest if attempt.result == "failed"]
        if len(failed) < rule.stop_after:
            continue
        # A new boot replaces the oldest counted boot only if `of_last` boots are known.
        free = rule.of_last - len(latest)
        retries = next(
            free + nth
            for nth in range(len(latest) + 1)
            if sum(each.result == "failed" for each in latest[: len(latest) - nth])
            < rule.stop_after
        )
        found[image][kind] = StoppedImage(
            counts=(words.BootCount(len(failed), len(latest), kind),),
            # When this failure no longer counts, fewer than stop_after remain.
            until=failed[rule.stop_after - 1].at + BOOT_MEMORY,
            failed=tuple(each.worker for each in failed),
            retries=retries,
        )
    return dict(found)


def join_stops(stops: Sequence[StoppedImage]) -> StoppedImage:
    """Return one value for the stops of an image on several machine types."""
    return StoppedImage(
        counts=tuple(count for each in stops for count in each.counts),
        until=min(each.until for each in stops),
        failed=tuple(name for each in stops for name in each.failed),
        retries=max(each.retries for each in stops),
    )
