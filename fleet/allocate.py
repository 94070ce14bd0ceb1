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

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from fleet.answer import Answer, Stop
from fleet.choices import Group, Place, Rank, Row
from fleet.components import Component, components
from fleet.demand import Ordered
from fleet.formulation import BY_NAME, Model
from fleet.programme import NODES, Solution


@dataclass(frozen=True)
class Proof:
    """What machines for waiting requests cost, and what is proven about it, as money."""

    cost: float = 0.0
    bound: float = 0.0
    relaxed: float = 0.0
    unfinished: bool = False
    """The search for something cheaper was ended by its limit of nodes."""

    def __add__(self, other: "Proof") -> "Proof":
        """Return the proof of both together: components share nothing."""
        return Proof(
            self.cost + other.cost,
            self.bound + other.bound,
            self.relaxed + other.relaxed,
            self.unfinished or other.unfinished,
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
            allocation.unserved |= dict.fromkeys((r.key for r in group.requests), ())
    for component in components(open_groups, places, rows):
        _solve(component, allocation)
    for requests in allocation.served.values():
        requests.sort()
    return allocation


def _solve(component: Component, allocation: Allocation) -> None:
    """Solve one component: everybody if possible, else rank by rank."""
    model = Model(component, by_rank=False)
    solution = model.programme.solve(model.everybody())
    if solution is None:
        model = Model(component, by_rank=True)
        solution = _in_turn(model)
    _write(model, solution, allocation)


def _in_turn(model: Model) -> Solution | None:
    """Serve each rank all it can have once those before it have theirs, then find the cheapest."""
    ranks: defaultdict[Rank, list[int]] = defaultdict(list)
    for block in model.blocks:
        ranks[block.rank].extend(block.columns)
    parts = [ranks[rank] for rank in sorted(ranks)]
    most = model.programme.most_in_turn(parts)
    return model.programme.solve(list(zip(parts, most, strict=True)))


def _write(model: Model, solution: Solution | None, allocation: Allocation) -> None:
    """Write the answer down: who is served where, what it costs, what stops the others."""
    counts = model.in_whole_requests(solution) if solution else [{} for _ in model.blocks]
    answer = Answer(model, counts)
    for block, at in zip(model.blocks, answer.counts, strict=True):
        requests = iter(block.requests)
        # Those who come first get what is there already.
        for place in sorted(at, key=lambda key: (model.places[key].makes, key)):
            for rank, request, group in islice(requests, at[place]):
                allocation.served[place].append((rank, request))
                allocation.counts[group, place] += 1
        left = list(requests)
        if left:
            stops = tuple(answer.stops(block))
            allocation.unserved |= dict.fromkeys((r.key for _, r, _ in left), stops)
    allocation.machines |= {place: n for place, n in answer.machines.items() if n}
    allocation.proof += _prove(model, solution, answer.cost())


def _prove(model: Model, solution: Solution | None, cost: float) -> Proof:
    """Return what is proven about an answer of this cost."""
    if solution is None:
        return Proof(cost, 0.0, 0.0, unfinished=True)
    bound = min(cost, model.money(solution.bound))
    if cost - bound <= 2 * BY_NAME * cost:
        bound = cost
    relaxed = min(bound, model.money(solution.relaxed))
    return Proof(cost, bound, relaxed, unfinished=solution.nodes >= NODES)
