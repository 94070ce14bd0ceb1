"""Assign free machines to waiting tickets in one pass, in linear time.

`fleet/planner/turns.py` defines the order: owners take turns, and later tickets never starve an
earlier one; tests/laws has this law. A tag's `priority` defines classes: tickets of class `low`
come after all others, regardless of their rank.

A machine stays in the sandbox of its first ticket: only tickets of that sandbox may reuse the
machine, within the limits of the pool's `reuse`.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from fleet.model.facts import Work, Worker, WorkerState
from fleet.model.tickets import ALONE, SANDBOX, Given, Limit, Ticket, to_request
from fleet.planner.turns import CLASS, PRIORITY, WaitingTicket, age_steps, in_turn
from fleet.schema.pools import Reuse
from fleet.tagrules.names import names_of


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The record of a machine that has or had tickets, or that gets no further ticket."""

    machine: str
    since: datetime
    """Time of the last change: the machine was assigned, released, drained or disabled."""
    pool: str = ""
    sandbox: str = ""
    uses: int = 0
    """Number of tickets that have used the machine, including the current ticket."""
    first_used: datetime | None = None
    draining: bool = False
    disabled: bool = False
    dirty: bool = False
    """Whether a ticket has used the machine since the last cleaning."""


def keep(known: Tenancy, pool: str, ticket: Ticket, now: datetime) -> Tenancy:
    """Update the record of a machine that a ticket of a lost store may still use."""
    return replace(
        known,
        pool=pool,
        uses=1,
        sandbox=ticket.effective_sandbox,
        first_used=now,
        dirty=True,
    )


def worker_of(tenancy: Tenancy, ticket: Ticket | None, *, draining: bool) -> Worker:
    """Return the worker that represents a machine: busy if the machine has an open ticket."""
    return Worker(
        name=tenancy.machine,
        machine=tenancy.machine,
        pool=tenancy.pool or None,
        state=WorkerState.BUSY
        if ticket
        else WorkerState.DISABLED
        if tenancy.disabled
        else WorkerState.IDLE,
        draining=draining,
        running=str(ticket.id) if ticket else None,
        work=to_work(ticket, tenancy.since) if ticket else None,
        uses=tenancy.uses,
        requires=(SANDBOX + tenancy.sandbox,) if tenancy.uses else (),
        since=tenancy.since,
    )


def to_work(ticket: Ticket, since: datetime | None = None) -> Work:
    """Return the work of a ticket on its machine. `since` is the start time, None if unknown."""
    request = to_request(ticket)
    return Work(
        task=request.task,
        required=ticket.counting,
        started_at=since,
        requester=ticket.submitter or None,
        owner=ticket.owner or None,
        package=request.package,
        names=names_of(request),
        team=ticket.team or None,
        sandbox=ticket.effective_sandbox,
    )


def admit(
    given: Given, ticket: Ticket, known: Tenancy | None, holder: int | None, now: datetime
) -> Tenancy:
    """Return the record of a machine after a ticket got it. Ignore an older machine's record.

    Raises ValueError if another ticket has the machine, or this ticket must not get it.
    """
    if holder is not None:
        raise ValueError(f"machine {given.machine} has ticket {holder}")
    created = given.created_at
    if known is None or (created is not None and known.since < created):
        # The provider's clock may be ahead of this computer's clock.
        known = Tenancy(given.machine, max(now, created or now))
    return replace(occupy(known, ticket, now), pool=given.pool)


def touch(tenancy: Tenancy, now: datetime) -> Tenancy:
    """Return a machine's record with the time of this change, which never moves backwards."""
    return replace(tenancy, since=max(now, tenancy.since))


def occupy(tenancy: Tenancy, ticket: Ticket, now: datetime) -> Tenancy:
    """Return the record of a machine after a ticket got the machine.

    Raises ValueError if the machine is in another sandbox, or gets no further tickets.
    """
    if tenancy.draining or tenancy.disabled:
        raise ValueError(f"machine {tenancy.machine} takes no more tickets")
    if tenancy.uses and tenancy.sandbox != ticket.effective_sandbox:
        raise ValueError(f"machine {tenancy.machine} is in sandbox {tenancy.sandbox.strip()}")
    return replace(
        touch(tenancy, now),
        sandbox=ticket.effective_sandbox,
        uses=tenancy.uses + 1,
        first_used=tenancy.first_used or now,
        dirty=True,
    )


def clean(tenancy: Tenancy, trouble: str) -> Tenancy:
    """Return a machine's record after cleaning. With `trouble`, the machine gets no new ticket."""
    return replace(tenancy, dirty=bool(trouble), draining=tenancy.draining or bool(trouble))


def may_serve_again(tenancy: Tenancy, reuse: Reuse | None, now: datetime) -> bool:
    """Return whether a released machine may get another ticket, by the limits of `reuse`.

    This does not decide how long an unused machine is kept: the plan decides that.
    """
    if tenancy.disabled or tenancy.draining:
        return False
    if not tenancy.uses:
        return True
    if reuse is None or tenancy.sandbox.startswith(ALONE):
        return False
    if reuse.max_uses is not None and tenancy.uses >= reuse.max_uses:
        return False
    age = int((now - tenancy.first_used).total_seconds()) if tenancy.first_used else 0
    return reuse.max_age is None or age < reuse.max_age


@dataclass(frozen=True, slots=True)
class ReadyMachine:
    """A free machine that a ticket may get."""

    name: str
    kind: str
    """Kind of the machine. All machines of a kind provide the same tags."""
    sandbox: str = ""
    """Sandbox that the machine is in; empty for a machine without a sandbox."""


@dataclass(frozen=True, eq=False, slots=True)
class Suitable:
    """The kinds of machines that fit tickets with equal tags. Such tickets share this object."""

    kinds: Mapping[str, int]
    """Map of kind to preference, higher first. Of equally preferred kinds, the first is used."""
    limits: tuple[Limit, ...] = ()
    """Limits in which each of these tickets counts."""
    last: frozenset[str] = frozenset()
    """Kinds to use after others of equal preference, because other tickets may need them."""
    after: frozenset[str] = frozenset()
    """Kinds of `last` that other waiting tickets need. Those tickets get these kinds first."""
    limits_at: Mapping[str, tuple[Limit, ...]] = field(default_factory=dict)
    """Map of a kind that lacks an optional tag (`otherwise`) to the limits without that tag."""


@dataclass(frozen=True)
class Terms:
    """The settings in fleet.yaml for assigning machines to tickets."""

    ageing: int = 600
    prefer_reuse: int = 500
    blocked: frozenset[str] = frozenset()
    class_of: Callable[[tuple[str, ...]], int] = lambda _: 0
    """Function that returns the class of a ticket from its tags. Lower classes come first."""
    behind: Mapping[int, int] = field(default_factory=dict)
    """Map of ticket id to the number of turns lost because its owner used machines meanwhile."""
    budgets: tuple["TicketBudget", ...] = ()
    group_of: Callable[[Ticket], str] = lambda _: ""
    """Function that maps a ticket to the group of requests for which budgets count costs."""


@dataclass(frozen=True)
class TicketBudget:
    """One limit of money or machine hours in one period, as the plan computed it."""

    left: Decimal
    takes: Mapping[tuple[str, str], Decimal]
    """Map of (group, kind of machine) to the amount of this budget that one ticket takes."""


class Spending:
    """The remaining amounts of all budgets while machines are assigned."""

    def __init__(self, budgets: Iterable[TicketBudget], group_of: Callable[[Ticket], str]) -> None:
        self._left: list[Decimal] = []
        self._amounts: defaultdict[tuple[str, str], list[tuple[int, Decimal]]] = defaultdict(list)
        for number, budget in enumerate(budgets):
            self._left.append(budget.left)
            for at, amount in budget.takes.items():
                self._amounts[at].append((number, amount))
        self._group_of = group_of

    def stops(self, ticket: Ticket, kinds: Iterable[str]) -> set[str]:
        """Return the kinds of machine that cost this ticket more than some budget has left."""
        if not self._amounts:
            return set()
        group = self._group_of(ticket)
        return {
            kind
            for kind in kinds
            for number, amount in self._amounts.get((group, kind), ())
            if amount > self._left[number]
        }

    def take(self, ticket: Ticket, kind: str) -> None:
        """Subtract the cost of a ticket on a kind of machine from the remaining budgets."""
        for number, amount in self._amounts.get((self._group_of(ticket), kind), ()):
            self._left[number] -= amount


class Lease(NamedTuple):
    """The assignment of a machine to a ticket."""

    ticket: int
    machine: str


@dataclass
class TicketAssignment:
    """The result of an assignment: the leases, with the tags and notes of their tickets."""

    leases: list[Lease] = field(default_factory=list)
    tags: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Map of ticket id to the tags that it got a machine for, including tags from rules."""
    notes: dict[int, str] = field(default_factory=dict)
    """Map of ticket id to a note on its dropped tags, with reasons."""


def assign(
    tickets: Iterable[Ticket],
    ready: Iterable[ReadyMachine],
    suits: Callable[[Ticket], Suitable],
    terms: Terms,
    now: datetime,
) -> TicketAssignment:
    """Assign free machines to waiting tickets. Tickets with a machine count towards limits."""
    spending = Spending(terms.budgets, terms.group_of)
    each = sorted(tickets, key=lambda ticket: ticket.id)
    waiting = [ticket for ticket in each if not ticket.machine]
    held = [ticket for ticket in each if ticket.machine]
    counted: Counter[tuple[Limit, str]] = Counter()
    for ticket in held:
        counted.update(_limit_keys(ticket, suits(ticket).limits))
    machines = [*ready]
    free = _FreeMachines(machines, terms.prefer_reuse)
    assignment = TicketAssignment()
    turns = in_order(waiting, held, terms, now)
    for is_left in (False, True):
        again = []
        for ticket in turns:
            suitable = suits(ticket)
            kept = frozenset[str]() if is_left else suitable.after
            machine = None
            stopped = _forbidden_kinds(ticket, suitable, terms, counted)
            is_stopped = len(stopped) == len(suitable.kinds)
            if not is_stopped and len(assignment.leases) < len(machines):
                machine = free.take(
                    ticket, suitable, spending, {*kept, *stopped} if stopped else kept
                )
            if machine is None:
                if kept:
                    again.append(ticket)
                continue
            assignment.leases.append(Lease(ticket.id, machine.name))
            spending.take(ticket, machine.kind)
            counting = suitable.limits_at.get(machine.kind, suitable.limits)
            counted.update(_limit_keys(ticket, counting))
        turns = again
    return assignment


def in_order(
    waiting: Sequence[Ticket], held: Iterable[Ticket], terms: Terms, now: datetime
) -> list[Ticket]:
    """Return the waiting tickets in order of class, turn of the owner, age and id."""
    classes = {tags: terms.class_of(tags) for tags in {ticket.tags for ticket in waiting}}
    known = {ticket.id: ticket for ticket in waiting}
    ranked = (
        WaitingTicket(
            t.id,
            t.owner,
            (t.priority - t.background) * PRIORITY - classes[t.tags] * CLASS,
            t.opened_at,
        )
        for t in waiting
    )
    owners = (ticket.owner for ticket in held)
    ids = in_turn(ranked, owners, terms.ageing, now, terms.behind)
    return [known[number] for number in ids]


class Had(NamedTuple):
    """A machine that an owner of a ticket had and returned."""

    owner: str
    priority: int
    ended_at: datetime


def places_behind(
    waiting: Iterable[tuple[int, str, int, datetime]],
    ended: Iterable[Had],
    ageing: int,
    now: datetime,
) -> dict[int, int]:
    """Map each ticket id to the points it loses for machines that its owner had while waiting.

    `waiting` has id, owner, priority and opening time. Machines from before the last owner arrived
    deduct at most the age steps that the ticket gained before then. Empty for a single owner.
    """
    waiting = [*waiting]
    oldest: dict[str, datetime] = {}
    for _, owner, _, since in waiting:
        oldest[owner] = min(since, oldest.get(owner, since))
    if len(oldest) < 2:  # noqa: PLR2004 - one owner alone takes no turns
        return {}
    together = max(oldest.values())
    ends: defaultdict[tuple[str, int], list[datetime]] = defaultdict(list)
    priorities = {(owner, priority) for _, owner, priority, _ in waiting}
    for had in ended:
        for owner, priority in priorities:
            if owner == had.owner and had.priority <= priority:
                ends[owner, priority].append(had.ended_at)
    for each in ends.values():
        each.sort()
    behind = {}
    for number, owner, priority, since in waiting:
        own = ends[owner, priority]
        begin = max(together, since)
        later = len(own) - bisect_left(own, begin)
        before = bisect_left(own, begin) - bisect_left(own, since)
        # After `begin`, all owners gain equal steps, so only earlier steps limit the deduction.
        waited = age_steps(now, since, ageing) - age_steps(now, begin, ageing)
        if places := later + min(before, waited):
            behind[number] = places
    return behind


def _limit_keys(ticket: Ticket, limits: Iterable[Limit]) -> list[tuple[Limit, str]]:
    return [(limit, limit.whose(ticket)) for limit in limits]


def _forbidden_kinds(
    ticket: Ticket, suitable: Suitable, terms: Terms, counted: Mapping[tuple[Limit, str], int]
) -> Collection[str]:
    """Return the kinds that a ticket must not get, because of a blocked owner or a limit."""
    if ticket.owner in terms.blocked:
        return suitable.kinds.keys()
    keys = _limit_keys(ticket, suitable.limits)
    full = [key[0] for key in keys if counted.get(key, 0) >= key[0].most]
    if not full:
        return ()
    if not suitable.limits_at:
        return suitable.kinds.keys()
    return [k for k in suitable.kinds if not {*full}.isdisjoint(suitable.limits_at.get(k, full))]


class _FreeMachines:
    """The free machines, by kind and by sandbox."""

    def __init__(self, ready: Iterable[ReadyMachine], prefer_reuse: int) -> None:
        self._prefer_reuse = prefer_reuse
        self._fresh: defaultdict[str, deque[str]] = defaultdict(deque)
        self._used: defaultdict[str, list[ReadyMachine]] = defaultdict(list)
        # Kinds that still have machines, the best last; no machine is added later.
        self._left: dict[Suitable, list[str]] = {}
        for machine in sorted(ready, key=lambda machine: machine.name):
            if machine.sandbox:
                self._used[machine.sandbox].append(machine)
            else:
                self._fresh[machine.kind].append(machine.name)

    def take(
        self, ticket: Ticket, suitable: Suitable, spending: Spending, kept: Collection[str]
    ) -> ReadyMachine | None:
        """Remove and return the best machine for a ticket, or None; skip the kinds in `kept`."""
        stops = spending.stops(ticket, suitable.kinds).union(kept)
        kind = self._best_kind(suitable, stops)
        used = self._best_used(ticket, suitable, stops)
        if used is not None and (
            kind is None or suitable.kinds[used.kind] + self._prefer_reuse >= suitable.kinds[kind]
        ):
            self._used[ticket.sandbox].remove(used)
            return used
        return None if kind is None else ReadyMachine(self._fresh[kind].popleft(), kind)

    def _best_kind(self, suitable: Suitable, stops: Collection[str]) -> str | None:
        left = self._left.get(suitable)
        if left is None:
            # Sort the best kind last, where removal is cheap.
            last_first = reversed([*suitable.kinds])
            left = sorted(last_first, key=lambda k: (suitable.kinds[k], k not in suitable.last))
            self._left[suitable] = left
        while left and not self._fresh.get(left[-1]):
            left.pop()
        best_first = (kind for kind in reversed(left) if kind not in stops)
        return next((kind for kind in best_first if self._fresh.get(kind)), None)

    def _best_used(
        self, ticket: Ticket, suitable: Suitable, stops: Collection[str]
    ) -> ReadyMachine | None:
        own = self._used.get(ticket.sandbox, ()) if ticket.sandbox else ()
        able = (m for m in own if m.kind in suitable.kinds and m.kind not in stops)
        return max(able, key=lambda m: suitable.kinds[m.kind], default=None)
