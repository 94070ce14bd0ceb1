"""Allocate requests to idle workers and to new machines (both are called places).

`docs/explanation/allocation.md` writes the mixed-integer program out. The objective is
lexicographic: the served requests of each rank, then the cost. Ties go to the pool with the higher
priority, then to the earlier name; a queue may let priorities count before the cost.

A small component is solved exactly. A large one meets the objective approximately, and
`Proof.longer` counts requests that may wait for a later rank. If the relaxation serves all
requests, ranks do not matter, and only rounding and step 5 are needed. Else:

1. Relaxation, with fractional requests and machines, by column generation: maximise the served
   requests of five ranks at a time, each with ten times the weight of the next, then minimise the
   cost.
2. Rounding in the order of ranks: keep the integer parts, and assign each further request that
   fits to the column of least reduced cost (`fleet.planner.assignment`).
3. Raise: serve more requests of earlier ranks by large neighbourhood search around the relaxation
   (RINS: E. Danna, E. Rothberg, C. Le Pape, Mathematical Programming 102, 2005).
4. Repair: if a rank is short of its maximum, serve the most of its requests by a mixed-integer
   program without later ranks; then repeat step 3.
5. Search: lower the cost by a search of the same neighbourhoods, then of the columns of least
   reduced cost (kernel search).
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import floor, inf
from typing import NamedTuple

from fleet.planner.assignment import Assignment, Stop, StopFinder
from fleet.planner.demand import LimitRow, Ordered, Place, Rank, RequestGroup
from fleet.planner.formulation import (
    EPSILON,
    EXACT_PAIRS,
    TIE_BREAK,
    Component,
    Model,
    components,
    open_pairs,
)
from fleet.planner.solver import (
    GAP,
    MAX_NODES,
    Array,
    Objective,
    Program,
    Relaxation,
    Relaxed,
    Solution,
    can_solve,
    np,
)

_MAX_WEIGHT = 100
"""Maximum weight of a request in one objective of an exact search; further ranks get an objective
of their own. One objective per rank takes 1.3 to 2 times as long (60 to 400 requests, limited)."""
_RANKS_TOGETHER = 5
"""Maximum ranks of one relaxation: with more ranks, the solver loses the smallest weights."""
_RANK_WEIGHT = 10.0
"""Ratio of the weights of requests of consecutive ranks in one relaxation. With 4, 10,000 requests
in 400 limited pools serve 16 fewer of one rank, and 88 more of the next rank."""
_COST_PROGRESS = 3e-3
"""Column generation ends if the cost falls by less than this fraction. The later search does not
come nearer to the bound than that."""
_RANK_PROGRESS = 3e-3
"""Column generation ends if each rank gains less than this fraction of its requests. A fixed count
of four iterations would lose 70 requests of an early rank of 100,000."""
_COUNT_ERROR = 1e-4
"""Tolerance for the number of requests that a relaxation serves."""
_RAISED_RANKS = 10
"""Largest power of two among the weights of ranks in a raise: the solver is accurate to 2^10."""
_RAISE_GAP = 1e-9
"""Relative gap of a search that raises ranks: a larger gap would hide the weight of late ranks."""
_REPAIR_PAIRS = 10_000
"""Maximum (block, place) pairs of a search for more requests of one rank that uses all pairs. With
15,000, one search may take 20 s."""
_KERNEL_PAIRS = 2_000
"""(Block, place) pairs of such a search if there are more. With 1,000, three worlds of
tests/laws/test_independent_check.py serve one request of a middle rank fewer (with 1,500, two),
and 10,000 requests in 100 limited pools serve two fewer of an early rank. Without it, 1,000
requests in 400 limited pools serve seven requests of early ranks fewer."""
_REPAIR_WORK = 45_000_000
"""Simplex iterations times their pairs, after which searches use a kernel: about five seconds.
Searches of early ranks prove their maximum in a few hundred iterations; one of the last ranks,
whose requests find little capacity, may take 20,000. With 60 million, explaining one of 2,600
requests takes more than twice as long as their plan; with 30 million, a world of
tests/laws/test_independent_check.py serves one request of a late rank fewer."""
_RANK_WORK = 15_000_000
"""Simplex iterations times rows, after which a repair looks for no more rank maxima. The worlds of
tests/laws/test_independent_check.py need up to ten million. 10,000 requests in 400 limited pools
would need 300 million (nine seconds); 100 million serve not one additional request there."""
_NEIGHBOURHOOD_GAP = 3e-3
"""Optimality gap of a neighbourhood search, as a fraction of the cost of its columns."""
_SEARCH_GAP = 1e-2
"""Relative gap to the bound at which the search of a large component ends."""


class Neighbourhoods(NamedTuple):
    """Parameters of one pass of the large neighbourhood search."""

    size: int
    """Approximate number of free columns."""
    between: bool = False
    """Bound each column by its value and its relaxed value; the search is three times as fast."""
    is_kernel: bool = False
    """Free the used columns, then the columns of least reduced cost up to `size`."""
    max_columns: float = inf
    """Skip this pass for components with more columns."""
    nodes: int = 5
    """Maximum branch-and-bound nodes of each search: most end at the root node."""


_PASSES = (
    Neighbourhoods(200, between=True),
    Neighbourhoods(400, max_columns=300_000),
    Neighbourhoods(500, is_kernel=True),
)
"""Measured on the worlds of `bench/`, the first pass saves 1 to 4 % of the cost, the second 0.5 to
5 %. The kernel saves up to 6 %: 1,000 requests in 400 pools that share machines cost 6.2 % more
than the best known without it, 2.3 % more with 400 columns, and 0.1 % less with 500. 10,000
requests take 1.7 s longer; 1,000 columns and 20 nodes would take 6 s for another 0.7 %.
`max_columns` bounds a pass to a second on two cores. Without the first pass, a world of 1,000
requests and 400 limited pools costs 3 % more."""


ShortRanks = tuple[tuple[Rank, int], ...]
"""(Rank, number of its requests that may wait longer than necessary)."""


@dataclass(frozen=True)
class Proof:
    """The cost of new machines for waiting requests, and its lower bound, in currency units."""

    cost: float = 0.0
    bound: float = 0.0
    """The least cost of serving as many requests of each block as the solution does."""
    relaxed: float = 0.0
    """The part of the bound that the linear relaxation proves."""
    unfinished: bool = False
    """The exact search ended at its limit of nodes, or without a solution."""
    rounded: bool = False
    """The component is large: its solution is near the bound, but not proven optimal."""
    unsolved: bool = False
    """No solver is installed: each request was assigned greedily to its cheapest place."""
    longer: ShortRanks = ()
    averaged: float = 0.0
    """Bound of the components that model requests of different durations by their average. This
    bound is valid for the model only, not for the real cost."""

    def __add__(self, other: "Proof") -> "Proof":
        """Return the combined proof of two components that share no request and no limit."""
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
    """The served requests, the new machines, and the reasons why other requests wait."""

    served: dict[str, list[tuple[Rank, Ordered]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Place to (rank, request) pairs, in the order of service."""
    counts: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """(Group, place) to the number of requests of the group that the place serves."""
    machines: dict[str, int] = field(default_factory=dict)
    """Place to number of new machines."""
    unserved: dict[str, tuple[Stop, ...]] = field(default_factory=dict)
    """Request to its reasons for waiting, one per fitting place; empty if no open place fits."""
    proofs: list[Callable[[], Proof]] = field(default_factory=list)
    """One function per component; simulations do not call them, to save time."""

    @cached_property
    def proof(self) -> Proof:
        """Return the combined proof of all components, with total cost and total lower bound."""
        return sum((prove() for prove in self.proofs), Proof())


def allocate(
    groups: Iterable[RequestGroup],
    places: Mapping[str, Place],
    rows: Sequence[LimitRow],
    *,
    exact: int = EXACT_PAIRS,
    solve: bool | None = None,
) -> Allocation:
    """Allocate waiting requests to places: idle workers, or new machines of one type.

    Places missing in `places` are closed. A component with more than `exact` (group, place) pairs
    is solved approximately. `solve` selects the solver (None: use the solver if installed).
    Without a solver, assign each request greedily to its cheapest place by rank, and prove no
    bound.
    """
    solve = can_solve() if solve is None else solve
    allocation = Allocation()
    by_rank = sorted(groups, key=lambda group: (group.rank, group.id))
    waiting = dict[str, list[str]]()
    open_groups = []
    for group in open_pairs(by_rank, places, rows):
        if group.fits:
            open_groups.append(group)
        else:
            waiting[group.id] = [request.key for request in group.requests]
    for component in components(open_groups, places, rows):
        _allocate_component(component, allocation, waiting, exact, solve=solve)
    by_id = {group.id: group for group in by_rank}
    finder = StopFinder(by_id, places, rows, allocation.machines, allocation.counts)
    equal: dict[tuple[int, ...], tuple[Stop, ...]] = {}
    for group_id, keys in waiting.items():
        stops = tuple(finder.find(group_id))
        stops = equal.setdefault(tuple(map(id, stops)), stops)
        allocation.unserved |= dict.fromkeys(keys, stops)
    for requests in allocation.served.values():
        requests.sort()
    return allocation


def _allocate_component(
    component: Component,
    allocation: Allocation,
    waiting: dict[str, list[str]],
    exact: int,
    *,
    solve: bool,
) -> None:
    """Solve one component; add its solution to the allocation, and its groups to `waiting`."""
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
        prove = partial(_prove_exact, model, solution, assignment)
    else:
        model, assignment, prove = _allocate_large(component, model)
    allocation.proofs.append(partial(_prove, component, assignment, prove))
    _record(assignment, allocation, waiting)


def _allocate_large(
    component: Component, model: Model
) -> tuple[Model, Assignment, Callable[[float], Proof]]:
    """Solve a large component heuristically; return its model, assignment and proof function."""
    maxima = list[int]()
    columns: Array = ()
    relaxed, served = None, None
    if model.by_rank:
        relaxed, columns = _relax_ranks(model)
        if relaxed and model.program.served(model.program.uppers - relaxed.values).sum() < EPSILON:
            served = _serve_all(model)
            relaxed = None if served else relaxed
    elif (served := _serve_all(model)) is None:
        model = Model(component, by_rank=True, exact=0)
        relaxed, columns = _relax_ranks(model)
    if served is None:
        served, maxima = _round_ranks(model, relaxed, columns)
    assignment = _search(model, served, columns, relaxed)
    counts = model.program.served(assignment.values()).tolist()
    every = zip(model.every_rank, maxima, counts, strict=False)
    short = tuple((rank, most - round(count)) for rank, most, count in every if count < most)

    def prove(cost: float) -> Proof:
        relaxed = _relax(model, assignment, model.program.costs, columns)
        bound = _without_tie_breaks(model.money(relaxed.bound) if relaxed else 0.0, cost)
        return Proof(cost, bound, bound, rounded=cost > (1 + GAP) * bound, longer=short)

    return model, assignment, prove


def _objectives(model: Model) -> Iterator[Objective]:
    """Yield the lexicographic objectives: served requests per rank, pool priorities, costs."""
    program = model.program
    if program.rank_rows:
        yield from map(Objective, _rank_costs(model))
    yield Objective(program.first_costs)
    yield Objective(program.costs, is_count=False)
    yield Objective(program.last_costs, is_count=False)


def _rank_costs(model: Model) -> Iterator[Array]:
    """Yield cost vectors that maximise the served requests of several consecutive ranks each.

    In a vector, one request weighs more than all requests of later ranks together.
    """
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
    """Return an assignment of all requests near the relaxation; None if a request is unserved."""
    program, relaxation = model.program, Relaxation(model.program, ())
    costs, every = program.count_costs(range(len(model.blocks))), program.uppers[program.totals]
    least = 0.5 - every.sum()
    most = relaxation.minimize(costs, stop=lambda cost, bound, _: cost < least or bound > least)
    if most is None or most.values[program.totals].sum() < -least:
        return None
    relaxation.bound_columns(program.totals, every, every)
    relaxed = relaxation.minimize(program.costs + program.penalties)
    if relaxed is None:
        return None
    # Differences below a millionth of the cheapest machine's cost are ties, which money breaks.
    prices = relaxed.reduced_costs.round(3)
    assignment = Assignment.rounded(model, model.counts(relaxed.values), prices)
    return None if any(assignment.unserved) else assignment


def _relax_ranks(model: Model) -> tuple[Relaxed | None, Array]:
    """Return the cheapest relaxation that maximises each rank in turn, and its active columns.

    Several ranks share one relaxation, in which a request weighs as much as `_RANK_WEIGHT`
    requests of the next rank. The returned relaxation is None if the solver finds no solution.
    """
    program, relaxed, columns = model.program, None, None
    every = np.arange(len(program.costs))
    ranks, served = range(len(program.rank_rows)), list[int]()
    for together in [ranks[n : n + _RANKS_TOGETHER] for n in ranks[::_RANKS_TOGETHER]]:
        last = together[-1]
        relaxation = Relaxation(program, columns)
        relaxation.bound_columns(every, 0.0 * every, program.uppers * program.is_until(last))
        for row, most in zip(program.rank_rows, served, strict=False):
            relaxation.bound_row(row, most, inf)
        powers = np.where(program.rank < together[0], -inf, last - program.rank)
        costs = 0.0 * every
        costs[program.totals] = -(_RANK_WEIGHT**powers)
        relaxed = relaxation.minimize(costs, stop=_is_steady(program, together))
        columns = relaxation.active
        if relaxed is None:
            break
        served += [floor(n + _COUNT_ERROR) for n in program.served(relaxed.values)[together]]
    relaxation = Relaxation(program, columns)
    for row, most in zip(program.rank_rows, served, strict=False):
        relaxation.bound_row(row, most, inf)
    costs = program.costs + program.penalties
    relaxed = relaxation.minimize(costs, stop=_is_slow()) or relaxed
    return relaxed, relaxation.active


def _is_steady(program: Program, ranks: range) -> Callable[[float, float, Array], bool]:
    """Return a stop rule: True if each of these ranks gained little since the last check."""
    sizes, before = program.served(program.uppers)[ranks], -inf

    def is_steady(_cost: float, _bound: float, values: Array) -> bool:
        nonlocal before
        served = program.served(values)[ranks]
        more, before = served - before, served
        return bool((more <= _RANK_PROGRESS * sizes).all())

    return is_steady


def _is_slow() -> Callable[[float, float, Array], bool]:
    """Return a stop rule: True if the cost fell little since the last check."""
    before = inf

    def is_slow(cost: float, _bound: float, _values: Array) -> bool:
        nonlocal before
        fallen, before = before - cost, cost
        return fallen <= _COST_PROGRESS * cost

    return is_slow


def _round_ranks(
    model: Model, relaxed: Relaxed | None, columns: Array
) -> tuple[Assignment, list[int]]:
    """Return an integer assignment near the relaxation, and the most requests served per rank."""
    if relaxed is None:
        return _repair(model, Assignment.rounded(model, {}), columns)
    rounded = Assignment.rounded(model, model.counts(relaxed.values), relaxed.reduced_costs)
    raised = _raise_ranks(model, rounded, relaxed)
    repaired, maxima = _repair(model, raised, columns)
    # A repair may leave capacity that later ranks can use.
    return (raised if repaired is raised else _raise_ranks(model, repaired, relaxed)), maxima


def _raise_ranks(model: Model, assignment: Assignment, relaxed: Relaxed) -> Assignment:
    """Serve more requests of earlier ranks by RINS; this may unserve requests of later ranks."""
    program, between, values = model.program, _PASSES[0], assignment.values()
    is_short = program.served(relaxed.values - values) > EPSILON
    if not is_short.any():
        return assignment
    # Each short rank doubles its own weight and that of earlier ranks, up to a factor of 2^10.
    level = np.cumsum(is_short[::-1])[::-1]
    costs = program.costs + program.penalties
    costs /= costs.max() or 1.0
    costs[program.totals] -= 2.0 ** (level - level.max() + _RAISED_RANKS).clip(0)[program.rank]
    found = program.search(
        _neighbourhoods(model, values, relaxed, between, by_rank=True),
        values, costs, program.row_bounds(),
        nodes=between.nodes, gap=_RAISE_GAP, toward=relaxed.values,
    )  # fmt: skip
    raised = Assignment.rounded(model, model.counts(found))
    return min(assignment, raised, key=Assignment.sort_key)


def _maximize(relaxation: Relaxation, costs: Array) -> Relaxed | None:
    """Return a relaxation whose bound proves the most requests, rounded down; None if unknown."""
    return relaxation.minimize(
        costs,
        stop=lambda cost, bound, _: floor(_COUNT_ERROR - cost) == floor(_COUNT_ERROR - bound),
    )


def _repair(model: Model, assignment: Assignment, columns: Array) -> tuple[Assignment, list[int]]:
    """Serve more requests of each rank below its maximum, without loss to earlier ranks.

    Return the new assignment and the maximum of each rank. A search uses the pairs of this rank
    and of earlier ranks, all or those of least reduced cost; later ranks then get the remaining
    capacity.
    """
    program, work, maxima = model.program, 0, list[int]()
    sizes = program.served(program.uppers)  # `@` would start BLAS threads
    lower, _ = program.row_bounds()
    relaxation = Relaxation(program, columns)
    for rank, (blocks, row) in enumerate(
        zip(model.blocks_by_rank, program.rank_rows, strict=True)
    ):
        before = assignment.values()
        size, served = int(sizes[rank]), round(program.served(before)[rank])
        # Without a proof, the maximum of a rank is all of its requests.
        most, relaxed, costs = size, None, program.count_costs(blocks)
        if served < size and relaxation.pivots * len(lower) < _RANK_WORK:
            relaxed = _maximize(relaxation, costs)
            most = floor(_COUNT_ERROR - relaxed.bound) if relaxed else size
        if relaxed and served < most:
            is_earlier = program.is_until(rank)
            pairs = int(is_earlier[: len(program.block)].sum())
            is_small = pairs <= _REPAIR_PAIRS and work < _REPAIR_WORK
            searched = pairs if is_small else _KERNEL_PAIRS
            kernel = _kernel(program, before, relaxed, searched, is_earlier)
            free = _add_machines(program, kernel, by_rank=True)
            values = np.where(is_earlier, before, 0.0)
            raised = program.maximize(free[is_earlier[free]], costs, values, lower)
            work += raised.pivots * len(kernel)
            if len(kernel) == pairs:
                most = min(most, floor(raised.bound + _COUNT_ERROR))
            repaired = Assignment.rounded(model, model.counts(raised.values))
            if repaired.unserved_by_rank() < assignment.unserved_by_rank():
                assignment, served = repaired, round(program.served(repaired.values())[rank])
        maxima.append(most)
        lower[row] = served
        relaxation.bound_row(row, served, inf)
    return assignment, maxima


def _search(
    model: Model, assignment: Assignment, columns: Array, first: Relaxed | None = None
) -> Assignment:
    """Return a cheaper assignment with equal served requests per rank, or the given assignment."""
    program, costs = model.program, model.program.costs + model.program.penalties
    by_rank = any(assignment.unserved)
    for each in _PASSES:
        if len(program.block) > each.max_columns:
            continue
        key, values = assignment.sort_key(), assignment.values()
        relaxed = first or _relax(model, assignment, costs, columns, by_rank=True)
        first = None
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


def _relax(
    model: Model,
    assignment: Assignment,
    costs: Array,
    columns: Array = (),
    *,
    by_rank: bool = False,
) -> Relaxed | None:
    """Return the cheapest relaxation that serves as many requests of each block, or of each rank.

    The bound by blocks is closer. None if unsolvable.
    """
    program, values = model.program, assignment.values()
    active = np.append(values.nonzero()[0], columns).astype(int)
    relaxation = Relaxation(program, active)
    if by_rank and program.rank_rows and any(assignment.unserved):
        for row, count in zip(program.rank_rows, program.served(values).round(), strict=True):
            relaxation.bound_row(row, count, count)
    else:
        relaxation.bound_columns(program.totals, values[program.totals], values[program.totals])
    return relaxation.minimize(costs)


def _neighbourhoods(
    model: Model, values: Array, relaxed: Relaxed, each: Neighbourhoods, *, by_rank: bool
) -> Iterator[Array]:
    """Yield the free columns of neighbouring places, the largest possible gain first.

    Except in a kernel, a column is free if its value differs from the relaxation. Two places are
    neighbours if one block has free columns at both places.
    """
    program = model.program
    if each.is_kernel:
        if len(kernel := _kernel(program, values, relaxed, each.size)):
            yield _add_machines(program, kernel, by_rank=by_rank)
        return
    blocks, places, pairs = program.block, program.place, len(program.block)
    prices = relaxed.reduced_costs[:pairs]
    differences = abs(values - relaxed.values)[:pairs]
    free = np.flatnonzero(differences > EPSILON)
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
        yield _add_machines(program, found, by_rank=by_rank)


def _kernel(
    program: Program, values: Array, relaxed: Relaxed, size: int, among: Array = None
) -> Array:
    """Return the pairs that the solution or the relaxation uses, and those of least reduced cost.

    Empty if more than `size` pairs are used.

    `among` is True for the columns to choose from; None: all. Kernel search: E. Angelelli,
    R. Mansini, M. Speranza, Computers & Operations Research 37, 2010.
    """
    pairs = len(program.block)
    is_used = (values[:pairs] > 0) | (relaxed.values[:pairs] > EPSILON)
    order = np.lexsort((relaxed.reduced_costs[:pairs].round(3), ~is_used))
    if among is not None:
        order = order[among[order]]
    return order[: size if is_used[order].sum() <= size else 0]


def _add_machines(program: Program, pairs: Array, *, by_rank: bool) -> Array:
    """Return these pairs with the machines of their places and, by rank, the totals."""
    machines = program.machines[program.place[pairs]]
    # With counts by rank, a request can replace a request of another block of its rank.
    totals = program.totals[program.block[pairs]] if by_rank else []
    return np.unique(np.array([*pairs, *machines[machines >= 0], *totals], dtype=int))


def _record(assignment: Assignment, allocation: Allocation, waiting: dict[str, list[str]]) -> None:
    """Add the served requests and new machines to the allocation, and the others to `waiting`."""
    for at, unserved in zip(assignment.served, assignment.unserved, strict=True):
        for place, requests in at.items():
            allocation.served[place] += [(rank, request) for rank, request, _ in requests]
            for group, count in Counter([group for _, _, group in requests]).items():
                allocation.counts[group, place] += count
        for _, request, group in unserved:
            waiting.setdefault(group, []).append(request.key)
    allocation.machines |= {place: n for place, n in assignment.machines.items() if n}


def _prove(component: Component, assignment: Assignment, prove: Callable[[float], Proof]) -> Proof:
    """Return the proof of a component. If durations are averages, set `averaged`, not `bound`."""
    proof = prove(assignment.cost())
    waiting = {group for block in assignment.unserved for _, _, group in block}
    places = {place.key: place for place in component.places}
    if any(group.is_averaged(places, is_left=group.id in waiting) for group in component.groups):
        return replace(proof, bound=0.0, relaxed=0.0, averaged=proof.bound)
    return proof


def _prove_exact(
    model: Model, solution: Solution | None, assignment: Assignment, cost: float
) -> Proof:
    if solution is None:
        return Proof(cost, unfinished=True)
    relaxed = _relax(model, assignment, model.program.costs)
    least = relaxed.bound if relaxed else 0.0
    bound = _without_tie_breaks(model.money(max(solution.bound, least)), cost)
    is_unfinished = solution.nodes >= MAX_NODES
    return Proof(cost, bound, min(bound, model.money(least)), unfinished=is_unfinished)


def _without_tie_breaks(bound: float, cost: float) -> float:
    """Return the bound; return the cost if only tie breaks separate the bound from the cost."""
    return cost if cost - bound <= 2 * TIE_BREAK * cost else bound
