"""Allocate: which waiting request is served where, and which machines are created for them.

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
may cost an earlier rank a request: who may lack is counted.
docs/explanation/how-a-plan-is-made.md writes it out. Ties are broken by the priorities
of pools, then by name; of a queue with `prefer: priority` they count before money.

A large component is solved in parts of machines and requests first (`fleet.planner.sifting`). What
a cheapest answer in parts costs is proven: nothing in whole numbers costs less. Where it serves
all it is rounded. How many of a rank an answer in parts can serve, those before it having theirs,
is a bound. Where not all can be served, an answer in parts that serves so many is rounded rank by
rank (`fleet.planner.dive`). Either is improved where it differs from the cheapest one in parts
that serves the same, once begun anew from that one (`fleet.planner.reassign`), and who fits then
is served too, until hardly anything is gained. Nobody waits who would fit anywhere if nobody of a
later rank were served. The bound of the cost is that of an answer in parts to which rows were
added that hold of whole numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from fleet.planner.demand import Group, Ordered, Place, Rank, Row
from fleet.planner.dive import SMALL, dive
from fleet.planner.formulation import (
    BY_NAME,
    EXACT,
    Answer,
    Component,
    Model,
    Stop,
    Stopped,
    components,
)
from fleet.planner.moves import move
from fleet.planner.programme import (
    GAP,
    NODES,
    Solution,
    can_solve,
)
from fleet.planner.reassign import Pass, assign_anew, reassign
from fleet.planner.sifting import Relaxed

_Search = tuple[Callable[[Model, Answer, Relaxed], Answer], float]
"""A search, and how near its bound a cost is near enough before it, as a part of the cost."""
_BETWEEN, _NEIGHBOURS = Pass(200, between=True), Pass(200)
_FIRST: _Search = partial(reassign, passes=[_BETWEEN]), 3e-3
_NEXT: _Search = partial(reassign, passes=[_BETWEEN, _NEIGHBOURS]), 3e-3
_WIDER: _Search = partial(reassign, passes=[Pass(800, ways=3)]), 3e-3
_WIDEST: _Search = partial(reassign, passes=[Pass(1_600, ways=40)]), 1e-2
_OF_FEW: Sequence[_Search] = (_FIRST, (assign_anew, 3e-3), _NEXT, _WIDER, _WIDEST)
_OF_MANY: Sequence[_Search] = (_FIRST, _NEXT, (assign_anew, 1.9e-2))
"""What is searched one after the other: among few columns the third again as long as it gains,
and the last, which takes long, among the fewest only; and among many."""
_AGAIN, _MANY, _GAIN = 2, 500_000, 1e-4
"""The search that is gone back to, up to how many columns are few, and what has to be gained, as a
part of the cost."""
_TIMES, _WORK, _CUT = 12, 2_600_000, 660_000
"""How often it is searched at most; of so many columns, those of each time counted again, or all
that is searched among many; and of how many of these rows are cut first."""


def serve_all(model: Model) -> Answer | None:
    """Return an answer near the cheapest one in parts that serves everybody; None: nothing can.

    Rounding may leave somebody out.
    """
    relaxed = model.programme.relax(model.everybody())
    if relaxed is None:
        return None
    answer = Answer(model, model.in_whole_requests(relaxed.values.tolist()))
    return answer if any(answer.left) else improve(model, answer)


def improve(model: Model, answer: Answer) -> Answer:
    """Return an answer that serves the same at no higher cost, or more of an earlier rank."""
    programme, answer, turn = model.programme, move(model, answer), 0
    count = len(programme.costs)
    searches = _OF_MANY if count > _MANY else _OF_FEW if count <= SMALL else _OF_FEW[:-1]
    times = min(_TIMES, max(len(_OF_MANY), _WORK // count)) if count <= _WORK else 0
    for nth in range(times):
        search, near = searches[turn]
        cut = nth * count <= _CUT or search is assign_anew
        relaxed = programme.relax(answer.sums(), cut=cut, reached=answer.values())
        (lacked, cost), money = answer.badness(), answer.cost()
        if relaxed is None or cost - model.money(relaxed.bound) <= near * money:
            break
        found = move(model, search(model, answer, relaxed))
        badness = found.badness()
        gains = turn >= _AGAIN and badness < (lacked, cost - _GAIN * money)
        turn = _AGAIN if gains else turn + 1
        if badness < (lacked, cost):
            answer = found
        if turn == len(searches):
            break
    return answer


Longer = tuple[tuple[Rank, int], ...]
"""Ranks, and how many of each may wait longer than necessary."""


def serve_in_turn(model: Model) -> Answer:
    """Return an answer that serves ranks in turn; the blocks of the model are of one rank each."""
    most = model.programme.most_in_parts([row for row, _ in model.ranks])
    answer = Answer(model, model.in_whole_requests(dive(model, most)))
    return improve(model, answer)


def _may_lack(model: Model, answer: Answer) -> Longer:
    """Return of each rank how many may lack still, those before it having what they have."""
    ranks, served = zip(*answer.sums_by_rank(), strict=True)
    could = model.programme.most_in_parts(ranks, served, answer.values())
    found = zip(model.every_rank, could, served, strict=True)
    return tuple((rank, more - least) for rank, more, least in found if more > least)


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
    unsolved: bool = False
    """No solver is installed: who comes first was served where it costs least."""
    longer: Longer = ()
    """Ranks, and how many requests of each may wait although they could be served."""
    averaged: float = 0.0
    """The bound of parts whose requests of different lengths counted as equally long: of the model
    alone."""

    def __add__(self, other: "Proof") -> "Proof":
        """Return the proof of both together: components share nothing."""
        return Proof(
            self.cost + other.cost,
            self.bound + other.bound,
            self.relaxed + other.relaxed,
            self.unfinished or other.unfinished,
            self.rounded or other.rounded,
            self.unsolved or other.unsolved,
            longer=self.longer + other.longer,
            averaged=self.averaged + other.averaged,
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
    proofs: list[Callable[[], Proof]] = field(default_factory=list)
    """What proves something about each component when it is asked to."""

    @cached_property
    def proof(self) -> Proof:
        """Return what is proven about all components; a simulation does not ask."""
        return sum((prove() for prove in self.proofs), Proof())


def allocate(
    groups: Iterable[Group],
    places: Mapping[str, Place],
    rows: Sequence[Row],
    *,
    exact: int = EXACT,
    solve: bool | None = None,
) -> Allocation:
    """Return who is served where; a group's places that are not in `places` are closed.

    Components of more than `exact` pairs of group and place are solved near an answer in parts.
    Without a solver (`solve`; None: as is installed) each request, in the order of ranks, is
    served where it costs least at that moment, and nothing is proven of the cost.
    """
    solve = can_solve() if solve is None else solve
    allocation = Allocation()
    open_groups = []
    for group in sorted(groups, key=lambda group: (group.rank, group.id)):
        if any(place in places for place in group.fits):
            open_groups.append(group)
        else:
            allocation.unserved |= dict.fromkeys([r.key for r in group.requests], ())
    for component in components(open_groups, places, rows):
        if solve:
            _solve(component, allocation, exact)
        else:
            _serve_in_order(component, allocation, exact)
    for requests in allocation.served.values():
        requests.sort()
    return allocation


def _solve(component: Component, allocation: Allocation, exact: int) -> None:
    """Solve one component: everybody if possible, else rank by rank."""
    model = Model(component, by_rank=False, exact=exact)
    if not model.is_exact:
        model, answer = _solve_large(component, model)
        prove: Callable[[], Proof] = partial(_prove_large, model, answer)
    else:
        solution = model.programme.solve(model.everybody())
        if solution is None:
            model = Model(component, by_rank=True, exact=exact)
            solution = _in_turn(model)
        answer = Answer(model, model.in_whole_requests(solution.values) if solution else ())
        prove = partial(_prove, model, solution, answer.cost())
    allocation.proofs.append(partial(_prove_component, component, answer, prove))
    _write(model, answer, allocation)


def _serve_in_order(component: Component, allocation: Allocation, exact: int) -> None:
    """Serve one request after the other, each where it costs least."""
    model = Model(component, by_rank=True, exact=exact)
    answer = Answer(model, ())
    _write(model, answer, allocation)
    allocation.proofs.append(lambda: Proof(answer.cost(), unsolved=True))


def _in_turn(model: Model) -> Solution | None:
    """Serve each rank all it can have once those before it have theirs, then find the cheapest."""
    ranks = [row for row, _ in model.ranks]
    most = model.programme.most_in_turn(ranks)
    return model.programme.solve(list(zip(ranks, most, strict=True)))


def _solve_large(component: Component, model: Model) -> tuple[Model, Answer]:
    """Serve everybody near an answer in parts if that can be, else rank by rank."""
    answer = serve_all(model)
    if answer is None or any(answer.left):
        model = model if model.ranks else Model(component, by_rank=True, exact=0)
        answer = serve_in_turn(model)
    return model, answer


def _prove_component(component: Component, answer: Answer, prove: Callable[[], Proof]) -> Proof:
    """Return the proof of a component; 0 as the bound if its cost depends on averaged lengths."""
    proof = prove()
    left = {group for block in answer.left for _, _, group in block}
    places = {place.key: place for place in component.places}
    if any(group.is_averaged(places, is_left=group.id in left) for group in component.groups):
        return replace(proof, bound=0.0, relaxed=0.0, averaged=proof.bound)
    return proof


def _prove_large(model: Model, answer: Answer) -> Proof:
    """Return what is proven about an answer that was looked for near one in parts."""
    longer = _may_lack(model, answer) if any(answer.left) else ()
    relaxed = model.programme.relax(answer.sums(), seeming=False, reached=answer.values())
    cost, least, bound = answer.cost(), 0.0, 0.0
    if relaxed:
        least, bound = model.money(relaxed.cost), model.money(relaxed.bound)
    proven = _bound(bound, cost)
    bounds = proven, min(proven, least)
    rounded = cost > (1 + GAP) * proven
    return Proof(cost, *bounds, rounded=rounded, longer=longer)


def _write(model: Model, answer: Answer, allocation: Allocation) -> None:
    """Write the answer down: who is served where, and what stops the others."""
    known: dict[Stopped, Stop] = {}
    for block, at, left in zip(model.blocks, answer.served, answer.left, strict=True):
        for place, requests in at.items():
            allocation.served[place] += [(rank, request) for rank, request, _ in requests]
            for group, count in Counter([group for _, _, group in requests]).items():
                allocation.counts[group, place] += count
        if left:
            stops = tuple(answer.stops(block, known))
            allocation.unserved |= dict.fromkeys([r.key for _, r, _ in left], stops)
    allocation.machines |= {place: n for place, n in answer.machines.items() if n}


def _prove(model: Model, solution: Solution | None, cost: float) -> Proof:
    """Return what is proven about an answer of this cost."""
    if solution is None:
        return Proof(cost, 0.0, 0.0, unfinished=True)
    relaxed = model.programme.relax(
        solution.sums, cut=False, reached=[n for n, value in enumerate(solution.values) if value]
    )
    least = relaxed.cost if relaxed else 0.0
    bound = _bound(model.money(max(solution.bound, least)), cost)
    return Proof(cost, bound, min(bound, model.money(least)), unfinished=solution.nodes >= NODES)


def _bound(bound: float, cost: float) -> float:
    """Return what is proven of a cost; what rounding is off is no gap."""
    return cost if cost - bound <= 2 * BY_NAME * cost else bound
