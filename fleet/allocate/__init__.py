"""This module says how many machines of which pool waiting requests should get, and proves it.

It is a mixed-integer programme per component, the groups, places and limits that share anything:

    least    sum setup[p] * machines[p] + sum money[g, p] * served[g, p] + sum step[p] * steps[p]
    where    sum over p of served[g, p] = requests of g, or as many as the order of ranks allows
             sum over g of share[g, p] * served[g, p] <= room[p]       for workers that exist
             sum over g of share[g, p] * served[g, p] <= machines[p]   for machines to be made
             sum over g that share of money[g, p] * served[g, p] <= step[p] * steps[p]
                 + unused[p] * machines[p] that are shared         for machines billed by steps
             every limit's row holds

where who shares a machine that is billed by steps has no money of its own in the first line.
Where not everybody can be served, ranks are served strictly in turn: no request of a later rank
takes what one of an earlier rank could have used. In large components rounding to whole machines
may cost an earlier rank a request: those are sought again, and who may lack still is counted.
docs/explanation/how-a-plan-is-made.md writes it out. Ties are broken by the priorities
of pools, then by name; of a queue with `prefer: priority` they count before money.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.allocate.answer import Answer, Stop
from fleet.allocate.components import Component, components
from fleet.allocate.formulation import BY_NAME, EXACT, Model
from fleet.allocate.neighbourhood import serve_all, serve_most
from fleet.allocate.programme import NODES, Solution
from fleet.allocate.turns import Longer, serve_in_turn
from fleet.demand import Ordered
from fleet.demand.choices import Group, Place, Rank, Row


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
    longer: Longer = ()
    """Ranks, and how many requests of each may wait although they could be served."""

    def __add__(self, other: "Proof") -> "Proof":
        """Return the proof of both together: components share nothing."""
        return Proof(
            self.cost + other.cost,
            self.bound + other.bound,
            self.relaxed + other.relaxed,
            self.unfinished or other.unfinished,
            self.rounded or other.rounded,
            self.longer + other.longer,
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
    groups: Iterable[Group],
    places: Mapping[str, Place],
    rows: Sequence[Row],
    *,
    exact: int = EXACT,
) -> Allocation:
    """Return who is served where; a group's places that are not in `places` are closed.

    Components of more than `exact` pairs of group and place are solved near an answer in parts.
    """
    allocation = Allocation()
    open_groups = []
    for group in sorted(groups, key=lambda group: (group.rank, group.id)):
        if any(place in places for place in group.fits):
            open_groups.append(group)
        else:
            allocation.unserved |= dict.fromkeys([r.key for r in group.requests], ())
    for component in components(open_groups, places, rows):
        _solve(component, allocation, exact)
    for requests in allocation.served.values():
        requests.sort()
    return allocation


def _solve(component: Component, allocation: Allocation, exact: int) -> None:
    """Solve one component: everybody if possible, else rank by rank."""
    model = Model(component, by_rank=False, exact=exact)
    if not model.is_exact:
        model, answer, proof = _solve_large(component, model)
    else:
        solution = model.programme.solve(model.everybody())
        if solution is None:
            model = Model(component, by_rank=True, exact=exact)
            solution = _in_turn(model)
        answer = Answer(model, model.in_whole_requests(solution.values) if solution else ())
        proof = _prove(model, solution, answer.cost())
    _write(model, answer, allocation)
    allocation.proof += proof


def _in_turn(model: Model) -> Solution | None:
    """Serve each rank all it can have once those before it have theirs, then find the cheapest."""
    ranks = [columns for columns, _ in model.everybody_by_rank]
    most = model.programme.most_in_turn(ranks)
    return model.programme.solve(list(zip(ranks, most, strict=True)))


def _solve_large(component: Component, model: Model) -> tuple[Model, Answer, Proof]:
    """Serve everybody near an answer in parts if that can be, else rank by rank."""
    answer, longer = serve_all(model), Longer()
    if answer is None or any(answer.left):
        model = Model(component, by_rank=True, exact=0)
        answer, longer = serve_in_turn(model, serve_most(model))
    relaxed, cost = model.programme.relax(answer.sums(), seeming=False), answer.cost()
    bound = _bound(model, relaxed.cost if relaxed else 0.0, cost)
    return model, answer, Proof(cost, bound, bound, rounded=cost > bound, longer=longer)


def _write(model: Model, answer: Answer, allocation: Allocation) -> None:
    """Write the answer down: who is served where, and what stops the others."""
    for block, at, left in zip(model.blocks, answer.served, answer.left, strict=True):
        for place, requests in at.items():
            allocation.served[place] += [(rank, request) for rank, request, _ in requests]
            for group, count in Counter([group for _, _, group in requests]).items():
                allocation.counts[group, place] += count
        if left:
            stops = tuple(answer.stops(block))
            allocation.unserved |= dict.fromkeys([r.key for _, r, _ in left], stops)
    allocation.machines |= {place: n for place, n in answer.machines.items() if n}


def _prove(model: Model, solution: Solution | None, cost: float) -> Proof:
    """Return what is proven about an answer of this cost."""
    if solution is None:
        return Proof(cost, 0.0, 0.0, unfinished=True)
    relaxed = model.programme.relax(solution.sums)
    least = relaxed.cost if relaxed else 0.0
    bound = _bound(model, max(solution.bound, least), cost)
    return Proof(cost, bound, min(bound, model.money(least)), unfinished=solution.nodes >= NODES)


def _bound(model: Model, least: float, cost: float) -> float:
    """Return what is proven of a cost as money; what rounding is off is no gap."""
    bound = min(cost, model.money(least))
    return cost if cost - bound <= 2 * BY_NAME * cost else bound
