"""This module answers for everything that waits, grouped so that thousands stay readable."""

from collections.abc import Iterator

from fleet.explain.counterfactual import FEWEST_REPLANS, Replans
from fleet.explain.reasons import Case
from fleet.explain.request import ENDED, expectation, explain_one, headline
from fleet.explain.values import Explanation
from fleet.facts import World
from fleet.facts.values import Value
from fleet.plan import Plan, Signature
from fleet.schema.model import Fleet

MOST_REPLANS = 100
"""So often is planned again for all groups together, in the order of service."""

BY_WORKER = "next for workers that exist"
BY_UNSEEN = "next for workers that may exist, though nobody can see them now"
BY_CREATE = "get new machines"
_SERVED = (BY_WORKER, BY_UNSEEN, BY_CREATE)


class Group(Value):
    """Requests of one signature that fare the same, in the order of service."""

    signature: str
    queue: str
    required: tuple[str, ...]
    priority: int
    verdict: str
    """What becomes of them, in words."""
    requests: tuple[Explanation, ...]
    """The answer about each; suggestions stand with the first, and the others say so."""


class Everything(Value):
    """What `fleet explain request --all` answers."""

    fleet: str
    groups: tuple[Group, ...]


class EachRequest(Value):
    """The same for programs: one answer for each request."""

    fleet: str
    requests: tuple[Explanation, ...]


def explain_every(
    fleet: Fleet, world: World, plan: Plan, *, most: int = MOST_REPLANS
) -> Everything:
    """Return the answer about every waiting request, the first to be served first.

    At most so often is planned again for it.
    """
    case, replans = Case(fleet, world, plan), Replans(world, most)
    apart = [*_apart(case)]
    searches = sum(verdict not in _SERVED for _, verdict, _ in apart)
    groups = []
    for signature, verdict, keys in apart:
        waits = verdict not in _SERVED
        # What one search has planned the others know too.
        with replans.share(_share(replans.left, searches) if waits else 1, tells=1) as given:
            answers = tuple(_answers(case, signature, keys, given))
        searches -= waits
        groups.append(
            Group(
                signature=signature.id,
                queue=signature.queue,
                required=signature.required,
                priority=signature.priority,
                verdict=verdict,
                requests=answers,
            )
        )
    return Everything(fleet=fleet.fleet, groups=tuple(groups))


def _share(left: int, searches: int) -> int:
    """Return how much of what is left the next of so many searches gets: enough, or nothing."""
    return max(FEWEST_REPLANS, left // searches) if left >= FEWEST_REPLANS // 2 else 0


def _apart(case: Case) -> Iterator[tuple[Signature, str, list[str]]]:
    """Yield the requests of each signature that fare the same, those first that are served."""
    for signature in case.plan.signatures:
        verdicts = {key: _verdict(case, signature, key) for key in signature.requests}
        for verdict in sorted(dict.fromkeys(verdicts.values()), key=_rank):
            yield signature, verdict, [key for key in verdicts if verdicts[key] == verdict]


def each_request(everything: Everything) -> EachRequest:
    """Return the answers without their groups."""
    answers = (answer for group in everything.groups for answer in group.requests)
    return EachRequest(fleet=everything.fleet, requests=tuple(answers))


def _verdict(case: Case, signature: Signature, key: str) -> str:
    if key in signature.by_worker:
        return BY_WORKER if signature.by_worker[key] in case.seen else BY_UNSEEN
    if key in signature.by_create:
        return BY_CREATE
    unserved = case.unserved.get(key)
    return unserved.because if unserved else "no reason is recorded"


def _rank(verdict: str) -> int:
    return _SERVED.index(verdict) if verdict in _SERVED else len(_SERVED)


def _answers(
    case: Case, signature: Signature, keys: list[str], replans: Replans
) -> Iterator[Explanation]:
    first = explain_one(case, signature, keys[0], replans)
    if first.next_steps == (ENDED,):
        steps = (f"`fleet explain request {keys[0]}` looks for the smallest change",)
        first = first.model_copy(update={"next_steps": steps})
    yield first
    for key in keys[1:]:
        said = headline(case, signature, key, never=first.never)
        update: dict[str, object] = {"name": key, "headline": said, "suggestions": ()}
        start = case.forecast.start_of(key)
        update |= {"facts": (expectation(case, key, start),), "like": first.name}
        update["expected"] = start
        yield first.model_copy(update=update)
