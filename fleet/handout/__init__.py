"""This module gives the machines of a world to the tickets that wait, as every plan would have it.

Who may ask for what, what fits, what may be dropped after a while and what budgets have left is
what the plan says; in which order tickets get machines, `assignment` says.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from zoneinfo import ZoneInfo

from fleet.budgets.ledger import periods
from fleet.budgets.spending_limits import spending_limits
from fleet.census.readiness import is_up
from fleet.census.units import State
from fleet.demand import Signed, Supply, required_of, sign_demand
from fleet.draft import Draft
from fleet.draft.layout import Layout, class_of, lay_out, priority_at
from fleet.draft.limits import limits_on
from fleet.draft.supplies import find_supplies
from fleet.facts import Machine, World
from fleet.handout.prospects import terms_of
from fleet.plan import Plan, Unserved
from fleet.plan.money import BudgetVerdict
from fleet.schema.model import Fleet
from fleet.steps.drafting import begin
from fleet.tagrules.vocabulary import Vocabulary
from fleet.tickets import SANDBOX, Ticket, expire
from fleet.tickets.assignment import Assignment, Budget, Ready, Suitable, Terms, assign
from fleet.tickets.desk import desks_of


def hand_out(
    fleet: Fleet,
    world: World,
    queue: str,
    tickets: Iterable[Ticket],
    besides: Collection[str] = (),
) -> Assignment:
    """Return which of a queue's tickets get which machines, and why the others wait.

    What the world does not tell of, as a ticket that was opened since, waits for the next time.
    No ticket gets a machine that is `besides`.
    """
    drafts = begin(fleet, world)
    supplies = find_supplies(fleet, world, drafts)
    demand = sign_demand(fleet, world, supplies)
    signed = {
        request.key: each for each in demand if each.queue == queue for request in each.requests
    }
    terms = terms_of(fleet, queue)
    if spending_limits(fleet):
        terms = _with_budgets(terms, lay_out(fleet, world, drafts, supplies, demand), queue)
    current = [expire(ticket, world.time) for ticket in tickets]
    # To limits and classes counts what a ticket asks for by the rules, too.
    taking = [
        replace(each, tags=each.counting)
        if each.machine
        else replace(each, tags=tuple(required_of(signed[f"{queue}/{each.id}"].ask)))
        for each in current
        if each.is_open and (each.machine or f"{queue}/{each.id}" in signed)
    ]
    free = _ready(drafts, supplies, queue, desks_of(fleet, world.queues))
    kinds = {each.name: each for each in free if each.name not in besides}
    suits = _suits(fleet, queue, supplies, signed, demand)
    assignment = assign(taking, kinds.values(), suits, terms, world.time)
    for lease in assignment.leases:
        each = signed[f"{queue}/{lease.ticket}"]
        lacking = each.dropped - supplies[kinds[lease.machine].kind].offer.provides
        ask = replace(each.ask, required=each.ask.required - lacking)
        assignment.tags[lease.ticket] = tuple(required_of(ask))
        if note := _note(each, lacking):
            assignment.notes[lease.ticket] = note
    return assignment


def _note(signed: Signed, lacking: Collection[str]) -> str:
    """Return which tags a ticket has to do without; empty where it has all that it asked for."""
    parts = [
        f"without {tag}: no machine with it came in time (tags.{tag}.otherwise)"
        for tag in sorted(lacking)
    ]
    parts += [f"without {each.tag}: {each.because}" for each in signed.refused]
    return "; ".join(parts)


def _with_budgets(terms: Terms, layout: Layout, queue: str) -> Terms:
    """Return the terms with what budgets have left by this plan, and what tickets take of it."""
    groups = {each.key: group.id for group in layout.groups for each in group.requests}
    rows = [account.row for account in layout.accounts]
    return replace(
        terms,
        budgets=tuple(Budget(row.path, row.because, row.room, row.requests) for row in rows),
        group_of=lambda ticket: groups.get(f"{queue}/{ticket.id}", ""),
    )


def find_held(fleet: Fleet, world: World, plan: Plan, queue: str) -> dict[int, str]:
    """Return which tickets a budget holds back, until when, or a tag that they may not have."""
    said: dict[int, str] = {}
    for unserved in plan.unserved:
        accounts = [each for each in plan.budgets if each.path in unserved.paths]
        tickets = [key for key in unserved.requests if key.startswith(f"{queue}/")]
        if tickets and (accounts or "asked_by" in unserved.path):
            because = _why_held(fleet, world, unserved, accounts)
            said |= {int(key.partition("/")[2]): because for key in tickets}
    return said


def _why_held(
    fleet: Fleet, world: World, unserved: Unserved, accounts: Sequence[BudgetVerdict]
) -> str:
    """Return what holds tickets back: each budget in the period that has least left."""
    if not accounts:
        return unserved.because
    ends = {period.name: (period.end, period.next_end) for period in periods(fleet, world.time)}
    zone = ZoneInfo(fleet.money.time_zone)
    parts = []
    for path in dict.fromkeys(each.path for each in accounts):
        key, own = ".".join(map(str, path)), [each for each in accounts if each.path == path]
        left, at = min((each.left or Decimal(0), n) for n, each in enumerate(own))
        each = own[at]
        if each.left is None:
            parts.append(f"{key}: what was spent is not known")
            continue
        planned = f", {each.planned:.2f} planned for others" if each.planned else ""
        until = ends[each.period][each.coming].astimezone(zone)
        parts.append(
            f"{key}: {left:.2f} of {each.limit:.2f} {each.unit} left {each.when} "
            f"({each.spent:.2f} spent, {each.reserved:.2f} reserved{planned}), too little for "
            f"this ticket until {until:%Y-%m-%d %H:%M %Z}"
        )
    paths = {each.path for each in accounts}
    others = [b.because for b in unserved.blocked if b.path not in paths]
    return "; ".join((*parts, *dict.fromkeys(others)))


def _ready(
    drafts: Mapping[str, Draft],
    supplies: Mapping[str, Supply],
    queue: str,
    desks: Iterable[str],
) -> Iterable[Ready]:
    """Yield the machines that are free, and known to be."""
    given_out = frozenset(desks)
    for key, supply in supplies.items():
        if queue not in supply.queues or supply.pool not in drafts:
            continue
        draft = drafts[supply.pool]
        idle = {unit.name: unit for unit in draft.census.having(State.IDLE)}
        for name in supply.units if not _is_left_alone(draft) else ():
            unit = idle.get(name)
            if unit is None or not _answers(draft, unit.machine):
                continue
            if unit.worker is not None and unit.registry in given_out:
                yield Ready(name, key, _sandbox(unit.worker.requires))


def _answers(draft: Draft, machine: Machine | None) -> bool:
    """Say whether a machine can be given out now: one that reboots or ends was up before."""
    if machine is None:
        return True
    is_asked = draft.pool is not None and draft.pool.ready is not None
    answers = machine.misses == 0 if is_asked else not machine.misses
    return answers and is_up(draft.fleet, draft.name, machine)


def _is_left_alone(draft: Draft) -> bool:
    return bool(draft.census.blind) or (draft.pool is not None and draft.pool.mode == "drain")


def _sandbox(requires: Iterable[str]) -> str:
    return next((t.removeprefix(SANDBOX) for t in requires if t.startswith(SANDBOX)), "")


def _suits(
    fleet: Fleet,
    queue: str,
    supplies: Mapping[str, Supply],
    signed: Mapping[str, Signed],
    demand: Iterable[Signed],
) -> Callable[[Ticket], Suitable]:
    """Return what says which machines suit a ticket; one value for all that ask alike.

    What a request of another queue has called up suits none here.
    """
    known: dict[object, Suitable] = {}
    vocabulary = Vocabulary(fleet)
    is_low = cache(lambda asked: class_of(fleet, vocabulary, asked) > 0)
    callers: defaultdict[str, set[tuple[bool, str]]] = defaultdict(set)
    for signed_ in demand:
        for kind in {*signed_.workers_of} - signed_.last_of:
            callers[kind].add((is_low(signed_.ask.required), signed_.queue))

    def suits(ticket: Ticket) -> Suitable:
        each = None if ticket.machine else signed.get(f"{queue}/{ticket.id}")
        key = (each.id, ()) if each else ("", ticket.tags)
        if key not in known:
            required = each.ask.required if each else frozenset(ticket.tags)
            last = each.last_of if each else frozenset[str]()
            calling = {
                kind: {at for low, at in callers[kind] if is_low(required) or not low}
                for kind in last
            }
            known[key] = Suitable(
                kinds={
                    kind: priority_at(fleet, supplies[kind].pool, required)
                    for kind in (each.workers_of if each else ())
                    if calling.get(kind, set()) <= {queue}
                },
                limits=limits_on(fleet, queue, required),
                last=last,
                after=frozenset(kind for kind in last if calling[kind]),
            )
        return known[key]

    return suits
