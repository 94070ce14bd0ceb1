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
from itertools import islice
from math import inf
from typing import NamedTuple

from fleet.planner.assignment import Assignment, Blocker, Stop
from fleet.planner.demand import Group, Ordered, Place, Rank, Row
from fleet.planner.formulation import (
    EPSILON,
    EXACT_PAIRS,
    TIE_BREAK,
    Component,
    Model,
    components,
)
from fleet.planner.solver import GAP, MAX_NODES, Array, Relaxed, RowSum, Solution, can_solve

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
"""Maximum columns of a repair: a tenth of a second each on two cores."""
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
the time of each pass to about a second on two cores."""


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
        assignment = Assignment(model)
        prove: Callable[[], Proof] = partial(_prove_nothing, assignment)
    elif model.is_exact:
        solution = model.program.solve(model.all_served())
        if solution is None:
            model = Model(component, by_rank=True, exact=exact)
            solution = _solve_by_rank(model)
        assignment = Assignment.rounded(model, solution.values) if solution else Assignment(model)
        prove = partial(_prove_exact, model, solution, assignment.cost())
    else:
        served = _serve_all(model)
        if served is None:
            model = model if model.ranks else Model(component, by_rank=True, exact=0)
            served = _repair(model, _round_by_rank(model))
        assignment = _search(model, served)
        prove = partial(_prove_large, model, assignment)
    allocation.proofs.append(partial(_prove_component, component, assignment, prove))
    _record(model, assignment, allocation)


def _solve_by_rank(model: Model) -> Solution | None:
    """Return the cheapest solution that serves the maximum of each rank in turn."""
    rows = [row for row, _ in model.ranks]
    maxima = model.program.maximize_in_turn(rows)
    return model.program.solve([*zip(rows, maxima, strict=True)])


def _serve_all(model: Model) -> Assignment | None:
    """Return an assignment of all requests near the relaxation; None if rounding leaves any."""
    relaxed = model.program.relaxation.cheapest(model.all_served())
    if relaxed is None:
        return None
    assignment = Assignment.rounded(model, relaxed.values.tolist())
    return None if any(assignment.unserved) else assignment


def _round_by_rank(model: Model) -> Assignment:
    """Return an assignment near the relaxation in which each rank is at its maximum.

    This is a dive (T. Achterberg, Constraint Integer Programming, 2007, 9.2): one rank is fixed,
    and the relaxation of those after it is solved again.
    """
    import numpy as np

    program, relaxation = model.program, model.program.relaxation
    rows = [row for row, _ in model.ranks]
    maxima = relaxation.maxima_in_turn(rows)
    rank_of = np.full(len(program.costs), -1)
    for rank, row in enumerate(rows):
        rank_of[program.row_factors(row) > 0] = rank
    costs = program.penalized_costs / (
        model.max_cost() + max(program.penalties.values(), default=0)
    )
    rounding = _Rounding(model)
    upper = np.array(program.uppers, dtype=float)
    relaxation.bound_rows(rows, [0] * len(rows), maxima)
    relaxed, requests = rounding.values, 0
    for rank, row in enumerate(rows):
        relaxation.bound_rows([row], [0], [maxima[rank]])
        requests += maxima[rank]
        if not rank or requests > _SMALL_RANK * sum(maxima):
            requests = 0
            relaxation.bound_columns(rounding.values, upper)
            weights = np.clip(_WEIGHTED_RANKS - rank_of + rank, 0, _WEIGHTED_RANKS)
            weighted = costs - (rank_of >= 0) * _RANK_WEIGHT**weights
            for _ in islice(
                relaxation.iterate(weighted), _ITERATIONS if rank else _FIRST_ITERATIONS
            ):
                relaxed = relaxation.values()
        of_rank = np.flatnonzero(rank_of == rank)
        rounding.take(of_rank, np.floor(relaxed + EPSILON))
        rounding.fill(of_rank, relaxation.reduced_costs)
        upper[of_rank] = rounding.values[of_rank]
    return Assignment.rounded(model, rounding.values.tolist())


class _Rounding:
    """Integer values of columns within the slack of all rows."""

    def __init__(self, model: Model) -> None:
        import numpy as np

        self._numpy, self._model, self._matrix = np, model, model.program.matrix
        self.values = np.zeros(len(model.program.costs))
        self._slack = np.array(model.program.row_uppers)
        self._uppers = np.array(model.program.uppers)
        self._machine = np.full(len(self.values), -1)
        for block in model.blocks:
            self._machine[block.columns] = [model.machines.get(key, -1) for key in block.fits]

    def take(self, columns: Array, targets: Array) -> None:
        """Raise columns toward their targets as far as they fit."""
        for column in columns[targets[columns] > self.values[columns]]:
            while self.values[column] < targets[column] and self._raise(column):
                pass

    def fill(self, columns: Array, reduced_costs: Array) -> None:
        """Raise columns as far as they fit, the least reduced cost first."""
        fitting = self._model.that_fit(columns, self.values, self._slack)
        for column in fitting[self._numpy.argsort(reduced_costs[fitting], kind="stable")]:
            while self._raise(column):
                pass

    def _raise(self, column: int) -> bool:
        """Add one to a column, and a machine if one is needed; return whether it fits."""
        if self._fits(column):
            self._add(column, 1)
            return True
        machine = int(self._machine[column])
        if machine < 0 or not self._fits(machine):
            return False
        self._add(machine, 1)
        if self._fits(column):
            self._add(column, 1)
            return True
        self._add(machine, -1)
        return False

    def _add(self, column: int, count: int) -> None:
        rows, factors = self._matrix.column(column)
        self.values[column] += count
        self._slack[rows] -= count * factors

    def _fits(self, column: int) -> bool:
        rows, factors = self._matrix.column(column)
        is_below = self.values[column] < self._uppers[column]
        return bool(is_below and (self._slack[rows] - factors).min() >= -EPSILON)


def _repair(model: Model, assignment: Assignment) -> Assignment:
    """Raise each rank that is short of its maximum, given what earlier ranks have.

    Columns of later ranks are left out of the search, so that later ranks yield. Of many columns
    it takes those that the assignment or the relaxation uses (a restricted master heuristic).
    """
    import numpy as np

    program, relaxation = model.program, model.program.relaxation
    rank_of = np.full(len(program.costs), -1)
    for rank, (row, _) in enumerate(model.ranks):
        rank_of[program.row_factors(row) > 0] = rank
    kept: list[RowSum] = []
    relaxation.start(assignment.values())
    for rank, (row, size) in enumerate(model.ranks):
        _, served = assignment.sums_by_rank()[rank]
        if served < size and served < relaxation.maximum(row):
            values = program.dense(assignment.values())
            columns = np.flatnonzero(rank_of <= rank)
            if len(columns) > _REPAIR_COLUMNS:
                is_used = (values > 0) | (relaxation.values() > EPSILON) | (rank_of < 0)
                columns = np.flatnonzero(is_used & (rank_of <= rank))
            if len(columns) > _REPAIR_COLUMNS:
                return assignment
            raised = program.raise_sum(row, columns, values, kept)
            raised[rank_of > rank] = values[rank_of > rank]
            repaired = Assignment.rounded(model, raised.tolist())
            if repaired.unserved_by_rank() < assignment.unserved_by_rank():
                assignment = repaired
        kept.append(assignment.sums_by_rank()[rank])
        relaxation.bound_rows([row], [kept[-1][1]], [kept[-1][1]])
    return assignment


def _search(model: Model, assignment: Assignment) -> Assignment:
    """Return an assignment that serves the same requests for less, or more of an earlier rank."""
    program = model.program
    for each in _PASSES:
        if len(program.costs) > each.max_columns:
            continue
        sums = assignment.sums_by_rank() if any(assignment.unserved) else assignment.sums()
        values = assignment.values()
        relaxed = program.relaxation.cheapest(sums, reached=values)
        key = assignment.sort_key()
        if (
            relaxed is None
            or key[1] - model.money(relaxed.cost) <= _SEARCH_GAP * assignment.cost()
        ):
            break
        values = program.dense(values)
        found = program.search(
            _neighbourhoods(model, values, relaxed, each),
            values,
            sums,
            toward=relaxed.values if each.between else None,
            nodes=each.nodes,
        )
        better = Assignment.rounded(model, found.tolist())
        assignment = better if better.sort_key() < key else assignment
    return assignment


def _neighbourhoods(
    model: Model, values: Array, relaxed: Relaxed, each: Neighbourhoods
) -> Iterator[Sequence[int]]:
    """Yield the free columns of places near each other, the largest possible gain first.

    Free are the columns whose value differs from the relaxation, and the cheapest ones of each
    block. Two places are near if a block has free columns at both.
    """
    import numpy as np

    blocks, places = model.pairs
    differences = abs(values - relaxed.values)
    order = np.lexsort((relaxed.reduced_costs, blocks))
    position = np.arange(len(order)) - np.searchsorted(blocks[order], blocks[order])
    is_cheap = np.zeros(len(order), dtype=bool)
    is_cheap[order] = position < each.cheapest
    free = np.flatnonzero(((differences > EPSILON) | is_cheap) & (blocks >= 0))
    free = free[np.argsort(-differences[free], kind="stable")]
    columns_at: defaultdict[int, list[int]] = defaultdict(list)
    places_of: defaultdict[int, list[int]] = defaultdict(list)
    gains: Counter[int] = Counter()
    for column in free.tolist():
        place = int(places[column])
        columns_at[place].append(column)
        places_of[int(blocks[column])].append(place)
        gains[place] += differences[column] * max(0.0, relaxed.reduced_costs[column])
    machines = [model.machines.get(key) for key in model.places]
    searched: set[int] = set()
    for start, _ in gains.most_common():
        if start in searched:
            continue
        found: list[int] = []
        queue, known = deque([start]), {start}
        while queue and len(found) < each.size:
            place = queue.popleft()
            searched.add(place)
            found += columns_at[place][: each.size]
            if (machine := machines[place]) is not None:
                found.append(machine)
            near = Counter(
                other
                for column in columns_at[place]
                for other in places_of[int(blocks[column])]
                if other not in known
            )
            queue.extend(other for other, _ in near.most_common())
            known.update(near)
        yield sorted(found)


def _record(model: Model, assignment: Assignment, allocation: Allocation) -> None:
    """Record the served requests, the machines, and the reasons why the others wait."""
    known: dict[Blocker, Stop] = {}
    for block, at, unserved in zip(
        model.blocks, assignment.served, assignment.unserved, strict=True
    ):
        for place, requests in at.items():
            allocation.served[place] += [(rank, request) for rank, request, _ in requests]
            for group, count in Counter([group for _, _, group in requests]).items():
                allocation.counts[group, place] += count
        if unserved:
            stops = tuple(assignment.stops(block, known))
            allocation.unserved |= dict.fromkeys([r.key for _, r, _ in unserved], stops)
    allocation.machines |= {place: n for place, n in assignment.machines.items() if n}


def _prove_component(
    component: Component, assignment: Assignment, prove: Callable[[], Proof]
) -> Proof:
    """Return the proof of a component, without a bound if its cost depends on averaged lengths."""
    proof = prove()
    waiting = {group for block in assignment.unserved for _, _, group in block}
    places = {place.key: place for place in component.places}
    if any(group.is_averaged(places, is_left=group.id in waiting) for group in component.groups):
        return replace(proof, bound=0.0, relaxed=0.0, averaged=proof.bound)
    return proof


def _prove_nothing(assignment: Assignment) -> Proof:
    return Proof(assignment.cost(), unsolved=True)


def _prove_exact(model: Model, solution: Solution | None, cost: float) -> Proof:
    if solution is None:
        return Proof(cost, unfinished=True)
    used = [nth for nth, value in enumerate(solution.values) if value]
    relaxed = model.program.relaxation.cheapest(solution.sums, reached=used)
    least = relaxed.cost if relaxed else 0.0
    bound = _without_tie_breaks(model.money(max(solution.bound, least)), cost)
    is_unfinished = solution.nodes >= MAX_NODES
    return Proof(cost, bound, min(bound, model.money(least)), unfinished=is_unfinished)


def _prove_large(model: Model, assignment: Assignment) -> Proof:
    cost, used = assignment.cost(), assignment.values()
    relaxation = model.program.relaxation
    relaxed = relaxation.cheapest(assignment.sums(), penalized=False, reached=used)
    bound = _without_tie_breaks(model.money(relaxed.cost) if relaxed else 0.0, cost)
    short: ShortRanks = ()
    if any(assignment.unserved):
        rows, served = zip(*assignment.sums_by_rank(), strict=True)
        maxima = relaxation.maxima_in_turn(rows, served, used)
        found = zip(model.every_rank, maxima, served, strict=True)
        short = tuple((rank, most - least) for rank, most, least in found if most > least)
    return Proof(cost, bound, bound, rounded=cost > (1 + GAP) * bound, longer=short)


def _without_tie_breaks(bound: float, cost: float) -> float:
    """Return the bound; the cost itself if they differ by tie breaks alone."""
    return cost if cost - bound <= 2 * TIE_BREAK * cost else bound
