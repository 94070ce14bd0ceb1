"""A waiting request in a plan, and the reasons for its state: tags, unknown facts, each pool."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from fleet.explain.case import Case, PlaceInLine
from fleet.explain.options import mark_chosen
from fleet.explain.tags import enforcer_of_limit
from fleet.explain.turns import LimitTurn
from fleet.explain.values import ExplainedReason, GivenRule
from fleet.model.decisions import MISMATCHES, Code, Decision, NoMachineReason, Served, Unfit
from fleet.model.facts import PlaceFacts, Request, Unknown
from fleet.model.plan import Signature, Unserved
from fleet.planner.demand import Drops, judge_of
from fleet.planner.inventory import PoolInventory
from fleet.schema.findings import listed
from fleet.schema.model import TicketQueue
from fleet.schema.units import write_duration
from fleet.tagrules.derive import NOTHING
from fleet.tagrules.sources import Claim, Enforcer, weakest
from fleet.tagrules.vocabulary import Vocabulary
from fleet.words import answers
from fleet.words.pools import describe_pool, with_messages
from fleet.words.waiting import STATE

ARCHITECTURE = "worker:build-arch:"


@dataclass(frozen=True)
class Asked:
    """A waiting request, with the decisions of the plan about it."""

    case: Case
    key: str

    @cached_property
    def signature(self) -> Signature:
        """Return the group of requests that fleet.yaml treats equally."""
        return self.case.signatures[self.key]

    @cached_property
    def unserved(self) -> Unserved | None:
        """Return the plan's reason why the request gets no machine; None if it gets one."""
        return self.case.unserved.get(self.key)

    @cached_property
    def request(self) -> Request | None:
        """Return the request as its queue lists it."""
        found = self.case.find(self.key)
        return found[0] if found else None

    @cached_property
    def worker(self) -> str:
        """Return the existing worker that serves the request next; empty if none does."""
        name = self.signature.by_worker.get(self.key, "")
        return "" if name in self.case.uncreated else name

    @property
    def machine(self) -> str:
        """Return the worker that serves the request: existing or new; empty if none does."""
        return self.case.served.get(self.key, "")

    @property
    def without(self) -> str:
        """Return ", without TAGS" for waived tags that its worker does not provide; or empty."""
        verdict = self.case.verdicts.get(self.machine)
        offer = self.case.decider.offers.get(verdict.pool) if verdict else None
        provides = offer.provides if offer else ()
        missing = listed([tag for tag in self.signature.dropped if tag not in provides])
        return f", without {missing}" if missing else ""

    @property
    def never(self) -> bool:
        """Return whether no existing or new worker of this fleet can ever run the request."""
        known, unserved = self.case.hopeless, self.unserved
        if unserved is None or unserved.blocked:
            return False
        if id(unserved) not in known:
            known[id(unserved)] = not self._is_servable(unserved)
        return known[id(unserved)]

    def _is_servable(self, unserved: Unserved) -> bool:
        if any(each.code is Unfit.IMAGE_UNPROVEN for each in unserved.decisions):
            return True
        case, signature = self.case, self.signature
        asked = case.asks_later(signature)
        return any(case.decider.fits(asked, name) for name in case.fleet.pools) or any(
            signature.queue in queues and asked.fits(offer) for queues, offer, _ in case.classes
        )

    @cached_property
    def blind(self) -> list[PoolInventory]:
        """Return the suitable pools that create no machines because of unknown facts."""
        names = [each.pool for each in self.unserved.blocked] if self.unserved else []
        pools = (self.case.inventory[name] for name in names if name in self.case.inventory)
        return [each for each in pools if each.blind]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the unknown facts that stop suitable pools from creating machines."""
        return tuple(dict.fromkeys(because for each in self.blind for because in each.blind))

    @property
    def unread(self) -> tuple[str, ...]:
        """Return a noun for each unreadable source of machines."""
        is_lost = isinstance(self.case.world.stacks, Unknown)
        names = (
            f"pool {each.pool}" if each.listed else f"provider {each.provider}"
            for each in self.blind
        )
        return tuple(dict.fromkeys(STATE if is_lost else f"the machines of {n}" for n in names))

    @cached_property
    def turn(self) -> LimitTurn | None:
        """Return the turn at a limit, by assumed durations if the start is unknown."""
        turn = None if self.blind else self.case.turns.get(self.key)
        return turn if turn is None or turn.first else self.case.assumed_turns.get(self.key, turn)

    @property
    def ahead(self) -> PlaceInLine | None:
        """Return the place of the request in `Case.line`; None if no pool fits."""
        return self.case.line.get(self.key)

    @cached_property
    def rules(self) -> tuple[GivenRule, ...]:
        """Return the rules of the allow-list that apply to the request."""
        return self.case.rules_of(self.request) if self.request else ()

    @cached_property
    def places(self) -> tuple[PlaceFacts, ...]:
        """Return the machines that could run it: first those that need no additional rule."""
        if self.request is None:
            return ()
        way = self.case.created.get(self.signature.by_create.get(self.key, ""))
        options = self.case.options.options_for(self.signature.queue, self.request)
        return mark_chosen(options, () if way is None else (way,))


def reasons_of(about: Asked) -> Iterator[ExplainedReason]:
    """Yield the reasons for the state of a request: rule, denied tags, unknown facts, pools."""
    case, signature, unserved = about.case, about.signature, about.unserved
    yield from _list_ticket_rules(about)
    if unserved and unserved.path[2:3] == ("ask",):
        who = "maintainer of the rule"
        yield ExplainedReason(because=unserved.because, path=unserved.path, who=who)
    for refused in signature.refused:
        who = f"owner of tag {refused.tag}: `asked_by`"
        if refused.is_unknown:
            who = "requester, or operator of `derive` and `lookups`"
        by = case.enforcer([refused.tag], "tag", signature.queue)
        yield ExplainedReason(because=refused.because, path=refused.path, by=by, who=who)
    for difference in signature.differences:
        yield ExplainedReason(because=difference.because, path=difference.path, by="scheduler")
    yield from _list_waived_tags(about)
    for because in about.unknown:
        yield ExplainedReason(because=because, who="operator of the unreadable source")
    for name in sorted(case.fleet.pools):
        yield _explain_pool(about, name)


def _list_ticket_rules(about: Asked) -> Iterator[ExplainedReason]:
    """Yield the rules of fleet.yaml that add tags to a ticket."""
    fleet, request = about.case.fleet, about.request
    if request is None or not isinstance(fleet.queues.get(about.signature.queue), TicketQueue):
        return
    for origin in judge_of(fleet, about.case.world).ask_of(request, NOTHING).origins:
        if origin.path:
            rule = f"{origin.path[0]}[{origin.path[1]}]"
            because = answers.RULED_TAG(tag=origin.tag, rule=rule, origin=origin.because)
            yield ExplainedReason(because=because, path=origin.path, by="scheduler")


def _list_waived_tags(about: Asked) -> Iterator[ExplainedReason]:
    """Yield, per tag with `otherwise`, when the request may run without the tag."""
    signature, found = about.signature, about.case.find(about.key)
    since = found[0].pending_since if found else None
    if found is None or since is None:
        return
    drops = Drops(about.case.fleet, about.case.world.time)
    for tag, name, seconds in drops.delays(signature.required):
        after, until = write_duration(seconds), since + timedelta(seconds=seconds)
        because = (
            answers.STORED_TAG(tag=tag, name=name, queue=signature.queue)
            if found[1].stored
            else answers.explain_waived_tag(tag, after, until, waived=tag in signature.dropped)
        )
        yield ExplainedReason(because=because, path=("tags", name, "otherwise"))


_BY: Mapping[Code, Enforcer] = {
    Unfit.QUEUE_NOT_SERVED: "scheduler",
    Unfit.TAG_HELD: "capacity",
    Unfit.ON_DEMAND: "capacity",
    Served.SERVES_OTHERS: "capacity",
    Served.WORKERS_BUSY: "scheduler",
}


def _explain_pool(about: Asked, name: str) -> ExplainedReason:
    case, queue = about.case, about.signature.queue
    decisions = case.decider.decide(
        about.signature, name, about.unserved, has_machines=name in case.inhabited
    )
    first = decisions[0]
    is_stopped, by = isinstance(first.code, NoMachineReason), _BY.get(first.code)
    if is_stopped:
        by = enforcer_of_limit(case.enforcement, first.key, (queue,))
    elif first.code in MISMATCHES:
        claims: dict[Code, Claim] = {Unfit.TAG_EXCLUSIVE: "exclusive"}
        enforcers = (
            case.enforcer(each.figures.tags, claims.get(each.code, "tag"), queue)
            for each in decisions
            if each.code in MISMATCHES
        )
        by = weakest(filter(None, enforcers))
    return ExplainedReason(
        because=describe_pool(decisions),
        path=first.key if is_stopped or first.code is Unfit.QUEUE_NOT_SERVED else ("pools", name),
        by=by,
        who="; ".join(_list_fixers(case, name, decisions)) if about.never else "",
        decisions=with_messages(decisions),
    )


def _list_fixers(case: Case, name: str, decisions: Sequence[Decision]) -> Iterator[str]:
    """Yield, per mismatch, the person who can make a pool fit, and the key to edit."""
    vocabulary = Vocabulary(case.fleet)
    tags_of = {each.code: each.figures.tags for each in decisions}
    fixed: list[str] = []
    stated: list[str] = []
    for tag in tags_of.get(Unfit.TAG_MISSING, ()):
        may = {"pool", "image"} & set(vocabulary.provided_by(tag)[0] or ("pool",))
        (stated if may and not tag.startswith(ARCHITECTURE) else fixed).append(tag)
    if fixed := [*fixed, *tags_of.get(Unfit.TOO_SMALL, ())]:
        yield f"only a new pool whose machine and image have {listed(fixed)}"
    if stated:
        yield f"pool owner, if its workers have {listed(stated)}: pools.{name}.provides"
    for code, key in ((Unfit.TAG_NOT_BROUGHT, "requires"), (Unfit.QUEUE_NOT_SERVED, "serves")):
        if code in tags_of:
            yield f"fleet operator: pools.{name}.{key}"
    asked = [*tags_of.get(Unfit.TAG_EXCLUSIVE, ()), *tags_of.get(Unfit.ON_DEMAND, ())]
    if asked and not fixed:
        yield f"requester: ask for {listed([*dict.fromkeys(asked)])}"
    if Unfit.TAG_HELD in tags_of:
        yield "see above"
