"""Who pays for a machine, one sentence per test: it is 08:00, an hour of a machine is 6 EUR."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from fleet.model.facts import Ended, Ledger, MachinePayer, Unknown, Work, Worker, World
from fleet.model.plan import Create
from fleet.planner.inventory import take_inventory
from fleet.planner.ledger import charge_all, payers_of
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_pool,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    a_world,
    ago,
    some_inputs,
)
from tests.builders.cases import Block, read_blocks

NAME = "debian-ci-builders-0001"
HOURLY = {"increment": "1h"}
MINUTE = timedelta(minutes=1)


def a_billed_fleet(billing: dict[str, str] = HOURLY, **pool: object) -> Fleet:
    """Return a fleet with one pool whose machines cost 6 EUR/h."""
    machine = {"type": "ccx33", "price": "6 EUR/h"}
    return a_sim_fleet(
        providers={"desk": {"kind": "sim", "billing": billing}},
        pools={"builders": a_pool(provider="desk", machine=machine, **pool)},
    )


def a_payer(team: str | None, since: datetime) -> MachinePayer:
    return MachinePayer(machine=NAME, pool="builders", team=team, since=since)


def work_of(team: str, started_at: datetime) -> Work:
    return Work(team=team, started_at=started_at)


def a_world_of(
    worker: Worker, *payers: MachinePayer, made: datetime, since: datetime, **overrides: object
) -> World:
    """Return a world with one machine, whose ledger was charged at a moment."""
    machine = a_machine(name=NAME, id=NAME, created_at=made)
    stack = a_stack(provider="desk", workers=(some_inputs(name=NAME),), ids={NAME: NAME})
    defaults: dict[str, object] = {
        "providers": {"desk": a_listing(machine, workers=(worker.altered(name=NAME),))},
        "stacks": {"builders": stack},
        "ledger": Ledger(charged_until=since, payers=payers),
    }
    return a_world(**(defaults | overrides))


def paid(fleet: Fleet, *worlds: World) -> dict[str | None, Decimal]:
    """Return what each team is charged by runs that see these worlds in turn."""
    sums: dict[str | None, Decimal] = {}
    payers: Sequence[MachinePayer] | None = None
    for each in worlds:
        ledger = each.ledger
        assert isinstance(ledger, Ledger)
        world = each
        if payers is not None:
            world = each.altered(ledger=ledger.altered(payers=tuple(payers)))
        charged = charge_all(fleet, world, take_inventory(fleet, world))
        payers = charged.payers
        for entry in charged.entries:
            sums[entry.team] = sums.get(entry.team, Decimal(0)) + entry.money
    return {team: money for team, money in sums.items() if money}


CASES = [*read_blocks(Path(__file__).parent / "payers")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_teams_pay_as_in_their_case(case: Block) -> None:
    assert paid_by(*case.parts) == case.result


def paid_by(pool: str, runs: str) -> str:
    """Return what each payer pays, as text."""
    keys = yaml.safe_load(f"{{{pool}}}")
    fleet = a_billed_fleet(keys.pop("billing", HOURLY), **keys)
    found = paid(fleet, *(world_of(each.split()) for each in runs.split(";")))
    return ", ".join(f"{team or 'pool'} {money.normalize():f}" for team, money in found.items())


def world_of(words: list[str]) -> World:
    def before(word: str, after: int = 1) -> datetime:
        return ago(minutes=int(words[words.index(word) + after].rstrip("m")))

    kind, *said = words
    ended = {}
    if "ended" in said:
        work = work_of(words[words.index("ended") + 1], before("ended", 2))
        ended = {"ended": Ended(work=work, at=before("ended", 3))}
    if kind == "busy":
        worker = a_worker(busy=True, work=work_of(said[0], before("busy", 2)), **ended)
    else:
        worker = a_worker(since=before("for") if "for" in said else ago(minutes=5))
    payers = []
    if "payer" in said:
        team = words[words.index("payer") + 1]
        payers.append(a_payer(None if team == "-" else team, before("payer", 2)))
    at = {"time": before("at")} if "at" in said else {}
    return a_world_of(worker, *payers, made=before("made"), since=before("since"), **at)


def test_payers_are_kept_when_clock_went_back() -> None:
    payer = a_payer("x", ago(minutes=30))
    y = a_worker(busy=True, work=work_of("y", ago(minutes=20)))
    world = a_world_of(y, payer, made=ago(minutes=40), since=NOW + MINUTE)
    fleet = a_billed_fleet()

    charged = charge_all(fleet, world, take_inventory(fleet, world))

    assert (charged.entries, charged.payers) == ((), (payer,))


@pytest.mark.parametrize(("hours", "known"), [(1, 1), (30, 0)])
def test_payer_of_unlisted_machine_is_kept_for_a_day(hours: int, known: int) -> None:
    ledger = Ledger(charged_until=NOW, payers=(a_payer("x", ago(hours=hours)),))
    world = a_sim_world(ledger=ledger)
    fleet = a_billed_fleet()

    charged = charge_all(fleet, world, take_inventory(fleet, world))

    assert len(charged.payers) == known


def test_machines_of_unread_provider_are_paid_by_their_payers() -> None:
    since = ago(minutes=30)
    world = a_world_of(a_worker(), a_payer("x", since), made=since, since=since)
    silent = world.altered(providers={"desk": Unknown(unknown="no answer")})
    fleet = a_billed_fleet()

    charged = charge_all(fleet, silent, take_inventory(fleet, silent))

    assert paid(fleet, silent) == {"x": 3}
    assert [(each.machine, each.team) for each in charged.payers] == [(NAME, "x")]


def test_machine_created_for_min_has_its_pool_as_payer() -> None:
    fleet, world = a_billed_fleet(min=1), a_sim_world()
    creates = [each for each in reconcile(fleet, world).actions if isinstance(each, Create)]

    (payer,) = payers_of(fleet, world, take_inventory(fleet, world), creates)

    assert (payer.scope, payer.team, payer.owner, payer.tags) == (None, None, None, ())
