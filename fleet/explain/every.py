"""This module answers for everything that waits, grouped so that thousands stay readable."""

from collections.abc import Iterator

from fleet.counterfactual import Replans
from fleet.explain.reasons import Case
from fleet.explain.request import expectation, explain_one, headline
from fleet.explain.values import Explanation
from fleet.facts import Value, World
from fleet.plan import Plan, Signature
from fleet.schema.model import Fleet

MOST_SUGGESTED = 20
"""For so many groups a smallest change is looked for, in the order of service, as long as no more
is planned again than for one request."""


BY_WORKER = "next for workers that exist"
BY_CREATE = "get new machines"


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


def explain_every(fleet: Fleet, world: World, plan: Plan) -> Everything:
    """Return the answer about every waiting request, the first to be served first."""
    case = Case(fleet, world, plan)
    groups_left, left = MOST_SUGGESTED, Replans(world).left
    groups = []
    for signature in plan.signatures:
        verdicts = {key: _verdict(case, signature, key) for key in signature.requests}
        for verdict in sorted(dict.fromkeys(verdicts.values()), key=_rank):
            keys = [key for key in signature.requests if verdicts[key] == verdict]
            waits = verdict not in (BY_WORKER, BY_CREATE)
            groups_left -= waits
            replans = Replans(world, left) if waits and groups_left >= 0 and left > 0 else None
            given = replans.left if replans else 0
            groups.append(
                Group(
                    signature=signature.id,
                    queue=signature.queue,
                    required=signature.required,
                    priority=signature.priority,
                    verdict=verdict,
                    requests=tuple(_answers(case, signature, keys, replans)),
                )
            )
            left -= given - replans.left if replans else 0
    return Everything(fleet=fleet.fleet, groups=tuple(groups))


def each_request(everything: Everything) -> EachRequest:
    """Return the answers without their groups."""
    answers = (answer for group in everything.groups for answer in group.requests)
    return EachRequest(fleet=everything.fleet, requests=tuple(answers))


def _verdict(case: Case, signature: Signature, key: str) -> str:
    if key in signature.by_worker:
        return BY_WORKER
    if key in signature.by_create:
        return BY_CREATE
    unserved = case.unserved.get(key)
    return unserved.because if unserved else "no reason is recorded"


def _rank(verdict: str) -> int:
    known = (BY_WORKER, BY_CREATE)
    return known.index(verdict) if verdict in known else len(known)


def _answers(
    case: Case, signature: Signature, keys: list[str], replans: Replans | None
) -> Iterator[Explanation]:
    first = explain_one(case, signature, keys[0], replans)
    if not (first.suggestions or first.next_steps):
        steps = (f"`fleet explain request {keys[0]}` looks for the smallest change",)
        first = first.model_copy(update={"next_steps": steps})
    yield first
    unserved = case.unserved.get(keys[0])
    for key in keys[1:]:
        said = headline(signature, key, unserved, never=first.never)
        update: dict[str, object] = {"name": key, "headline": said, "suggestions": ()}
        start = case.forecast.start_of(key)
        update |= {"facts": (expectation(case, key, start),), "like": first.name}
        update["expected"] = start
        yield first.model_copy(update=update)
