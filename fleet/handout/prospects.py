"""This module says what a ticket may hope for, from fleet.yaml and the other tickets alone."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache, partial
from typing import NamedTuple

from fleet.draft.layout import class_of
from fleet.draft.limits import limits_on
from fleet.schema.findings import nearest
from fleet.schema.model import Fleet, Pool, TicketQueue
from fleet.tagrules import Offer, ask_of_tags, find_mismatch, offer_of_pool, serves_queue
from fleet.tagrules.asking import Judge, Memberships
from fleet.tagrules.numbers import tag_name
from fleet.tagrules.told import NOTHING
from fleet.tagrules.vocabulary import Vocabulary
from fleet.tickets import Limit, Ticket, TicketState, find_fault, to_request
from fleet.tickets.assignment import Terms, in_order

_SHOWN = 12
_ITS_TURN = "each `fleet apply` gives out the machines that are free and orders the rest"


def why_refused(fleet: Fleet, queue: str, ticket: Ticket) -> str:
    """Return why a ticket is not even opened, in a sentence; empty where it is."""
    names = (ticket.sandbox, ticket.owner, ticket.team, ticket.submitter)
    fault = find_fault(ticket.tags, [name for name in names if name])
    return fault or _find_unknown_tag(fleet, queue, ticket.tags)


class Grant(NamedTuple):
    """A tag that a ticket asks for, or may not have, and the key of fleet.yaml that decides."""

    tag: str
    because: str
    path: tuple[str | int, ...]


@dataclass(frozen=True)
class Judged:
    """What the rules make of a ticket's tags."""

    given: tuple[Grant, ...] = ()
    """Tags that `powerful` and `derive` ask for, of what the ticket says of its build."""
    dropped: tuple[Grant, ...] = ()
    """Tags that it asks for and may not have, and may do without (`otherwise`)."""
    denied: tuple[Grant, ...] = ()
    """Tags that it asks for and may not have: it gets no machine."""
    unknown: str = ""
    """Why nobody can tell, where that hangs on who is in which group."""


def judge(fleet: Fleet, ticket: Ticket, memberships: Memberships, today: date) -> Judged:
    """Return what the rules make of a ticket's tags, by its build and who asks."""
    # Patterns are for builds, and take long to make ready.
    acting = fleet if ticket.build else fleet.model_copy(update={"powerful": []})
    asking = Judge(acting, memberships, today).ask_of(to_request(ticket), NOTHING)
    own = [Grant(r.tag, r.because, r.path) for r in asking.refused if r.tag in ticket.tags]
    names = {origin.tag: origin for origin in asking.origins if origin.path}
    denied = own if asking.held else []
    return Judged(
        given=tuple(Grant(tag, o.because, o.path) for tag, o in sorted(names.items())),
        dropped=() if asking.held else tuple(own),
        denied=tuple(_with_hint(fleet, ticket, each) for each in denied),
        unknown="" if isinstance(memberships, Mapping) or not denied else memberships.unknown,
    )


def _with_hint(fleet: Fleet, ticket: Ticket, denied: Grant) -> Grant:
    """Return a refusal; where a rule may give the tag, with what the ticket has to say for it."""
    ruled = any(denied.tag in rule.ask for rule in fleet.powerful)
    if not ruled:
        return denied
    hint = (
        f"no rule of powerful gives it to {ticket.build}"
        if ticket.build
        else "rules of powerful give it to builds: say which it is (--build)"
    )
    return denied._replace(because=f"{denied.because}; {hint}")


def _find_unknown_tag(fleet: Fleet, queue: str, tags: Iterable[str]) -> str:
    """Return what is said of the first tag that nothing declares or provides; empty: none."""
    provided = {tag for _, offer in _offers(fleet, queue) for tag in offer.provides}
    vocabulary = Vocabulary(fleet)
    for tag in sorted(tags):
        if tag in provided or vocabulary.names_of(tag) or tag_name(tag) in vocabulary.numeric:
            continue
        names = sorted({*provided} | {name for name in fleet.tags if not name.endswith("*")})
        meant = nearest(tag, names)
        hint = f"did you mean {meant}?" if meant else f"known are {', '.join(names[:_SHOWN])}"
        return f"no pool of queue {queue} provides {tag}; {hint if names else 'none has any tag'}"
    return ""


def why_waits(fleet: Fleet, queue: str, ticket: Ticket, others: Iterable[Ticket]) -> str:
    """Return why a ticket waits, as of when its client was last heard."""
    each = {other.id: other for other in others} | {ticket.id: ticket}
    return why_all_wait(fleet, queue, each.values(), ticket.heard_at)[ticket.id]


def why_all_wait(
    fleet: Fleet, queue: str, tickets: Iterable[Ticket], now: datetime
) -> dict[int, str]:
    """Return why each ticket waits: blocked, nothing can fit it, a limit, a budget, or its turn.

    To a limit counts who has a machine, and who waits for one before it.
    """
    terms = terms_of(fleet, queue)
    open_tickets = _as_asked(fleet, tickets, now)
    held = [each for each in open_tickets if each.state is TicketState.READY]
    waiting = [each for each in open_tickets if each.state is TicketState.WAITING]
    limits = cache(partial(limits_on, fleet, queue))
    unfit = cache(partial(_why_unfit, fleet, queue))
    turn = cache(partial(_its_turn, fleet, queue))
    running = Counter((limit, limit.whose(each)) for each in held for limit in limits(each.tags))
    before: Counter[tuple[Limit, str]] = Counter()
    said = {}
    for ticket in in_order(waiting, held, terms, now):
        keys = [(limit, limit.whose(ticket)) for limit in limits(ticket.tags)]
        full = next((k for k in keys if running[k] + before[k] >= k[0].most), None)
        if ticket.owner in terms.blocked:
            said[ticket.id] = (
                f"queues.{queue}.blocked names its owner {ticket.owner}: it gets no machine"
            )
        elif because := unfit(ticket.tags):
            said[ticket.id] = f"nothing fits it: {because}"
        elif full:
            limit, who = full
            said[ticket.id] = limit.sentence(who, running[full], before[full])
        elif ticket.note:
            said[ticket.id] = ticket.note
        else:
            told = [
                limit.sentence(who, running[limit, who], before[limit, who]) for limit, who in keys
            ]
            before.update(keys)
            said[ticket.id] = "; ".join([turn(ticket.tags), *told])
    return said


def _as_asked(fleet: Fleet, tickets: Iterable[Ticket], now: datetime) -> list[Ticket]:
    """Return tickets with the tags that rules give them, as limits and pools look at them."""
    known = [replace(each, tags=each.counting) for each in tickets]
    if not (fleet.derive or (fleet.powerful and any(each.build for each in known))):
        return known
    judge = Judge(fleet, {}, now.date())
    found = []
    for each in known:
        origins = () if each.machine else judge.ask_of(to_request(each), NOTHING).origins
        added = {origin.tag for origin in origins if origin.path}
        found.append(replace(each, tags=tuple(sorted({*each.tags, *added}))))
    return found


def terms_of(fleet: Fleet, queue: str) -> Terms:
    """Return what fleet.yaml says of how tickets of a queue get machines."""
    desk = fleet.queues[queue]
    if not isinstance(desk, TicketQueue):
        raise TypeError(queue)
    return Terms(
        ageing=desk.ageing,
        prefer_reuse=desk.prefer_reuse,
        blocked=frozenset(desk.blocked),
        blocked_at=("queues", queue, "blocked"),
        class_of=partial(class_of, fleet, Vocabulary(fleet)),
    )


def _why_unfit(fleet: Fleet, queue: str, tags: tuple[str, ...]) -> str:
    """Return why no pool can ever serve such a ticket as things are; empty where one can.

    Tags without which it may run after a while are not asked for.
    """
    if unknown := _find_unknown_tag(fleet, queue, tags):
        return unknown
    ask = ask_of_tags(fleet, tags)
    said = []
    for name, offer in _offers(fleet, queue):
        mismatch = find_mismatch(ask, offer)
        if not mismatch:
            return ""
        said.append(f"pool {name} {mismatch}")
    return "; ".join(said) or f"no pool serves queue {queue}"


def _its_turn(fleet: Fleet, queue: str, tags: tuple[str, ...]) -> str:
    """Return what a ticket waits for that fits some pool: a machine, where any may be made."""
    ask = ask_of_tags(fleet, tags)
    fitting = [name for name, offer in _offers(fleet, queue) if not find_mismatch(ask, offer)]
    pools = {name: pool for name in fitting if isinstance(pool := fleet.pools[name], Pool)}
    if any(pool.mode == "apply" for pool in pools.values()):
        return _ITS_TURN
    modes = ", ".join(f"pools.{name}.mode is {pool.mode}" for name, pool in pools.items())
    return f"no free machine fits it, and none is made{f': {modes}' if modes else ''}"


def _offers(fleet: Fleet, queue: str) -> Iterator[tuple[str, Offer]]:
    for name, pool in sorted(fleet.pools.items()):
        if serves_queue(pool, queue):
            yield name, offer_of_pool(fleet, name, ())
