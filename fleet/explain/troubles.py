"""Find freezes, held machines, pools that create no machines, failed creations, spent budgets.

State when freezes end and when failed creations are tried again.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator
from datetime import datetime

from pydantic import Field

from fleet.guard import command_to_end
from fleet.model.decisions import Path, SizeReason
from fleet.model.orders import FLEET, FROZEN, Freeze, Frozen, Hold
from fleet.model.plan import Blocked, Plan, Unserved
from fleet.model.values import Value, later
from fleet.words import answers
from fleet.words.limits import CREATES_NONE
from fleet.words.lives import join

_STOPS = frozenset({SizeReason.CLOSED, SizeReason.IMAGE, SizeReason.OPTION_CLOSED})


class Trouble(Value):
    """A freeze, held machine, pool or budget that needs attention, with the command that helps."""

    about: str = Field(description="A pool, machine, freeze or budget, as `pool builders`.")
    said: str
    fix: str = Field(description="The command that helps, or that explains it.")
    by_order: bool = Field(description="A freeze or a hold, which a person or fleet ordered.")
    reported: bool = later(False, "Whether `attention` also reports it.")
    by: str = later("", "The person who gave the order; empty for fleet's own, or no order.")


def find_troubles(plan: Plan) -> Iterator[Trouble]:
    """Yield each freeze and held machine, then each pool that creates no machines or fails to."""
    frozen = [order.what for order in plan.orders if isinstance(order, Freeze)]
    for order in plan.orders:
        match order:
            case Freeze():
                said = f"frozen {order.said}"
                end = command_to_end(order)
                by = "" if order.is_precaution else order.by
                yield Trouble(about=order.what, said=said, fix=end, by_order=True, by=by)
            case Hold():
                about, said = f"machine {order.machine}", f"held {order.said}"
                # fleet holds a machine that failed to boot so that an operator can inspect it.
                is_own = order.by == FLEET
                console, end = f"machine console {order.machine}", f"hold {order.machine} --end"
                fix = f"fleet {console if is_own else end}"
                by = "" if is_own else order.by
                yield Trouble(about=about, said=said, fix=fix, by_order=True, by=by)
    for pool in plan.pools:
        about, fix = f"pool {pool.pool}", f"fleet explain pool {pool.pool}"
        stops = [each.message for each in pool.decisions if each.code in _STOPS]
        stops = [text for text in stops if not any(what in text for what in frozen)]
        # A problem that needs an operator may already contain the reason of a stop.
        known = "\n".join(plan.attention)
        fresh = [text for text in stops if text.removeprefix(CREATES_NONE) not in known]
        if said := join(*(fresh or stops), pool.failures):
            is_reported = bool(stops) and not fresh
            yield Trouble(about=about, said=said, fix=fix, by_order=False, reported=is_reported)
    yield from _find_budgets(plan)


def _find_budgets(plan: Plan) -> Iterator[Trouble]:
    """Yield each budget that leaves requests without a machine."""
    found: defaultdict[Path, list[tuple[Unserved, Blocked]]] = defaultdict(list)
    for unserved in plan.unserved:
        by_key = {each.path: each for each in unserved.blocked if each.is_budget}
        for path, blocked in by_key.items():
            found[path].append((unserved, blocked))
    for path, waiting in sorted(found.items()):
        first, blocked = waiting[0]
        yield Trouble(
            about=".".join(map(str, path)),
            said=answers.await_budget(sum(each.count for each, _ in waiting), blocked),
            fix=f"fleet explain request {first.requests[0]}",
            by_order=False,
        )


def list_freeze_ends(
    plan: Plan, pools: Collection[str], kinds: Container[Frozen] = FROZEN
) -> Iterator[str]:
    """Yield when each freeze of these pools ends, and the command that ends it earlier."""
    for order in plan.orders if pools else ():
        if not isinstance(order, Freeze) or not any(kind in kinds for kind in order.stops):
            continue
        if order.pool is None or order.pool in pools:
            yield answers.await_freeze(order, command_to_end(order))


def list_retries(plan: Plan, ends: Iterable[datetime | None]) -> Iterator[str]:
    """Yield the next tries to create machines. The end of a freeze is no such time."""
    freezes = {order.until for order in plan.orders if isinstance(order, Freeze)}
    known = {end for end in ends if end is not None} - freezes
    yield from (answers.await_retry(until) for until in sorted(known))
