"""Calculate how far limits must rise to serve one additional request.

The limits are those of the plan. The requests are first assigned as in the plan. Then, without a
solver, earlier requests and the given request are assigned: limits rise until it is served, and
are then lowered to the amounts in use. A plan with the higher limits checks the result.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from fleet.model.facts import World, market_of
from fleet.model.plan import Create, Plan
from fleet.planner.assignment import Assignment
from fleet.planner.begin import begin_pool_plans
from fleet.planner.demand import Path, RequestGroup, sign_demand
from fleet.planner.formulation import Component, Model, components
from fleet.planner.inventory import take_inventory
from fleet.planner.layout import lay_out
from fleet.planner.staffing import find_supplies
from fleet.schema.model import Fleet

_MAX_PLACES = 6
"""Maximum number of evaluated places, with the fewest blocking limits first; a longer list would
not help a reader."""
_MAX_FILLS = 6
"""Maximum assignments per place; with `_RAISE`, enough for a thousand earlier requests."""
_RAISE = 4
"""Factor by which the next raise grows. The final amounts are lowered to the used amounts, so a
high factor costs at most one assignment."""
_ZERO = Decimal(0)


@dataclass(frozen=True)
class Missing:
    """The amount by which one limit must rise so that a place can serve a request."""

    path: Path
    amount: Decimal
    unit: str


class Lack(NamedTuple):
    """A place that fits a request, and the amounts by which its limits must rise."""

    place: str
    missing: tuple[Missing, ...]


class Shortfalls:
    """Calculator of the amounts by which limits must rise to serve a waiting request."""

    def __init__(self, fleet: Fleet, world: World, plan: Plan) -> None:
        pool_plans = begin_pool_plans(fleet, world, take_inventory(fleet, world))
        supplies = find_supplies(fleet, world, pool_plans)
        layout = lay_out(fleet, world, pool_plans, supplies, sign_demand(fleet, world, supplies))
        self.group_of = layout.group_of
        self.uses = layout.uses
        self._place_of: dict[str, str] = {}
        """Request to the place where the plan serves it."""
        for action in (*plan.actions, *plan.withheld):
            if isinstance(action, Create):
                place = f"{action.pool}/{action.inputs.type}/{market_of(action.inputs)}"
                self._place_of |= dict.fromkeys(action.serves, place)
        supply_of = {unit: name for name, supply in supplies.items() for unit in supply.units}
        for signature in plan.signatures:
            known = ((key, supply_of.get(name)) for key, name in signature.by_worker.items())
            self._place_of |= {key: place for key, place in known if place}
        groups = sorted(layout.groups, key=lambda group: (group.rank, group.id))
        fitting = [group for group in groups if not layout.places.keys().isdisjoint(group.fits)]
        self._components = {
            group.id: component
            for component in components(fitting, layout.places, layout.rows)
            for group in component.groups
        }

    def of(self, key: str) -> Iterator[Lack]:
        """Yield the shortfall of a request at each place that limits forbid, fewest limits first.

        A place where a limit counts an unknown amount is skipped, because the necessary raise is
        unknown.
        """
        group = self.group_of.get(key)
        if group is None or group.id not in self._components:
            return
        filling = _Filling(_until(self._components[group.id], group, key), self._place_of)
        stopped = filling.find_stopped()
        for place in sorted(stopped, key=lambda place: (stopped[place], place))[:_MAX_PLACES]:
            if missing := filling.find_missing(place):
                yield Lack(place, missing)


class _Filling:
    """Assignment of a component: first as in the plan, then more requests greedily by rank."""

    def __init__(self, component: Component, place_of: Mapping[str, str]) -> None:
        self._rows = component.rows
        self._model = Model(component, by_rank=True, exact=0)
        self._last = self._model.blocks[-1]
        self._counts = {
            number: Counter(
                place
                for _, request, _ in block.requests
                if (place := place_of.get(request.key, "")) in block.places
            )
            for number, block in enumerate(self._model.blocks)
        }

    def find_stopped(self) -> dict[str, int]:
        """Map place to the number of limits that block the last request, if all are known."""
        filled = self._fill({})
        short = {place: filled.shortfalls(self._last, place) for place in self._last.places}
        return {
            place: len({self._rows[n].path for n in rows})
            for place, rows in short.items()
            if rows and self._are_known(rows)
        }

    def find_missing(self, place: str) -> tuple[Missing, ...]:
        """Return the raises of limits that serve the last request; empty if none serve it."""
        rows, raised = self._rows, dict[Path, Decimal]()
        for turn in range(_MAX_FILLS):
            filled = self._fill(raised)
            if not filled.unserved[-1]:
                # Per limit, the amount in use above the limit of the plan.
                found: dict[Path, Missing] = {}
                for row, used in zip(rows, filled.used, strict=True):
                    amount = used - row.room + (row.over or _ZERO)
                    known = found.get(row.path)
                    is_above = row.path in raised and used > row.room
                    if is_above and (not known or amount > known.amount):
                        found[row.path] = Missing(row.path, amount, row.unit)
                return tuple(found.values())
            short = filled.shortfalls(self._last, place)
            if not short or not self._are_known(short):
                return ()
            most = defaultdict[Path, Decimal](Decimal)
            for n, amount in short.items():
                most[rows[n].path] = max(most[rows[n].path], amount)
            for path, amount in most.items():
                raised[path] = raised.get(path, _ZERO) + amount * _RAISE**turn
        return ()

    def _are_known(self, rows: Iterable[int]) -> bool:
        return all(self._rows[n].over is not None for n in rows)

    def _fill(self, raised: Mapping[Path, Decimal]) -> Assignment:
        """Return the assignment of requests under the raised limits."""
        self._model.limits.rows = tuple(
            replace(row, room=row.room + raised[row.path]) if row.path in raised else row
            for row in self._rows
        )
        return Assignment.rounded(self._model, self._counts)


def _until(component: Component, group: RequestGroup, key: str) -> Component:
    """Return a component without requests after `key`, whose request gets the last rank."""
    last = next(request for request in group.requests if request.key == key)
    groups = []
    for other in component.groups:
        requests = other.requests if other.rank <= group.rank else ()
        if other.rank == group.rank:
            requests = tuple(request for request in requests if request.order < last.order)
        if requests:
            groups.append(replace(other, requests=requests))
    own = replace(group, requests=(last,), rank=(*group.rank, 1))
    return replace(component, groups=(*groups, own))
