"""Orders of operators, for a limited time: `fleet freeze`, `fleet hold` and `fleet approve`.

An order needs no lock: it applies to all runners immediately, and a run reads the orders again
before it changes each pool. `--end` ends orders early.
"""

import argparse
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import get_args

from fleet.apply.config import Config, load_config
from fleet.apply.observe import Sources
from fleet.apply.plan import observe_and_print
from fleet.apply.rebuild import list_unknown
from fleet.apply.record import find_origin, log_of_order
from fleet.apply.timer import why_odd
from fleet.apply.wire import wire
from fleet.cli.arguments import (
    FILE,
    argument,
    count,
    defaults,
    duration,
    exclusive,
    flag,
    option,
    reason,
)
from fleet.clock import utc_now
from fleet.errors import FleetError, WrongUsage
from fleet.guard import command_to_end
from fleet.model.orders import FLEET, FROZEN, Freeze, GivenApproval, Hold, Order
from fleet.model.plan import GuardName
from fleet.ports import Console
from fleet.schema.findings import nearest
from fleet.schema.model import static_names
from fleet.schema.units import write_count, write_time

_MAX_ATTEMPTS = 10_000


_Ending = tuple[Collection[Order], str, Collection[str]]
"""Orders to end early, the kind of their log entries, and the messages about the end."""


@dataclass(frozen=True)
class _Ordering:
    """The arguments of a command that places or ends an order, with the fleet's adapters."""

    args: argparse.Namespace
    config: Config
    sources: Sources
    console: Console
    now: datetime

    @property
    def terms(self) -> dict[str, object]:
        """Return the fields that all orders have: author, start, end and reason."""
        if None in (self.args.seconds, self.args.reason):
            raise WrongUsage("an order needs --for TIME and --reason TEXT; `--end` ends one")
        origin = find_origin()
        until = self.now + timedelta(seconds=self.args.seconds)
        by = "@".join(filter(None, (origin.by, origin.host)))
        return {"by": by, "at": self.now, "until": until, "reason": self.args.reason}

    def check_pool(self) -> None:
        """Raise FleetError for a pool that neither is in fleet.yaml nor has a stack."""
        if self.args.pool is not None:
            stacks = (record.pool for record in self.sources.store.stacks())
            fleet = self.config.fleet
            known = {*fleet.pools, *stacks}
            _check("pool", self.args.pool, known, f"pools of fleet {fleet.fleet}")

    def check_machine(self) -> None:
        """Raise FleetError for an unknown machine. Observe only if fleet did not create it."""
        name = self.args.machine
        if any(each.worker == name for each in self.sources.store.attempts(_MAX_ATTEMPTS)):
            return
        if name in static_names(self.config.fleet):
            raise WrongUsage(f"{name} is static: fleet neither gives it work nor deletes it")
        world = observe_and_print(self.config, self.sources, self.console)
        unseen = next(list_unknown(world.providers), "")
        known = {machine.name for _, machine in world.machines()}
        known |= {each.name for stack in world.known_stacks.values() for each in stack.workers}
        if unseen and name not in known:
            self.console.note(f"fleet: warning: {name} is not seen: {unseen}")
            return
        _check("machine", name, known, "machines")


def run(args: argparse.Namespace, console: Console) -> int:
    """Store an order, in place of an earlier order with the same key; with --end, end orders."""
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    store = sources.store
    # The store's server has the time for all runners, and the local clock may be wrong.
    now = store.server_time() or utc_now()
    if odd := why_odd(store, now):
        console.note(f"fleet: warning: {odd}")
    terms = (args.seconds, args.reason, getattr(args, "count", None))
    if args.end and any(each is not None for each in terms):
        raise WrongUsage("--end ends an order now: remove --for, --reason and --count")
    if args.end:
        ending: _Ending = args.find_ending(args, store.orders(now))
        orders, kind, said = ending
        store.lift_orders({each.key: log_of_order(kind, each, now) for each in orders})
    else:
        order, text = args.place(_Ordering(args, config, sources, console, now))
        store.place_order(order, log_of_order(order.order, order, now))
        said = (text,)
    for each in said:
        console.out(each)
    return 0


def _freeze(ordering: _Ordering) -> tuple[Freeze, str]:
    ordering.check_pool()
    order = Freeze(pool=ordering.args.pool, stops=ordering.args.stops, **ordering.terms)
    end = command_to_end(order)
    return order, f"{order.what} frozen until {write_time(order.until)}; `{end}` ends it"


def _find_freezes(args: argparse.Namespace, orders: Collection[Order]) -> _Ending:
    """Return the freezes of a pool; without a pool, those of the whole fleet."""
    if args.stops != FROZEN:
        raise WrongUsage(
            "--end ends all freezes of a pool or of the fleet; remove --creates or --deletes"
        )
    freezes = [each for each in orders if isinstance(each, Freeze)]
    ending = [each for each in freezes if each.pool == args.pool]
    said = [f"{each.what} no longer frozen: ended the freeze {each.said}" for each in ending]
    what = f"pool {args.pool}" if args.pool else "the fleet"
    said = said or [f"{what} is not frozen"]
    others = [each for each in freezes if each.pool != args.pool]
    said += [f"{each.sentence}; `{command_to_end(each)}` ends it" for each in others]
    return ending, "unfreeze", said


def _hold(ordering: _Ordering) -> tuple[Hold, str]:
    ordering.check_machine()
    order = Hold(machine=ordering.args.machine, **ordering.terms)
    return order, (
        f"{order.machine} is held until {write_time(order.until)}; the next `fleet apply` drains "
        f"its worker, `fleet hold {order.machine} --end` ends it"
    )


def _find_holds(args: argparse.Namespace, orders: Collection[Order]) -> _Ending:
    """Return the orders that hold a machine; then, a run resumes its worker or deletes it."""
    holds = [each for each in orders if isinstance(each, Hold)]
    ending = [each for each in holds if each.machine == args.machine]
    if not ending:
        held = ", ".join(each.machine for each in holds) or "none"
        raise FleetError(f"{args.machine} is not held; held: {held}")
    is_failed = all(each.by == FLEET for each in ending)
    follows = "deletes it" if is_failed else "gives its worker work again"
    said = f"{args.machine} is no longer held: the next `fleet apply` {follows}"
    return ending, "release", (said,)


def _approve(ordering: _Ordering) -> tuple[GivenApproval, str]:
    args = ordering.args
    if args.count is None:
        raise WrongUsage("missing: --count; `--end` alone ends an approval")
    ordering.check_pool()
    order = GivenApproval(guard=args.guard, pool=args.pool, count=args.count, **ordering.terms)
    return order, (
        f"guard {order.guard} lets {write_count(order.count, 'machine')} of pool {order.pool} "
        f"pass until {write_time(order.until)}"
    )


def _find_approvals(args: argparse.Namespace, orders: Collection[Order]) -> _Ending:
    """Return the stored approvals of a guard and a pool; those in fleet.yaml stay active."""
    given = [each for each in orders if isinstance(each, GivenApproval)]
    ending = [each for each in given if (each.guard, each.pool) == (args.guard, args.pool)]
    if not ending:
        known = ", ".join(f"{each.guard} of pool {each.pool}" for each in given) or "none"
        raise FleetError(
            f"guard {args.guard} has no approval for pool {args.pool}; approved: {known}"
        )
    except_for = "except for approvals in fleet.yaml"
    said = f"guard {args.guard} refuses again for pool {args.pool}, {except_for}"
    return ending, "disapprove", (said,)


def _check(what: str, name: str, known: Collection[str], said: str) -> None:
    if name not in known:
        meant = nearest(name, known)
        hint = f"did you mean {meant}? " if meant else ""
        few = ", ".join(sorted(known)[:12]) or "none"
        raise FleetError(f"nothing was ordered: no {what} {name}; {hint}{said}: {few}")


_ORDER = (
    argument(
        "--for",
        dest="seconds",
        type=duration,
        metavar="TIME",
        help="duration, for example 2h or 1d 12h, at most 30d",
    ),
    option("--reason", "TEXT", "reason for the log and for other operators", kind=reason),
    flag("--end", "end it now; without --for and --reason"),
)
FREEZE_ARGUMENTS = (
    FILE,
    option("--pool", "NAME", "only this pool (default: every pool)"),
    exclusive(
        *(
            argument(
                f"--{what}",
                action="store_const",
                dest="stops",
                const=(what,),
                default=FROZEN,
                help=f"only {what} (default: creates and deletes)",
            )
            for what in FROZEN
        )
    ),
    defaults(place=_freeze, find_ending=_find_freezes),
    *_ORDER,
)
HOLD_ARGUMENTS = (
    FILE,
    argument("machine", metavar="MACHINE", help="name, as `fleet status` shows it"),
    defaults(place=_hold, find_ending=_find_holds),
    *_ORDER,
)
APPROVE_ARGUMENTS = (
    FILE,
    argument(
        "guard",
        choices=get_args(GuardName),
        metavar="GUARD",
        help="the guard to pass: " + ", ".join(get_args(GuardName)),
    ),
    argument("--pool", required=True, metavar="NAME", help="the pool whose machines may pass"),
    option("--count", "N", "maximum number of machines to pass", kind=count(1, 10_000)),
    defaults(place=_approve, find_ending=_find_approvals),
    *_ORDER,
)
