"""Apply the rules to a ticket's tags, and explain why a ticket waits."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache, partial
from math import inf
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fleet.model.decisions import MISMATCHES, Decision
from fleet.model.plan import Create, Plan, Unserved
from fleet.model.tickets import Limit, Ticket, TicketState, find_fault, to_request
from fleet.planner.demand import Drops, EqualRequests, Teams
from fleet.planner.fitting import FitRequirements, find_unfit
from fleet.planner.layout import class_of
from fleet.planner.limits import limits_on
from fleet.planner.turns import WaitingTicket, in_turn
from fleet.schema.findings import nearest
from fleet.schema.model import Fleet, Pool, TicketQueue, serves_queue
from fleet.tagrules.derive import NOTHING
from fleet.tagrules.offers import Offer, ask_of_tags, offer_of_pool
from fleet.tagrules.requests import Judge, Memberships
from fleet.tagrules.vocabulary import Vocabulary, tag_name
from fleet.words.pools import describe_pool

_MAX_SHOWN_NAMES = 12
ITS_TURN = "each `fleet apply` assigns free machines and creates others"


def why_refused(fleet: Fleet, queue: str, ticket: Ticket) -> str:
    """Return the reason why a ticket cannot be opened; empty if it can be opened."""
    names = (ticket.sandbox, ticket.owner, ticket.team, ticket.submitter)
    fault = find_fault(ticket.tags, [name for name in names if name])
    return fault or _find_unknown_tag(fleet, queue, ticket.tags)


class Grant(NamedTuple):
    """A tag that rules add or deny for a ticket, with the reason and the key in fleet.yaml."""

    tag: str
    because: str
    path: tuple[str | int, ...]


@dataclass(frozen=True)
class Judged:
    """The effect of the rules on a ticket's tags."""

    given: tuple[Grant, ...] = ()
    """Tags that the rules `powerful` and `derive` add for the ticket's build."""
    dropped: tuple[Grant, ...] = ()
    """Denied tags without which the ticket may still run (`otherwise`)."""
    denied: tuple[Grant, ...] = ()
    """Denied tags because of which the ticket gets no machine."""
    unknown: str = ""
    """Reason why a denial is uncertain, such as unknown group members; empty if it is certain."""


def judge(fleet: Fleet, ticket: Ticket, memberships: Memberships, today: date) -> Judged:
    """Apply the rules to a ticket's tags, for the build and the submitter of the ticket."""
    # Patterns apply only to builds, and compiling the patterns is slow.
    acting = fleet if ticket.build else fleet.model_copy(update={"powerful": []})
    asking = Judge(acting, memberships, today).ask_of(to_request(ticket), NOTHING)
    own = [Grant(r.tag, r.because, r.path) for r in asking.refused if r.tag in ticket.tags]
    names = {origin.tag: origin for origin in asking.origins if origin.path}
    denied = own if asking.held else []
    return Judged(
        given=tuple(Grant(tag, o.because, o.path) for tag, o in sorted(names.items())),
        dropped=() if asking.held else tuple(own),
        denied=tuple(_add_hint(fleet, ticket, each) for each in denied),
        unknown="" if isinstance(memberships, Mapping) or not denied else memberships.unknown,
    )


def _add_hint(fleet: Fleet, ticket: Ticket, denied: Grant) -> Grant:
    """Return a denied tag. Add a hint to its reason if rules could grant the tag."""
    ruled = any(denied.tag in rule.ask for rule in fleet.powerful)
    if not ruled:
        return denied
    hint = (
        f"no rule of powerful gives it to {ticket.build}"
        if ticket.build
        else "rules of powerful give it to builds: name the build with --build"
    )
    return denied._replace(because=f"{denied.because}; {hint}")


def _find_unknown_tag(fleet: Fleet, queue: str, tags: Iterable[str]) -> str:
    """Return an error about the first unknown tag; empty if every tag is known."""
    provided = {tag for _, offer in _offers(fleet, queue) for tag in offer.provides}
    vocabulary = Vocabulary(fleet)
    for tag in sorted(tags):
        if tag in provided or vocabulary.names_of(tag) or tag_name(tag) in vocabulary.numeric:
            continue
        names = sorted({*provided} | {name for name in fleet.tags if not name.endswith("*")})
        meant = nearest(tag, names)
        hint = (
            f"did you mean {meant}?"
            if meant
            else f"known are {', '.join(names[:_MAX_SHOWN_NAMES])}"
        )
        return f"no pool of queue {queue} provides {tag}; {hint if names else 'no pool has tags'}"
    return ""


def why_waits(fleet: Fleet, queue: str, ticket: Ticket, others: Iterable[Ticket]) -> str:
    """Return the reason why a ticket waits, at the time of its client's latest call."""
    each = {other.id: other for other in others} | {ticket.id: ticket}
    return why_all_wait(fleet, queue, each.values(), ticket.heard_at)[ticket.id]


def why_all_wait(
    fleet: Fleet, queue: str, tickets: Iterable[Ticket], now: datetime
) -> dict[int, str]:
    """Map the ids of waiting tickets to reasons: blocked, no pool, a limit, or its turn.

    A limit counts the tickets with a machine, and the tickets before this one that wait for a
    machine. If a ticket may now run without a tag, the limits of that tag do not apply to it.
    """
    desk = fleet.queues[queue]
    if not isinstance(desk, TicketQueue):
        raise TypeError(queue)
    open_tickets = _add_rule_tags(fleet, tickets, now)
    held = [each for each in open_tickets if each.state is TicketState.READY]
    waiting = {each.id: each for each in open_tickets if each.state is TicketState.WAITING}
    tag_class = cache(partial(class_of, fleet, Vocabulary(fleet)))
    known = (
        WaitingTicket(t.id, t.owner, t.priority - t.background, t.opened_at, tag_class(t.tags))
        for t in waiting.values()
    )
    limits = cache(partial(limits_on, fleet, queue))
    drops = Drops(fleet, now)
    unfit = cache(partial(_explain_unfit, fleet, queue, drops))
    turn = cache(partial(_its_turn, fleet, queue, drops))
    running = Counter((limit, limit.whose(each)) for each in held for limit in limits(each.tags))
    before: Counter[tuple[Limit, str]] = Counter()
    reasons = {}
    for number in in_turn(known, (each.owner for each in held), desk.ageing, now, {}):
        ticket = waiting[number]
        dropped = drops.of(ticket.tags, ticket.opened_at)
        tags = tuple(tag for tag in ticket.tags if tag not in dropped)
        keys = [(limit, limit.whose(ticket)) for limit in limits(tags)]
        full = next((k for k in keys if running[k] + before[k] >= k[0].most), None)
        if ticket.owner in desk.blocked:
            reasons[ticket.id] = f"queues.{queue}.blocked lists its owner {ticket.owner}"
        elif because := unfit(ticket.tags):
            reasons[ticket.id] = f"no pool fits: {because}"
        elif full:
            limit, who = full
            reasons[ticket.id] = limit.sentence(who, running[full], before[full])
        elif ticket.note:
            reasons[ticket.id] = ticket.note
        else:
            figures = [
                limit.sentence(who, running[limit, who], before[limit, who]) for limit, who in keys
            ]
            before.update(keys)
            reasons[ticket.id] = "; ".join([turn(ticket.tags), *figures])
    return reasons


def _add_rule_tags(fleet: Fleet, tickets: Iterable[Ticket], now: datetime) -> list[Ticket]:
    """Add the tags from rules to tickets, because limits and pools use these tags."""
    teams = Teams(fleet, {})
    known = [_set_team(teams, each._replace(tags=each.counting)) for each in tickets]
    if not (fleet.derive or (fleet.powerful and any(each.build for each in known))):
        return known
    judge = Judge(fleet, {}, now.date())
    found = []
    for each in known:
        origins = () if each.machine else judge.ask_of(to_request(each), NOTHING).origins
        added = {origin.tag for origin in origins if origin.path}
        found.append(each._replace(tags=tuple(sorted({*each.tags, *added}))))
    return found


def _set_team(teams: Teams, ticket: Ticket) -> Ticket:
    """Return a ticket with its team. If no team is stated, `teams` determines the team."""
    if ticket.team or not teams.are_stated:
        return ticket
    return ticket._replace(team=teams.of(to_request(ticket)) or "")


def _explain_unfit(fleet: Fleet, queue: str, drops: Drops, tags: tuple[str, ...]) -> str:
    """Return the reason why no pool can ever serve these tags; empty if a pool can.

    Tags that may be dropped after a while are not required.
    """
    if unknown := _find_unknown_tag(fleet, queue, tags):
        return unknown
    reasons = []
    for name, offer in _offers(fleet, queue):
        unfit = _find_mismatches(fleet, drops, tags, name, offer)
        if not unfit:
            return ""
        reasons.append(describe_pool(unfit))
    return "; ".join(reasons) or f"no pool serves queue {queue}"


def _find_mismatches(
    fleet: Fleet, drops: Drops, tags: Iterable[str], pool: str, offer: Offer
) -> list[Decision]:
    """Return the mismatches between tags and a pool, once all optional tags are dropped."""
    dropped = drops.within(tags, inf) - offer.provides
    asked = [tag for tag in tags if tag not in dropped]
    unfit = find_unfit(fleet, FitRequirements(None, ask_of_tags(fleet, asked)), pool, offer)
    return [each for each in unfit if each.code in MISMATCHES]


def _its_turn(fleet: Fleet, queue: str, drops: Drops, tags: tuple[str, ...]) -> str:
    """Return the reason why a ticket waits although a pool fits it."""
    offers = _offers(fleet, queue)
    fitting = [
        name for name, offer in offers if not _find_mismatches(fleet, drops, tags, name, offer)
    ]
    pools = {name: pool for name in fitting if isinstance(pool := fleet.pools[name], Pool)}
    if any(pool.mode == "apply" for pool in pools.values()):
        return ITS_TURN
    modes = ", ".join(f"pools.{name}.mode is {pool.mode}" for name, pool in pools.items())
    return f"no free machine fits it, and no machine is created{f': {modes}' if modes else ''}"


def _offers(fleet: Fleet, queue: str) -> Iterator[tuple[str, Offer]]:
    for name, pool in sorted(fleet.pools.items()):
        if serves_queue(pool, queue):
            yield name, offer_of_pool(fleet, name, ())


def note_lacking(signed: EqualRequests, lacking: Collection[str]) -> str:
    """Return a note on dropped tags; empty if the machine has all requested tags."""
    parts = [
        f"without {tag}: no machine with it in time (tags.{tag}.otherwise)"
        for tag in sorted(lacking)
    ]
    parts += [f"without {each.tag}: {each.because}" for each in signed.refused]
    return "; ".join(parts)


def find_held(fleet: Fleet, plan: Plan, queue: str) -> dict[int, str]:
    """Map ticket ids to the plan's reasons to wait: budgets, pools, tags, failed attempts.

    Limits are missing here, because they depend on the tickets at the time of the client's call:
    see `why_all_wait`.
    """
    reasons: dict[int, str] = {}
    for unserved in plan.unserved:
        is_told = "asked_by" in unserved.path or unserved.path[:1] == ("pools",)
        if is_told or any(each.is_budget for each in unserved.blocked):
            because = _explain_unserved(fleet, unserved)
            tickets = (key for key in unserved.requests if key.startswith(f"{queue}/"))
            reasons |= {_id_of(key): because for key in tickets}
    failures = {each.pool: each.failures for each in plan.pools if each.failures}
    unmade = {None, *(each.worker for each in plan.actions if isinstance(each, Create))}
    for signature in plan.signatures if failures else ():
        failed = [f"pool {name}: {failures[name]}" for name in signature.pools if name in failures]
        for key in signature.requests if failed and signature.queue == queue else ():
            if signature.by_worker.get(key) in unmade:
                known = reasons.get(_id_of(key), "")
                reasons[_id_of(key)] = "; ".join(filter(None, (known, *failed)))
    return reasons


def _id_of(key: str) -> int:
    """Return the id of a ticket from the key of its request, `QUEUE/ID`."""
    return int(key.partition("/")[2])


def _explain_unserved(fleet: Fleet, unserved: Unserved) -> str:
    """Return the plan's reason to wait, with the end of each budget's period, or what to raise.

    A budget whose rest is unknown may pay as soon as it is known.
    """
    zone = ZoneInfo(fleet.money.time_zone)
    ends: defaultdict[str, list[datetime]] = defaultdict(list)
    for each in unserved.blocked:
        if each.is_budget and each.left is not None:
            ends[".".join(map(str, each.path))] += [each.until] if each.until else []
    parts = (
        f"{key} pays no earlier than {min(own).astimezone(zone):%Y-%m-%d %H:%M %Z}"
        if own
        else f"raise {key}"
        for key, own in ends.items()
    )
    return "; ".join((unserved.because, *parts))
