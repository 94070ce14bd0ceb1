"""This module says what a ticket may hope for, from fleet.yaml and the other tickets alone."""

from collections import Counter
from collections.abc import Iterable, Iterator

from fleet.limits import limits_on
from fleet.schema.findings import nearest
from fleet.schema.model import Fleet, HooksPool, TicketQueue
from fleet.tagrules import Offer, ask_of_tags, find_mismatch, offer_of_pool, serves_queue
from fleet.tagrules.numbers import tag_name
from fleet.tagrules.vocabulary import Vocabulary
from fleet.tickets import Ticket, TicketState

_SHOWN = 12


def find_unknown_tag(fleet: Fleet, queue: str, tags: Iterable[str]) -> str:
    """Return what is said of the first tag that nothing declares or provides; empty: none."""
    vocabulary = Vocabulary(fleet)
    known = {tag for _, offer in _offers(fleet, queue) for tag in offer.provides}
    for tag in sorted(tags):
        if tag in known or vocabulary.names_of(tag) or tag_name(tag) in vocabulary.numeric:
            continue
        names = sorted(known | {name for name in fleet.tags if not name.endswith("*")})
        meant = nearest(tag, names)
        hint = f"did you mean {meant}?" if meant else f"known are {', '.join(names[:_SHOWN])}"
        return f"no pool of queue {queue} provides {tag}; {hint if names else 'none has any tag'}"
    return ""


def why_waits(fleet: Fleet, queue: str, ticket: Ticket, others: Iterable[Ticket]) -> str:
    """Return why a ticket waits: it is blocked, nothing can fit it, a limit, or its turn."""
    desk = fleet.queues[queue]
    if isinstance(desk, TicketQueue) and ticket.owner in desk.blocked:
        return f"queues.{queue}.blocked names its owner {ticket.owner}: it gets no machine"
    unfit = _why_unfit(fleet, queue, ticket)
    if unfit:
        return f"nothing fits it: {unfit}"
    ready = [each for each in others if each.state is TicketState.READY]
    for limit in limits_on(fleet, queue, ticket.tags):
        held = Counter(
            limit.whose(each) for each in ready if limit in limits_on(fleet, queue, each.tags)
        )
        who = limit.whose(ticket)
        if held[who] >= limit.most:
            return limit.sentence(who, held[who])
    return "no free machine fits it yet; `fleet apply` gives out what is free and orders the rest"


def _why_unfit(fleet: Fleet, queue: str, ticket: Ticket) -> str:
    """Return why no pool can ever serve a ticket as things are; empty where one can.

    Tags without which it may run after a while are not asked for.
    """
    ask = ask_of_tags(fleet, ticket.tags)
    said = []
    for name, offer in _offers(fleet, queue):
        mismatch = find_mismatch(ask, offer)
        if not mismatch:
            return ""
        said.append(f"pool {name} {mismatch}")
    return "; ".join(said) or f"no pool serves queue {queue}"


def _offers(fleet: Fleet, queue: str) -> Iterator[tuple[str, Offer]]:
    for name, pool in sorted(fleet.pools.items()):
        if not isinstance(pool, HooksPool) and serves_queue(pool, queue):
            yield name, offer_of_pool(fleet, name, ())
