"""Allocate requests: which one is served where, and which machines are created for them.

`docs/explanation/allocation.md` writes the mixed-integer program out. Ranks are lexicographic: no
request of a later rank takes capacity that one of an earlier rank could use. Then the cost is
minimised. Ties go to the pool with the higher priority, then to the earlier name.

A small component is solved exactly. A large one is solved in five steps:

1. Relaxation: the maximum of each rank in turn, with fractional requests and machines.
2. Rounding of each rank in turn: integer parts stay, fractional ones go to the column of least
   reduced cost.
3. Fill: every request that nothing stops is served (`fleet.planner.assignment`).
4. Repair: where a rank is short of its maximum, a mixed-integer search raises it. Later ranks
   yield.
5. Search: large neighbourhood search around the relaxation of the same served requests (RINS:
   E. Danna, E. Rothberg, C. Le Pape, Mathematical Programming 102, 2005).
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import floor, inf
from typing import NamedTuple

from fleet.planner.assignment import Assignment, Stop
from fleet.planner.demand import Group, Ordered, Place, Rank, Row
from fleet.planner.formulation import (
    EPSILON,
    EXACT_PAIRS,
    TIE_BREAK,
    Component,
    Model,
    components,
)
from fleet.planner.solver import (
    COUNT_GAP,
    GAP,
    MAX_NODES,
    TOLERANCE,
    Array,
    Objective,
    Relaxation,
    Relaxed,
    Solution,
    can_solve,
)

_MAX_WEIGHT = 100
"""Weight at which an exact search begins another objective for earlier ranks. With one objective
for each rank, limited worlds of 60 to 400 requests take 1.3 to 2 times as long."""
_RANK_WEIGHT = 2.0
"""Weight of a request against one of the next rank while ranks are rounded."""
_WEIGHTED_RANKS = 8
"""Number of ranks with different weights: 2^8 keeps the numbers of the solver moderate."""
_FIRST_ITERATIONS = 8
"""Column generation iterations before the first rank is rounded."""
_ITERATIONS = 3
"""Column generation iterations before each later rank is rounded: it starts near its end."""
_SMALL_RANK = 0.02
"""Part of all requests up to which ranks are rounded from one relaxation: it halves the time."""
_REPAIR_COLUMNS = 1_000
"""Maximum pairs of a repair among those that are used: a tenth of a second each. With 1,500 the
ranks of 10,000 requests in 100 limited pools take 9 s instead of 5."""
_RANK_PIVOTS = 25_000
"""Maximum simplex iterations for the maxima of a repair. 10,000 requests in 400 limited pools
would take 45,000, which is nine seconds."""
_RANK_NODES = 100
"""Maximum nodes of a search that raises a rank: most end at the root node."""
_NEIGHBOURHOOD_GAP = 3e-3
"""Gap at which a neighbourhood is solved, as a part of the cost of its columns."""
_SEARCH_GAP = 1e-2
"""Relative gap to the bound at which the search of a large component ends."""


class Neighbourhoods(NamedTuple):
    """One pass of the search over all neighbourhoods."""

    size: int
    """Number of free columns, about."""
    between: bool = False
    """Each column stays between its value and that of the relaxation: three times as fast."""
    cheapest: int = 0
    """Number of columns of least reduced cost that are free in each block besides."""
    max_columns: float = inf
    """Maximum columns of a component for this pass."""
    nodes: int = 5
    """Maximum branch-and-bound nodes of each search: most end at the root node."""


_PASSES = (
    Neighbourhoods(200, between=True),
    Neighbourhoods(400, max_columns=300_000),
    Neighbourhoods(800, cheapest=3, max_columns=50_000),
    Neighbourhoods(4_000, cheapest=4_000, max_columns=4_000, nodes=100),
)
"""Measured on the worlds of `bench/`, the passes gain 1 to 4 %, 0.5 to 5 % and 0.5 to 1.5 %. The
last searches a component whole: it gains up to 1.3 % in up to half a second. `max_columns` bounds
the time of each pass to about a second on two cores. Without the first, a limited world of
10,000 requests and 100 pools serves 46 fewer requests of one rank, and one of 1,000 requests and
40 pools costs 0.8 % more."""


ShortRanks = tuple[tuple[Rank, int], ...]
"""Ranks, and how many requests of each may wait longer than necessary."""


@dataclass(frozen=True)
class Proof:
    """The cost of machines for waiting requests and its proven bound, as money."""

    cost: float = 0.0
    bound: float = 0.0
    relaxed: float = 0.0
    unfinished: bool = False
    """The exact search ended at its limit of nodes."""
    rounded: bool = False
    """The component is large: its solution is near the bound, not optimal."""
    unsolved: bool = False
    """No solver is installed: each request was served where it costs least."""
    longer: ShortRanks = ()
    averaged: float = 0.0
    """The bound of components whose requests of different lengths counted as equally long: it
    holds for the model alone."""

    def __add__(self, other: "Proof") -> "Proof":
        """Return the proof of two components: they share nothing."""
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
    """The served requests, their machines, and the reasons why the others wait."""

    served: dict[str, list[tuple[Rank, Ordered]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Place to its requests, in the order of service."""
    counts: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """Group and place to the number of its requests there."""
    machines: dict[str, int] = field(default_factory=dict)
    """Place to its number of new machines."""
    unserved: dict[str, tuple[Stop, ...]] = field(default_factory=dict)
    """Request to the reason at each place that fits; empty if no open place fits."""
    proofs: list[Callable[[], Proof]] = field(default_factory=list)
    """One function per component: a simulation calls none."""

    @cached_property
    def proof(self) -> Proof:
        """Return the proof of all components together."""
        return sum((prove() for prove in self.proofs), Proof())


def allocate(
    groups: Iterable[Group],
    places: Mapping[str, Place],
    rows: Sequence[Row],
    *,
    exact: int = EXACT_PAIRS,
    solve: bool | None = None,
) -> Allocation:
    """Allocate requests to places; places of a group that are not in `places` are closed.

    Components of more than `exact` pairs of group and place are large. Without a solver (`solve`;
    None: if one is installed) each request is served where it costs least at that moment, in the
    order of ranks, and no bound is proven.
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
        _allocate_component(component, allocation, exact, solve=solve)
    for requests in allocation.served.values():
        requests.sort()
    return allocation


def _allocate_component(
    component: Component, allocation: Allocation, exact: int, *, solve: bool
) -> None:
    """Allocate the requests of a component."""
    model = Model(component, by_rank=not solve, exact=exact)
    if not solve:
        assignment = Assignment.rounded(model, {})
        prove: Callable[[float], Proof] = partial(Proof, unsolved=True)
    elif model.is_exact:
        solution = model.program.solve(_objectives(model), serve_all=True)
        if solution is None:
            model = Model(component, by_rank=True, exact=exact)
            solution = model.program.solve(_objectives(model), serve_all=False)
        assignment = Assignment.rounded(model, model.counts(solution.values) if solution else {})
        prove = partial(_prove_exact, model, solution)
    else:
        if model.by_rank:
            relaxation, maxima = _maximize_ranks(model)
            is_full = sum(maxima) == sum(len(block.requests) for block in model.blocks)
            served = _serve_all(model) if is_full else None
        elif (served := _serve_all(model)) is None:
            model = Model(component, by_rank=True, exact=0)
            relaxation, maxima = _maximize_ranks(model)
        short: ShortRanks = ()
        if served is None:
            served, short = _repair(model, _round_by_rank(model, relaxation, maxima))
        assignment = _search(model, served)
        prove = partial(_prove_large, model, assignment.values(), short)
    allocation.proofs.append(partial(_prove, component, assignment, prove))
    _record(model, assignment, allocation)


def _objectives(model: Model) -> Iterator[Objective]:
    """Yield the objectives of an exact search: the requests of each rank, priorities, costs."""
    program = model.program
    if program.rank_rows:
        yield from map(Objective, _rank_costs(model))
    yield Objective(program.first_costs)
    yield Objective(program.costs, is_count=False)
    yield Objective(program.last_costs, is_count=False)


def _rank_costs(model: Model) -> Iterator[Array]:
    """Yield the costs that serve the maximum of each rank in turn, for several ranks together.

    A request weighs more than all requests of later ranks in the same costs.
    """
    import numpy as np

    program, total = model.program, _MAX_WEIGHT
    found: list[Array] = []
    for blocks in reversed(model.blocks_by_rank):
        if total >= _MAX_WEIGHT:
            found.append(np.zeros(len(program.costs)))
            total = 0
        weight = total + 1
        found[-1] += weight * program.count_costs(blocks)
        total += weight * sum(len(model.blocks[nth].requests) for nth in blocks)
    yield from reversed(found)


def _serve_all(model: Model) -> Assignment | None:
    """Return an assignment of all requests near the relaxation; None if rounding leaves any."""
    program, relaxation = model.program, Relaxation(model.program)
    costs, every = program.count_costs(range(len(model.blocks))), program.uppers[program.totals]
    least = 0.5 - every.sum()
    most = relaxation.minimize(costs, stop=lambda cost, bound: cost < least or bound > least)
    if most is None or costs @ most.values > least:
        return None
    relaxation.bound_columns(program.totals, every, every)
    relaxed = relaxation.minimize(program.costs + program.penalties)
    if relaxed is None:
        return None
    # A difference below a millionth of a machine's cost is a tie: then money decides.
    prices = relaxed.reduced_costs.round(3)
    assignment = Assignment.rounded(model, model.counts(relaxed.values), prices)
    return None if any(assignment.unserved) else assignment


def _maximize_ranks(model: Model) -> tuple[Relaxation, list[int]]:
    """Return the maximum of each rank in turn, and the relaxation that serves them."""
    relaxation, maxima = Relaxation(model.program), list[int]()
    for blocks, row in zip(model.blocks_by_rank, model.program.rank_rows, strict=True):
        maxima.append(_maximum(relaxation, model.program.count_costs(blocks)))
        relaxation.bound_row(row, maxima[-1], inf)
    return relaxation, maxima


def _round_by_rank(model: Model, relaxation: Relaxation, maxima: Sequence[int]) -> Assignment:
    """Return an assignment near the relaxation in which each rank is at its maximum.

    This is a dive (T. Achterberg, Constraint Integer Programming, 2007, 9.2): one rank is fixed,
    and the relaxation of those after it is solved again.
    """
    import numpy as np

    program = model.program
    for row, most in zip(program.rank_rows, maxima, strict=True):
        relaxation.bound_row(row, 0, most)
    costs = program.costs + program.penalties
    costs /= costs.max() or 1.0
    machines = program.machines[program.machines >= 0]
    assignment, relaxed, requests = Assignment(model), None, 0
    for rank, blocks in enumerate(model.blocks_by_rank):
        requests += maxima[rank]
        if relaxed is None or requests > _SMALL_RANK * sum(maxima):
            values, requests = assignment.values(), 0
            uppers: Array = np.where(program.is_until(rank - 1), values, program.uppers)
            uppers[machines] = program.uppers[machines]
            relaxation.bound_columns(np.arange(len(values)), values, uppers)
            weights = np.clip(_WEIGHTED_RANKS - program.rank + rank, 0, _WEIGHTED_RANKS)
            weighted = costs.copy()
            weighted[program.totals] -= _RANK_WEIGHT**weights
            iterations = _ITERATIONS if relaxed else _FIRST_ITERATIONS
            relaxed = relaxation.minimize(weighted, iterations=iterations) or relaxed
        if relaxed is not None:
            counts = model.counts(relaxed.values)
            assignment.add(blocks, counts, relaxed.reduced_costs)
    return assignment


def _maximum(relaxation: Relaxation, costs: Array) -> int:
    """Return the maximum of requests that the relaxation serves, rounded down."""
    found = relaxation.minimize(
        costs, stop=lambda cost, bound: floor(TOLERANCE - cost) == floor(TOLERANCE - bound)
    )
    return floor(TOLERANCE - found.bound) if found else 0


def _repair(model: Model, assignment: Assignment) -> tuple[Assignment, ShortRanks]:
    """Raise each rank that is short of its maximum, given what earlier ranks have.

    Return the ranks that stay short too. Later ranks yield: their columns are left out of the
    search. Of many columns it takes those that the assignment or the relaxation uses (a restricted
    master heuristic).
    """
    import numpy as np

    program, pairs, short = model.program, len(model.program.block), []
    relaxation = Relaxation(program, assignment.values().nonzero()[0])
    lower, upper = program.row_bounds()
    for rank, (blocks, row) in enumerate(
        zip(model.blocks_by_rank, program.rank_rows, strict=True)
    ):
        costs, values = program.count_costs(blocks), assignment.values()
        size, served = int(program.uppers[program.totals[blocks]].sum()), -round(costs @ values)
        # A rank without a proof may be short of all its requests.
        is_proven = served == size or relaxation.pivots < _RANK_PIVOTS
        most = _maximum(relaxation, costs) if served < size and is_proven else size
        if served < most and is_proven:
            is_earlier, is_used = program.is_until(rank), values > 0
            is_used |= relaxation.values() > EPSILON
            is_used[pairs:] = True
            choices = (is_earlier, EXACT_PAIRS), (is_earlier & is_used, _REPAIR_COLUMNS)
            small = [free for free, most_pairs in choices if free[:pairs].sum() <= most_pairs]
            for is_free in small[:1]:
                found = program.search(
                    [np.flatnonzero(is_free)], np.where(is_earlier, values, 0.0), costs,
                    (lower, upper), nodes=_RANK_NODES, gap=COUNT_GAP / max(1, served),
                )  # fmt: skip
                counts = model.counts(np.where(is_earlier, found, values))
                repaired = Assignment.rounded(model, counts)
                if repaired.unserved_by_rank() < assignment.unserved_by_rank():
                    assignment, served = repaired, -round(costs @ repaired.values())
        if served < most:
            short.append((model.every_rank[rank], most - served))
        lower[row] = served
        relaxation.bound_row(row, served, inf)
    return assignment, tuple(short)


def _search(model: Model, assignment: Assignment) -> Assignment:
    """Return an assignment of equal counts by rank for less, or with more of an earlier rank."""
    program, costs = model.program, model.program.costs + model.program.penalties
    for each in _PASSES:
        if len(program.block) > each.max_columns:
            continue
        key, values, by_rank = assignment.sort_key(), assignment.values(), any(assignment.unserved)
        relaxed = _relax(model, values, costs, by_rank=by_rank)
        if relaxed is None or key[1] - model.money(relaxed.bound) <= _SEARCH_GAP * key[1]:
            break
        lower, upper = program.row_bounds()
        sums = program.row_sums(values).round()
        lower[program.rank_rows] = upper[program.rank_rows] = sums[program.rank_rows]
        found = program.search(
            _neighbourhoods(model, values, relaxed, each, by_rank=by_rank),
            values, costs, (lower, upper),
            nodes=each.nodes, gap=_NEIGHBOURHOOD_GAP,
            toward=relaxed.values if each.between else None,
        )  # fmt: skip
        better = Assignment.rounded(model, model.counts(found))
        assignment = better if better.sort_key() < key else assignment
    return assignment


def _relax(model: Model, values: Array, costs: Array, *, by_rank: bool) -> Relaxed | None:
    """Return the relaxation that serves as many requests of each rank, or else of each block."""
    program = model.program
    relaxation = Relaxation(program, values.nonzero()[0])
    if by_rank:
        sums = program.row_sums(values).round()
        for row in program.rank_rows:
            relaxation.bound_row(row, sums[row], sums[row])
    else:
        relaxation.bound_columns(program.totals, values[program.totals], values[program.totals])
    return relaxation.minimize(costs)


def _neighbourhoods(
    model: Model, values: Array, relaxed: Relaxed, each: Neighbourhoods, *, by_rank: bool
) -> Iterator[Array]:
    """Yield the free columns of places near each other, the largest possible gain first.

    Free are the columns whose value differs from the relaxation, and the cheapest ones of each
    block. Two places are near if a block has free columns at both.
    """
    import numpy as np

    program = model.program
    blocks, places, pairs = program.block, program.place, len(program.block)
    prices = relaxed.reduced_costs[:pairs]
    differences = abs(values - relaxed.values)[:pairs]
    is_free = differences > EPSILON
    order = np.lexsort((prices, blocks))
    is_free[order[np.arange(pairs) - np.searchsorted(blocks, blocks) < each.cheapest]] = True
    free = np.flatnonzero(is_free)
    free = free[np.argsort(-differences[free], kind="stable")]
    columns_at: defaultdict[int, list[int]] = defaultdict(list)
    places_of: defaultdict[int, list[int]] = defaultdict(list)
    pair = (part.tolist() for part in (blocks[free], places[free], free))
    for block, place, column in zip(*pair, strict=True):
        columns_at[place].append(column)
        places_of[block].append(place)
    gains = np.bincount(places[free], differences[free] * np.maximum(0.0, prices[free]))
    searched: set[int] = set()
    for start in np.argsort(-gains, kind="stable").tolist():
        if start in searched or start not in columns_at:
            continue
        found: list[int] = []
        queue, known = deque([start]), {start}
        while queue and len(found) < each.size:
            place = queue.popleft()
            searched.add(place)
            found += columns_at[place][: each.size]
            others = (other for n in columns_at[place] for other in places_of[blocks[n]])
            near = Counter(other for other in others if other not in known)
            queue.extend(other for other, _ in near.most_common())
            known.update(near)
        machines = program.machines[places[found]]
        # By rank, one request can be served instead of another one of its rank.
        totals = program.totals[blocks[found]] if by_rank else []
        yield np.unique(np.array([*found, *machines[machines >= 0], *totals]))


def _record(model: Model, assignment: Assignment, allocation: Allocation) -> None:
    """Record the served requests, the machines, and the reasons why the others wait."""
    known: dict[object, Stop] = {}
    equal: dict[tuple[int, ...], tuple[Stop, ...]] = {}
    for block, at, unserved in zip(
        model.blocks, assignment.served, assignment.unserved, strict=True
    ):
        for place, requests in at.items():
            allocation.served[place] += [(rank, request) for rank, request, _ in requests]
            for group, count in Counter([group for _, _, group in requests]).items():
                allocation.counts[group, place] += count
        if unserved:
            stops = tuple(assignment.stops(block, known))
            stops = equal.setdefault(tuple(map(id, stops)), stops)
            allocation.unserved |= dict.fromkeys([r.key for _, r, _ in unserved], stops)
    allocation.machines |= {place: n for place, n in assignment.machines.items() if n}


def _prove(component: Component, assignment: Assignment, prove: Callable[[float], Proof]) -> Proof:
    """Return the proof of a component, without a bound if its cost depends on averaged lengths."""
    proof = prove(assignment.cost())
    waiting = {group for block in assignment.unserved for _, _, group in block}
    places = {place.key: place for place in component.places}
    if any(group.is_averaged(places, is_left=group.id in waiting) for group in component.groups):
        return replace(proof, bound=0.0, relaxed=0.0, averaged=proof.bound)
    return proof


def _prove_exact(model: Model, solution: Solution | None, cost: float) -> Proof:
    if solution is None:
        return Proof(cost, unfinished=True)
    relaxed = _relax(model, solution.values, model.program.costs, by_rank=False)
    least = relaxed.bound if relaxed else 0.0
    bound = _without_tie_breaks(model.money(max(solution.bound, least)), cost)
    is_unfinished = solution.nodes >= MAX_NODES
    return Proof(cost, bound, min(bound, model.money(least)), unfinished=is_unfinished)


def _prove_large(model: Model, values: Array, short: ShortRanks, cost: float) -> Proof:
    relaxed = _relax(model, values, model.program.costs, by_rank=False)
    bound = _without_tie_breaks(model.money(relaxed.bound) if relaxed else 0.0, cost)
    return Proof(cost, bound, bound, rounded=cost > (1 + GAP) * bound, longer=short)


def _without_tie_breaks(bound: float, cost: float) -> float:
    """Return the bound; the cost itself if they differ by tie breaks alone."""
    return cost if cost - bound <= 2 * TIE_BREAK * cost else bound
