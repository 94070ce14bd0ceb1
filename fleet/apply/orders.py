"""Write and end operators' orders in the store, even while a run is active.

No lock is needed: an order applies to all runners immediately, and a run reads the orders again
before it changes each pool.
"""

import argparse
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.apply.config import Config, load_config
from fleet.apply.observe import Sources
from fleet.apply.origin import find_origin
from fleet.apply.plan import look_aloud
from fleet.apply.record import order_entry
from fleet.apply.timer import why_odd
from fleet.apply.wire import wire
from fleet.clock import utc_now
from fleet.errors import FleetError, WrongUsage
from fleet.model.facts import Unknown
from fleet.model.log import LogEntry, Origin
from fleet.model.orders import Freeze, Hold, Order
from fleet.ports import Console
from fleet.schema.findings import nearest
from fleet.schema.model import Fleet, static_names

_MAX_ATTEMPTS = 10_000


@dataclass(frozen=True)
class Ordering:
    """The arguments, store and fleet of a command that places or lifts an order."""

    config: Config
    sources: Sources
    console: Console
    now: datetime
    origin: Origin

    @property
    def fleet(self) -> Fleet:
        """Return the fleet of this configuration."""
        return self.config.fleet

    @classmethod
    def of(cls, args: argparse.Namespace, console: Console) -> "Ordering":
        """Create the context from the arguments of a command."""
        config = load_config(args, console)
        sources = wire(config.fleet, args.file)
        # The store's server has the time for all runners, and the local clock may be wrong.
        now = sources.store.server_time() or utc_now()
        if odd := why_odd(sources.store, now):
            console.note(f"fleet: warning: {odd}")
        return cls(config, sources, console, now, find_origin())

    def terms(self, args: argparse.Namespace) -> dict[str, object]:
        """Return the fields that all orders have: author, start, end and reason."""
        if None in (args.seconds, args.reason):
            raise WrongUsage("an order needs --for TIME and --reason TEXT; `--end` ends one")
        until = self.now + timedelta(seconds=args.seconds)
        by = "@".join(filter(None, (self.origin.by, self.origin.host)))
        return {"by": by, "at": self.now, "until": until, "reason": args.reason}

    @staticmethod
    def ends(args: argparse.Namespace) -> bool:
        """Return True if the command ends an order. Raises WrongUsage if it also places orders."""
        terms = (args.seconds, args.reason, getattr(args, "count", None))
        if args.end and any(each is not None for each in terms):
            raise WrongUsage("--end ends an order now: remove --for, --reason and --count")
        return bool(args.end)

    def place(self, order: Order) -> None:
        """Write an order to the store, for all runners."""
        entry = logged(order.order, order, self.now)
        self.sources.store.place_order(order, entry)

    def lift(self, orders: Iterable[Order], kind: str) -> None:
        """End orders early. `kind` is the kind of their log entries."""
        entries = {each.key: logged(kind, each, self.now) for each in orders}
        self.sources.store.lift_orders(entries)

    def in_force(self) -> tuple[Order, ...]:
        """Return all active orders."""
        return self.sources.store.orders(self.now)

    def check_pool(self, name: str | None) -> None:
        """Raise FleetError for a pool that neither is in fleet.yaml nor has a stack."""
        if name is not None:
            stacks = (record.pool for record in self.sources.store.stacks())
            known = {*self.fleet.pools, *stacks}
            _check("pool", name, known, f"pools of fleet {self.fleet.fleet}")

    def check_machine(self, name: str) -> None:
        """Raise FleetError for an unknown machine. Observe only if fleet did not create it."""
        if any(each.worker == name for each in self.sources.store.attempts(_MAX_ATTEMPTS)):
            return
        if name in static_names(self.fleet):
            raise WrongUsage(f"{name} is static: fleet neither gives it work nor deletes it")
        world = look_aloud(self.config, self.sources, self.console)
        unread = [each for each in world.providers.values() if isinstance(each, Unknown)]
        known = {machine.name for _, machine in world.machines()}
        known |= {each.name for stack in world.known_stacks.values() for each in stack.workers}
        if unread and name not in known:
            self.console.note(f"fleet: warning: {name} is not seen: {unread[0].unknown}")
            return
        _check("machine", name, known, "machines")


def logged(kind: str, order: Order, now: datetime, run: str = "") -> LogEntry:
    """Return the log entry for an order that is placed or lifted."""
    own = order.model_dump(mode="json", exclude={"order", "at", "reason", "pool", "machine"})
    return order_entry(
        kind,
        now,
        run=run,
        pool=("" if isinstance(order, Hold) else order.pool) or "",
        machine=order.machine if isinstance(order, Hold) else "",
        because=order.reason,
        details={key: ", ".join(v) if isinstance(v, list) else str(v) for key, v in own.items()},
    )


def freezes_of(orders: Iterable[Order], pool: str | None) -> list[Freeze]:
    """Return the freezes of this pool only; with None, the freezes that apply to all pools."""
    return [each for each in orders if isinstance(each, Freeze) and each.pool == pool]


def _check(what: str, name: str, known: Collection[str], said: str) -> None:
    if name not in known:
        meant = nearest(name, known)
        hint = f"did you mean {meant}? " if meant else ""
        few = ", ".join(sorted(known)[:12]) or "none"
        raise FleetError(f"nothing was ordered: no {what} {name}; {hint}{said}: {few}")
