"""This module says how many machines of which pool waiting requests should get, and proves it.

It is a mixed-integer programme per component, the groups, places and limits that share anything:

    least    sum setup[p] * machines[p] + sum money[g, p] * served[g, p]
    where    sum over p of served[g, p] = requests of g, or as many as the order of ranks allows
             sum over g of share[g, p] * served[g, p] <= room[p]       for workers that exist
             sum over g of share[g, p] * served[g, p] <= machines[p]   for machines to be made
             every limit's row holds

Where not everybody can be served, ranks are served strictly in turn: no request of a later rank
takes what one of an earlier rank could have used. docs/explanation/how-a-plan-is-made.md writes
it out. Ties are broken by name.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.answer import Answer, Stop
from fleet.choices import Group, Place, Rank, Row
from fleet.components import Component, components
from fleet.demand import Ordered
from fleet.formulation import BY_NAME, Model
from fleet.neighbourhood import improve
from fleet.programme import NODES, WIDE_GAP, Solution

_ROUNDS = 2
"""How often a large component in which not everybody is served is looked at again."""


@dataclass(frozen=True)
class Proof:
    """What machines for waiting requests cost, and what is proven about it, as money."""

    cost: float = 0.0
    bound: float = 0.0
    relaxed: float = 0.0
    unfinished: bool = False
    """The search for something cheaper was ended by its limit of nodes."""
    rounded: bool = False
    """In a large component whole requests were only looked for near an answer in parts."""

    def __add__(self, other: "Proof") -> "Proof":
        """Return the proof of both together: components share nothing."""
        return Proof(
            self.cost + other.cost,
            self.bound + other.bound,
            self.relaxed + other.relaxed,
            self.unfinished or other.unfinished,
            self.rounded or other.rounded,
        )


@dataclass
class Allocation:
    """Who is served where, how many machines that takes, and what stops the others."""

    served: dict[str, list[tuple[Rank, Ordered]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Place to its requests, in the order of service."""
    counts: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """Group and place to how many of its requests are served there."""
    machines: dict[str, int] = field(default_factory=dict)
    unserved: dict[str, tuple[Stop, ...]] = field(default_factory=dict)
    """Request to what stops it in each place that fits; no place fits where it is empty."""
    proof: Proof = field(default_factory=Proof)


def allocate(
    groups: Iterable[Group], places: Mapping[str, Place], rows: Sequence[Row]
) -> Allocation:
    """Return who is served where; a group's places that are not in `places` are closed."""
    allocation = Allocation()
    open_groups = []
    for group in sorted(groups, key=lambda group: (group.rank, group.id)):
        if any(place in places for place in group.fits):
            open_groups.append(group)
        else:
            allocation.unserved |= dict.fromkeys([r.key for r in group.requests], ())
    for component in components(open_groups, places, rows):
        _solve(component, allocation)
    for requests in allocation.served.values():
        requests.sort()
    return allocation


def _solve(component: Component, allocation: Allocation) -> None:
    """Solve one component: everybody if possible, else rank by rank."""
    model = Model(component, by_rank=False)
    solution = model.programme.solve(model.everybody())
    if solution is not None:
        answer = Answer(model, model.in_whole_requests(solution))
    elif model.is_exact:
        model = Model(component, by_rank=True)
        solution = _in_turn(model)
        answer = Answer(model, model.in_whole_requests(solution) if solution else ())
    else:
        counts = _nearly_in_turn(model)
        model = Model(component, by_rank=False)
        answer, solution = _settled(model, Answer(model, counts))
    if solution is not None and not model.is_exact:
        answer = improve(model, answer, solution)
    _write(model, answer, allocation)
    proof = _prove(model, solution, answer.cost())
    allocation.proof += replace(proof, rounded=not model.is_exact and proof.cost > proof.bound)


def _in_turn(model: Model) -> Solution | None:
    """Serve each rank all it can have once those before it have theirs, then find the cheapest."""
    ranks = model.ranks()
    most = model.programme.most_in_turn(ranks)
    return model.programme.solve(list(zip(ranks, most, strict=True)))


def _nearly_in_turn(model: Model) -> Sequence[Mapping[str, int]]:
    """Do nearly the same in a large component, and return how many are served where.

    How many of each rank can be is found with parts of machines, and each block keeps what its
    earlier ranks were given; what whole machines cannot do of it is lacking.
    """
    model.add_lacks(model.programme.most_of_rows(model.sizes_by_rank()))
    found = model.programme.solve(gap=WIDE_GAP)
    return model.in_whole_requests(found) if found else ()


def _settled(model: Model, answer: Answer) -> tuple[Answer, Solution | None]:
    """Return who is served when they have the cheapest machines for just them, and its proof.

    Cheaper machines may leave room to serve more, for whom it is done again a few times.
    """
    for _ in range(_ROUNDS):
        before = answer.sums()
        solution = model.programme.solve(before, gap=WIDE_GAP)
        if solution is None:
            break
        answer = Answer(model, model.in_whole_requests(solution))
        if answer.sums() == before:
            return answer, solution
    return answer, model.programme.solve(answer.sums(), gap=WIDE_GAP)


def _write(model: Model, answer: Answer, allocation: Allocation) -> None:
    """Write the answer down: who is served where, and what stops the others."""
    for block, at, left in zip(model.blocks, answer.served, answer.left, strict=True):
        for place, requests in at.items():
            allocation.served[place] += [(rank, request) for rank, request, _ in requests]
            for group, count in Counter([group for _, _, group in requests]).items():
                allocation.counts[group, place] += count
        if left:
            stops = tuple(answer.stops(block, left[0]))
            allocation.unserved |= dict.fromkeys([r.key for _, r, _ in left], stops)
    allocation.machines |= {place: n for place, n in answer.machines.items() if n}


def _prove(model: Model, solution: Solution | None, cost: float) -> Proof:
    """Return what is proven about an answer of this cost."""
    if solution is None:
        return Proof(cost, 0.0, 0.0, unfinished=True)
    least = model.programme.relax(solution.sums)
    bound = min(cost, model.money(max(solution.bound, least)))
    if cost - bound <= 2 * BY_NAME * cost:
        bound = cost
    relaxed = min(bound, model.money(least))
    return Proof(cost, bound, relaxed, unfinished=solution.nodes >= NODES)
