"""This module charges the ledger for the time since it was last charged."""

from datetime import datetime

from fleet.budgets.ledger import charge, gap_of, periods
from fleet.census import take_census
from fleet.facts import Unknown, World
from fleet.ports import Tell
from fleet.ports.store import Charging, Store
from fleet.schema.model import Fleet


def charge_ledger(fleet: Fleet, world: World, store: Store, tell: Tell) -> None:
    """Charge the time since the ledger was last charged, before anything is changed.

    Where this run is killed before that, the next one charges the time of both.
    """
    ledger = world.ledger
    if isinstance(ledger, Unknown):
        return
    if ledger.charged_until is not None and world.time <= ledger.charged_until:
        _take_back(fleet, world.time, ledger.charged_until, store, tell)
        return
    charging = Charging(
        since=ledger.charged_until,
        until=world.time,
        currency=fleet.money.currency,
        entries=charge(fleet, world, take_census(fleet, world)),
    )
    late = gap_of(world)
    if late:
        tell(late)
    if not store.charge(charging):
        tell("another run has charged the ledger meanwhile; nothing was charged twice")


def _take_back(fleet: Fleet, now: datetime, until: datetime, store: Store, tell: Tell) -> None:
    """Take back what a run charged for hours that have not begun; this one stays as charged."""
    end = periods(fleet, now)[0].end
    if until <= end:
        return
    tell(
        f"the ledger was charged until {until:%Y-%m-%d %H:%M} UTC, later than now: the clock of a "
        "run was ahead; what it charged for later hours is taken back"
    )
    store.charge(Charging(since=until, until=end, currency=fleet.money.currency))
