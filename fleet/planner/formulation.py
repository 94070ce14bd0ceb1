"""Formulate allocation as mixed-integer programs, one per independent component.

Two components share no demand and no limit, so a change in one component never affects the
decisions in another component. `docs/explanation/allocation.md` writes the program out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import groupby
from math import ceil, floor, inf
from operator import attrgetter, itemgetter

from fleet.planner.demand import Constraints, Fit, LimitRow, Ordered, Place, Rank, RequestGroup
from fleet.planner.solver import ROW_MARGIN, Array, Program, np

EPSILON = 1e-6
"""Tolerance for rounding errors of shares and counts."""
TIE_BREAK = 1e-5
"""Relative extra cost of the last place by name. This cost breaks ties by name."""
EXACT_PAIRS = 1500
"""Maximum (group, place) pairs of an exact search, so that it takes under half a second."""
_STEP_PAIRS = 200
"""Maximum pairs for which billing increments of shared machines are variables: they are slow."""
_MIN_SETUP_COST = 1000.0
"""Scaled cost of the cheapest machine, chosen far above the solver's tolerances."""
_ZERO = Decimal(0)

Waiting = tuple[Rank, Ordered, str]
"""(Rank, request, group)."""
_Node = tuple[str, str]


@dataclass(frozen=True)
class Component:
    """Request groups, places and limits that are connected by demand or by a limit."""

    groups: tuple[RequestGroup, ...]
    places: tuple[Place, ...]
    rows: tuple[LimitRow, ...]


def components(
    groups: Sequence[RequestGroup], places: Mapping[str, Place], rows: Sequence[LimitRow]
) -> Iterator[Component]:
    """Yield the connected components in a fixed order, without limits that cannot bind.

    Limits count only the pairs in `groups`, which `open_pairs` may have reduced.
    """
    sets = _Sets()
    fitting: defaultdict[tuple[str, ...], list[RequestGroup]] = defaultdict(list)
    for group in groups:
        fitting[tuple(group.fits)].append(group)
    demand: defaultdict[str, int] = defaultdict(int)
    for keys, members in fitting.items():
        known = [place for place in keys if place in places]
        sets.join(*[("group", group.id) for group in members], *[("place", p) for p in known])
        for place in known:
            demand[place] += sum(len(group.requests) for group in members)
    by_id = {group.id: group for group in groups}
    parts: defaultdict[_Node, tuple[list[RequestGroup], list[Place], list[LimitRow]]]
    parts = defaultdict(lambda: ([], [], []))
    counted = []
    for row in rows:
        counts = [*_counts(row, by_id, demand)]
        if _can_bind(row, counts, demand):
            nodes = [("place", place) for place in row.machines if place in demand]
            nodes += [("group", group.id) for group, _ in counts]
            sets.join(*nodes)
            counted += [(row, nodes[0])] if nodes else []
    for group in groups:
        parts[sets.first(("group", group.id))][0].append(group)
    for key in sorted(demand):
        parts[sets.first(("place", key))][1].append(places[key])
    for row, node in counted:
        parts[sets.first(node)][2].append(row)
    for part in parts.values():
        yield Component(tuple(part[0]), tuple(part[1]), tuple(part[2]))


def _counts(
    row: LimitRow, by_id: Mapping[str, RequestGroup], demand: Mapping[str, int]
) -> Iterator[tuple[RequestGroup, Decimal]]:
    """Yield each group that a limit counts, and the most that one of its requests uses."""
    most: dict[str, Decimal] = {}
    for (group, place), amount in row.requests.items():
        if place in demand and group in by_id and place in by_id[group].fits:
            most[group] = max(most.get(group, amount), amount)
    for group in sorted(most):
        yield by_id[group], most[group]


def _can_bind(
    row: LimitRow, counts: Iterable[tuple[RequestGroup, Decimal]], demand: Mapping[str, int]
) -> bool:
    """Return True if a limit would be exceeded if all requests used as much as possible."""
    used = sum((n * demand[place] for place, n in row.machines.items() if place in demand), _ZERO)
    used += sum((len(group.requests) * amount for group, amount in counts), _ZERO)
    return used > row.room


def open_pairs(
    groups: Iterable[RequestGroup], places: Mapping[str, Place], rows: Iterable[LimitRow]
) -> Iterator[RequestGroup]:
    """Yield the groups with only those open places where no limit excludes even one request.

    Otherwise, an exhausted budget would connect components that share no other limit and no place.
    """
    full: set[str] = set()
    closed: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        full |= {place for place, each in row.machines.items() if each > row.room}
        each_most = (max(each.values(), default=_ZERO) for each in (row.machines, row.requests))
        if sum(each_most) <= row.room:
            continue
        for (group_id, place), amount in row.requests.items():
            if amount + row.machines.get(place, _ZERO) > row.room:
                closed[group_id].add(place)
    for group in groups:
        shut = full.union(closed.get(group.id, ()))
        if shut.isdisjoint(group.fits) and places.keys() >= group.fits.keys():
            yield group
        else:
            own = {p: fit for p, fit in group.fits.items() if p in places and p not in shut}
            yield replace(group, fits=own)


class _Sets:
    """Disjoint sets of nodes (union-find: R. Tarjan, Journal of the ACM 22, 1975)."""

    def __init__(self) -> None:
        self._parent: dict[_Node, _Node] = {}

    def first(self, node: _Node) -> _Node:
        """Return the representative of the set that contains a node."""
        while (parent := self._parent.setdefault(node, node)) != node:
            self._parent[node] = node = self._parent[parent]
        return node

    def join(self, *nodes: _Node) -> None:
        """Join the sets of these nodes."""
        firsts = sorted({self.first(node) for node in nodes})
        self._parent |= dict.fromkeys(firsts[1:], firsts[0]) if firsts else {}


@dataclass
class Block:
    """Request groups with equal usage of the same places and limits."""

    rank: Rank
    requests: list[Waiting]
    """The requests in service order."""
    fits: Mapping[str, Fit]
    places: Mapping[str, int]
    """Open place to its column within the block, sorted by name."""
    group: str
    """The first of the groups. If a limit counts the group, the block has no other group."""
    gaps: Mapping[str, int]
    """Place of new machines to the number of priority levels below the group's best place."""
    gaps_first: bool
    """True: minimise gaps before costs; False: gaps only break ties of costs."""
    first_column: int = 0

    def column(self, place: str) -> int:
        """Return the column of the variable that counts requests of the block at a place."""
        return self.first_column + self.places[place]


class Model:
    """A component with its equal request groups merged to blocks, and the limits of each place."""

    def __init__(self, component: Component, *, by_rank: bool, exact: int = EXACT_PAIRS) -> None:
        self.limits = Constraints(component.rows)
        self.places = {place.key: place for place in component.places}
        self.pairs = sum(len(group.fits) for group in component.groups)
        self.is_exact = self.pairs <= exact
        # Limits may leave requests unserved: then no block contains requests of two ranks.
        self.by_rank = by_rank or (bool(component.rows) and not self.is_exact)
        self.blocks = self._merge(component)
        self.every_rank = sorted({rank for block in self.blocks for rank, _, _ in block.requests})
        """The ranks of all requests, the earliest first."""
        of_rank = groupby(range(len(self.blocks)), lambda nth: self.blocks[nth].rank)
        self.blocks_by_rank = [[*blocks] for _, blocks in of_rank]
        setups = [float(place.setup) for place in component.places if place.setup > 0]
        self.scale = _MIN_SETUP_COST / min(setups, default=1.0)
        """Factor from money to the costs of the program."""
        self.steps = self._count_steps() if self.is_exact and self.pairs <= _STEP_PAIRS else {}
        """Place to the maximum number of billing increments of its shared machines after setup."""

    @cached_property
    def program(self) -> Program:
        """Return the mixed-integer program: variables, constraints and costs."""
        return _Formulation(self).program()

    @cached_property
    def penalties(self) -> Mapping[bool, float]:
        """Return the penalty of one priority level, as money.

        Key True: priorities rank before costs. Key False: priorities only break ties.
        """
        setups = [float(place.setup) for place in self.places.values()]
        work = [float(b.fits[key].money) for b in self.blocks if b.gaps for key in b.places]
        least = _MIN_SETUP_COST / self.scale
        # The first penalty exceeds the cost difference of any two places for one request.
        return {True: 4 * (least + max(setups) + max(work)), False: TIE_BREAK * least}

    def penalty(self, block: Block, place: str) -> float:
        """Return the penalty, as money, of a request of a block at a place of lower priority."""
        return block.gaps[place] * self.penalties[block.gaps_first] if block.gaps else 0.0

    def counts(self, values: Array) -> dict[int, dict[str, int]]:
        """Map block to place to the number of served requests, rounded down from `values`."""
        program, keys = self.program, [*self.places]
        pairs = np.floor(values[: len(program.block)] + EPSILON)
        found = defaultdict[int, dict[str, int]](dict)
        for column in pairs.nonzero()[0].tolist():
            found[int(program.block[column])][keys[program.place[column]]] = int(pairs[column])
        return found

    def money(self, cost: float) -> float:
        """Convert a scaled cost to currency units, without the maximum share of tie breaks."""
        return cost / self.scale / (1 + TIE_BREAK)

    def _count_steps(self) -> dict[str, float]:
        """Map each place to the maximum billing increments of its shared machines after setup."""
        shared: defaultdict[str, float] = defaultdict(float)
        for block in self.blocks:
            for key in block.places:
                fit, place = block.fits[key], self.places[key]
                if fit.share < 1 and place.step and place.makes:
                    shared[key] += float(fit.money) * len(block.requests)
        return {
            key: ceil(money / float(self.places[key].step) + 1)
            for key, money in sorted(shared.items())
        }

    def _merge(self, component: Component) -> list[Block]:
        """Merge groups with equal usage of the same places, except groups that a limit counts."""
        fits = {group.id: group.fits for group in component.groups}
        pairs = (pair for row in component.rows for pair in row.requests)
        counted = {group for group, place in pairs if place in fits.get(group, ())}
        positions: dict[tuple[str, ...], dict[str, int]] = {}
        merged: defaultdict[object, list[RequestGroup]] = defaultdict(list)
        gaps = _priority_gaps(component)
        for group in component.groups:
            rank = group.rank if self.by_rank else None
            own = (*sorted(gaps[group.id].items()), group.by_priority) if gaps else ()
            each: object = group.id
            if group.id not in counted:
                each = tuple([(k, f.share, f.money) for k, f in sorted(group.fits.items())])
            merged[each, own, rank].append(group)
        blocks = []
        for groups in merged.values():
            first = groups[0]
            keys = tuple(first.fits)
            if keys not in positions:
                known = sorted(key for key in keys if key in self.places)
                positions[keys] = {key: nth for nth, key in enumerate(known)}
            requests = _order_requests(groups)
            own_gaps = gaps.get(first.id, {})
            places = positions[keys]
            each_gap = {key: own_gaps.get(key, 0) for key in places} if any(own_gaps) else {}
            blocks.append(
                Block(
                    requests[0][0],
                    requests,
                    first.fits,
                    places,
                    first.id,
                    each_gap,
                    first.by_priority,
                )
            )
        return sorted(blocks, key=lambda block: block.requests[0])


def _order_requests(groups: Iterable[RequestGroup]) -> list[Waiting]:
    """Return the requests of all groups in service order; each group must be sorted."""
    found: list[Waiting] = []
    rank_of = attrgetter("rank")
    for rank, equal in groupby(sorted(groups, key=rank_of), rank_of):
        of_rank = [*equal]
        requests = [(rank, request, group.id) for group in of_rank for request in group.requests]
        found += sorted(requests) if of_rank[1:] else requests
    return found


def _priority_gaps(component: Component) -> dict[str, dict[str, int]]:
    """Map group to place to the number of priority levels below the group's best place.

    Only places of new machines have gaps. The result is empty if all priorities are equal.
    """
    made = {place.key for place in component.places if place.makes}
    levels = sorted(
        {f.priority for g in component.groups for key, f in g.fits.items() if key in made},
        reverse=True,
    )
    if len(levels) <= 1:
        return {}
    level_of = {priority: nth for nth, priority in enumerate(levels)}
    found = {}
    for group in component.groups:
        own = {key: level_of[fit.priority] for key, fit in group.fits.items() if key in made}
        best = min(own.values(), default=0)
        found[group.id] = {key: level - best for key, level in own.items() if level > best}
    return found


class _Formulation:
    """The variables and constraints of a model as arrays.

    Columns: served(block, place) per pair, machines(place), total(block) for the number of served
    requests, and steps(place). Rows: blocks, places, cuts, limits, steps and ranks.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._entries: list[tuple[Array, Array, Array]] = []
        """Entries of the constraint matrix: (rows, columns, factors)."""
        self._row_uppers: list[float] = []
        self._number = {key: nth for nth, key in enumerate(model.places)}
        self._made = [key for key, place in model.places.items() if place.makes]
        self._sizes = np.array([len(block.requests) for block in model.blocks], dtype=float)
        shares: list[float] = []
        money: list[float] = []
        places: list[Array] = []
        arrays: dict[int, Array] = {}
        for block in model.blocks:
            block.first_column = len(shares)
            keys = [*block.places]
            fits = [block.fits[key] for key in keys]
            shares += map(itemgetter(0), fits)
            money += map(float, map(itemgetter(1), fits))
            if id(block.places) not in arrays:
                arrays[id(block.places)] = np.array([self._number[key] for key in keys], dtype=int)
            places.append(arrays[id(block.places)])
        self._shares, self._money = np.array(shares), np.array(money)
        self._place = np.concatenate([*places, np.zeros(0, dtype=int)])
        counts = [len(block.places) for block in model.blocks]
        self._block = np.repeat(np.arange(len(counts)), counts)

    def program(self) -> Program:
        """Return the program with all variables, constraints and costs."""
        model, pairs = self._model, len(self._block)
        machines = {key: pairs + nth for nth, key in enumerate(self._made)}
        totals = range(pairs + len(machines), pairs + len(machines) + len(model.blocks))
        steps = model.steps
        step_columns = {key: totals.stop + nth for nth, key in enumerate(steps)}
        costs, by_name = self._machine_costs()
        work = self._money * model.scale
        if steps:
            is_stepped = np.isin(self._place, [self._number[key] for key in steps])
            work[is_stepped & (self._shares < 1)] = 0.0
        served = np.arange(pairs)
        self._entries.append((self._block, served, np.ones(pairs)))
        self._entries.append((len(totals) + self._place, served, self._shares))
        self._add(range(len(totals)), totals, [-1.0] * len(totals))
        self._row_uppers += [0.0] * len(totals)
        self._add_places(machines)
        self._add_limits(machines)
        for key, column in step_columns.items():
            self._add_billed_steps(key, column, machines[key])
        rank_rows = self._add_ranks(totals) if model.by_rank else []
        step_cost = [float(model.places[key].step) * model.scale for key in steps]
        zeros = np.zeros(len(totals) + len(steps))
        gaps = np.zeros((2, len(costs) + pairs + len(zeros)))
        for block in model.blocks:
            for place, gap in block.gaps.items():
                gaps[0 if block.gaps_first else 1, block.column(place)] = gap
        if gaps.any():
            gaps[1, pairs : pairs + len(costs)] = by_name
            if model.is_exact:  # Priorities count before names.
                costs /= 1 + by_name
        all_costs = np.concatenate([work, costs, np.zeros(len(totals)), step_cost])
        all_uppers = np.concatenate(
            [self._sizes[self._block], self._machine_uppers(), self._sizes, [*steps.values()]]
        )
        penalties = np.zeros(len(all_costs))
        if gaps.any() and not model.is_exact:
            much, little = (model.penalties[first] * model.scale for first in (True, False))
            penalties[:pairs] = much * gaps[0, :pairs] + little * gaps[1, :pairs]
        return Program(
            costs=all_costs,
            uppers=all_uppers,
            penalties=penalties,
            first_costs=gaps[0],
            last_costs=gaps[1],
            row_uppers=np.array(self._row_uppers),
            entries=tuple(np.concatenate(part) for part in zip(*self._entries, strict=True)),
            block=self._block,
            place=self._place,
            machines=np.array([machines.get(key, -1) for key in model.places], dtype=int),
            totals=np.array(totals, dtype=int),
            rank_rows=rank_rows,
            steps=step_columns,
            rank=np.array([nth for nth, own in enumerate(model.blocks_by_rank) for _ in own]),
        )

    def _add(self, rows: Sequence[int], columns: Sequence[int], factors: Sequence[float]) -> None:
        self._entries.append(
            (
                np.array(rows, dtype=int),
                np.array(columns, dtype=int),
                np.array(factors, dtype=float),
            )
        )

    def _add_row(self, factors: Mapping[int, float], upper: float) -> int:
        row = len(self._row_uppers)
        self._add([row] * len(factors), [*factors], [*factors.values()])
        self._row_uppers.append(upper)
        return row

    def _add_places(self, machines: Mapping[str, int]) -> None:
        """Add the capacity constraint of each place (existing workers or new machines)."""
        first = len(self._row_uppers)
        at = {key: first + self._number[key] for key in machines}
        self._add([*at.values()], [*machines.values()], [-1.0] * len(at))
        for place in self._model.places.values():
            self._row_uppers.append(0.0 if place.makes else place.room)
        for nth, place in enumerate(self._model.places.values()):
            part = place.room - floor(place.room + EPSILON)
            if part > EPSILON and not place.makes and not self._model.is_exact:
                # Gomory's cut for a fractional machine: larger requests cannot use the fraction.
                larger = np.flatnonzero((self._place == nth) & (self._shares > part))
                factors = (self._shares[larger] - part) / (1 - part)
                cut = dict(zip(larger.tolist(), factors.tolist(), strict=True))
                self._add_row(cut, float(floor(place.room + EPSILON)))

    def _add_limits(self, machines: Mapping[str, int]) -> None:
        """Add a constraint per limit, with coefficients of machines and of requests."""
        block_of = {block.group: block for block in self._model.blocks}
        for row in self._model.limits.rows:
            factors = {machines[p]: float(n) for p, n in row.machines.items() if p in machines}
            for (group, place), amount in row.requests.items():
                if (block := block_of.get(group)) is not None and place in block.places:
                    factors[block.first_column + block.places[place]] = float(amount)
            # Rounding checks the limits of every solution except an exact solution.
            is_integer = row.room == row.room.to_integral_value()
            margin = ROW_MARGIN if self._model.is_exact and not is_integer else 0
            self._add_row(factors, float(row.room) - margin)

    def _add_ranks(self, totals: range) -> list[int]:
        """Add an unbounded row per rank that counts its served requests; return the rows."""
        return [
            self._add_row({totals[nth]: 1.0 for nth in blocks}, inf)
            for blocks in self._model.blocks_by_rank
        ]

    def _machine_costs(self) -> tuple[Array, Array]:
        """Return the scaled cost of a machine per place, and the relative tie break by name."""
        scale = self._model.scale
        setups = np.array([float(self._model.places[key].setup) for key in self._made])
        turns = np.arange(len(setups))
        by_name = TIE_BREAK * turns / max(1, len(setups))
        # A minimum cost, so that no machine without a price is created while a worker is idle.
        return np.where(setups, setups * (1 + by_name) * scale, TIE_BREAK * (1 + turns)), by_name

    def _machine_uppers(self) -> list[float]:
        """Return the maximum number of new machines per place, by demand and by each limit.

        Without this bound, the relaxation would use fractions of machines that a limit forbids.
        """
        model = self._model
        shares = np.bincount(
            self._place, self._shares * self._sizes[self._block], len(model.places)
        )
        found = []
        for key in self._made:
            rows = [model.limits.rows[n] for n in model.limits.making.get(key, ())]
            limits = [int(row.room // n) for row in rows if (n := row.machines[key]) > 0]
            found.append(max(0, min([ceil(shares[self._number[key]] - EPSILON), *limits])))
        return found

    def _add_billed_steps(self, key: str, column: int, machine: int) -> None:
        """Add a row: setup and billed increments pay for all work on a place's shared machines."""
        place = self._model.places[key]
        factors = {column: -float(place.step), machine: -float(place.unused)}
        for block in self._model.blocks:
            if key in block.places:
                fit = block.fits[key]
                factors[block.column(key)] = float(fit.money if fit.share < 1 else place.unused)
        self._add_row(factors, 0.0)
