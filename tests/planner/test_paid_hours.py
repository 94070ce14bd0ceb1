"""No paid hour is lost, whenever a machine is released, however often runs come."""

from itertools import product

import pytest

from fleet.model.facts import World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_reading, a_sim_fleet, a_sim_world, a_worker, ago
from tests.builders.deciding import FIRST, with_machines
from tests.builders.ticketing import a_ticket_fleet

HOUR = 60
ASSUMED = 120
"""Seconds that a deletion takes as long as none is known."""


def hourly(cadence: int, zone: str = "UTC", **pool: object) -> Fleet:
    """Return a fleet whose machines are billed by the hour, with runs so many minutes apart."""
    return a_sim_fleet(
        pools={"builders": a_pool(provider="desk", **pool)},
        providers={"desk": {"kind": "sim", "billing": {"increment": "1h"}}},
        cadence=f"{cadence}m",
        money={"time_zone": zone},
    )


def released(minutes: float, *, takes: int | None = None, boots: bool = False) -> World:
    """Return a world with a machine of this age that nothing needs."""
    workers = () if boots else (a_worker(since=ago(days=2)),)
    world = a_sim_world(*workers, starting=(FIRST,) if boots else ())
    world = with_machines(world, FIRST, created_at=ago(minutes=minutes))
    return world.altered(delete_seconds=takes)


def lost_hours(cadence: int, takes: int | None, *, boots: bool, zone: str) -> list[int]:
    """Return the ages in minutes at which a machine is released and an hour of it is lost."""
    fleet = hourly(cadence, zone, boot={"deadline": "3h"})
    goes = [
        bool(reconcile(fleet, released(age + HOUR, takes=takes, boots=boots)).actions)
        for age in range(HOUR)
    ]
    deleting = (0 if boots else cadence) * 60 + (ASSUMED if takes is None else max(60, takes))
    lost = []
    for age in range(HOUR):
        last = next(run for run in range(age, age + 99 * HOUR, cadence) if goes[run % HOUR])
        earliest, gone = age * 60 + deleting, last * 60 + deleting
        hours, fewest = (-(-seconds // 3600) for seconds in (gone, earliest))
        # It goes in the first hour in which it can, by the last run that can do it.
        if hours != fewest or -(-(gone + cadence * 60) // 3600) == hours:
            lost.append(age)
    return lost


@pytest.mark.parametrize(
    ("cadence", "takes"), list(product((1, 5, 10, 15, 20, 30, 60), (None, 10, 300, 900)))
)
def test_no_paid_hour_is_lost_at_any_release_time(cadence: int, takes: int | None) -> None:
    assert lost_hours(cadence, takes, boots=False, zone="UTC") == []


@pytest.mark.parametrize("cadence", [5, 20])
def test_no_paid_hour_of_a_booting_machine_is_lost(cadence: int) -> None:
    assert lost_hours(cadence, 300, boots=True, zone="UTC") == []


def test_no_paid_hour_is_lost_in_time_zone_with_half_hours() -> None:
    assert lost_hours(10, None, boots=False, zone="Asia/Kolkata") == []


@pytest.mark.parametrize("on_demand", [False, True])
@pytest.mark.parametrize(("minutes", "reasons"), [(20, []), (59, []), (61, ["ticket-returned"])])
def test_used_machine_is_kept_for_reuse_when_its_sandbox_is_unknown(
    minutes: int, reasons: list[str], *, on_demand: bool
) -> None:
    reuse = {"reuse": {"opportunity": "1h"}, "retire": {"idle_after": "5m", "at": "once"}}
    fleet = a_ticket_fleet(pool=reuse, tag={"on_demand": on_demand})
    worker = a_worker(name=FIRST, pool="powerful", since=ago(minutes=minutes), uses=1)
    desk = {"tickets": a_reading(workers=None)}

    plan = reconcile(fleet, a_sim_world(worker, queues=desk))

    assert [each.reason for each in plan.actions] == reasons
