"""When an apply charges the ledger, and what observing reads of it."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from fleet.apply.observe import Sources, observe
from fleet.apply.run import apply_plan, settle_accounts
from fleet.model.facts import Ledger, Unknown, World
from fleet.planner.inventory import take_inventory
from fleet.planner.ledger import periods
from fleet.ports import Engine, Since
from fleet.state.store import Store
from tests.builders import (
    NOW,
    a_plan,
    a_pool_verdict,
    a_sim_fleet,
    a_sim_world,
    a_worker,
)
from tests.builders.sentences import tells
from tests.fakes.engine import FakeEngine
from tests.fakes.queue import FakeProvider
from tests.fakes.source_reader import FakeSourceReader

FLEET = a_sim_fleet()


def killed(provider: str) -> Engine:
    """Be killed as the first pool's engine is wanted."""
    raise KeyboardInterrupt(provider)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian-ci")
    store.init()
    return store


def sources(store: Store, engine_of: Callable[[str], Engine]) -> Sources:
    return Sources(
        asking=FakeSourceReader,
        queues={},
        providers={"desk": FakeProvider(NOW)},
        registries={},
        engine_of=engine_of,
        store=store,
    )


def world_at(minutes: int, store: Store) -> World:
    """Return the world so many minutes from NOW: one machine, made an hour before NOW."""
    moment = NOW + timedelta(minutes=minutes)
    return a_sim_world(a_worker(), time=moment, ledger=ledger_at(minutes, store))


def ledger_at(minutes: int, store: Store) -> Ledger:
    hour, day, month = (p.start for p in periods(FLEET, NOW + timedelta(minutes=minutes)))
    return store.ledger(Since(hour=hour, day=day, month=month), "EUR")


def alive(_: str) -> Engine:
    return FakeEngine()


def apply(world: World, store: Store, engine_of: Callable[[str], Engine] = alive) -> list[str]:
    said: list[str] = []
    plan = a_plan(pools=(a_pool_verdict(provider="desk"),))
    edges = sources(store, engine_of)
    settle_accounts(FLEET, world, take_inventory(FLEET, world), edges, said.append)
    apply_plan(FLEET, world, plan, edges, said.append)
    return said


def seconds_today(store: Store) -> int:
    return sum(charge.seconds[1] for charge in ledger_at(0, store).charges)


def test_apply_charges_the_time_since_the_last_one(store: Store) -> None:
    apply(world_at(0, store), store)
    apply(world_at(10, store), store)

    ledger = ledger_at(10, store)
    assert ledger.charged_until == NOW + timedelta(minutes=10)
    assert seconds_today(store) == 3600 + 600
    assert ledger.charges[0].money[1] == Decimal("0.0777") * 4200 / 3600


def test_ledger_is_charged_once_when_apply_repeats_with_same_world(store: Store) -> None:
    world = world_at(0, store)

    apply(world, store)
    said = apply(world, store)

    assert seconds_today(store) == 3600
    (line,) = said
    assert tells(line, "another run", "charged")


def test_killed_apply_charges_its_time_once(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt):
        apply(world_at(0, store), store, killed)
    apply(world_at(10, store), store)

    assert seconds_today(store) == 3600 + 600


def test_next_apply_charges_time_of_an_apply_that_died(
    store: Store,
) -> None:
    apply(world_at(0, store), store)
    world_at(10, store)  # observed, and never applied
    apply(world_at(20, store), store)

    assert seconds_today(store) == 3600 + 1200


def test_long_gap_is_charged_and_reported(store: Store) -> None:
    apply(world_at(0, store), store)

    said = apply(world_at(2 * 24 * 60, store), store)

    (sentence,) = said
    assert tells(sentence, "charged", "2d")
    assert sum(c.seconds[2] for c in ledger_at(2 * 24 * 60, store).charges) == 3600 + 2 * 86400


def test_charge_is_empty_when_clock_went_back(store: Store) -> None:
    apply(world_at(10, store), store)
    before = ledger_at(0, store)

    apply(world_at(0, store), store)

    assert ledger_at(0, store) == before


@pytest.mark.parametrize(
    ("charged", "now"), [(61, 59), (65, 58), (69, 59), (24 * 60 + 4, 24 * 60 - 5)]
)
def test_charges_are_kept_when_clock_is_minutes_behind(
    store: Store, charged: int, now: int
) -> None:
    apply(world_at(0, store), store)
    apply(world_at(charged, store), store)
    before = ledger_at(charged, store)

    said = apply(world_at(now, store), store)

    assert (ledger_at(charged, store), said) == (before, [])


def test_charges_of_next_hour_are_reverted_when_clock_is_far_behind(store: Store) -> None:
    apply(world_at(0, store), store)
    apply(world_at(72, store), store)

    apply(world_at(59, store), store)

    assert ledger_at(72, store).charged_until == NOW + timedelta(minutes=60)


def test_future_hours_charged_by_fast_clock_do_not_count(store: Store) -> None:
    apply(world_at(0, store), store)
    apply(world_at(24 * 60, store), store)

    spent = ledger_at(10, store).charges[0].seconds

    # An hour before NOW, and the hour that began at NOW as a whole.
    assert spent == (3600, 3600 + 3600, 3600 + 3600)


@pytest.mark.slow
def test_charge_is_reverted_and_reported_when_clock_was_ahead(store: Store) -> None:
    apply(world_at(0, store), store)
    apply(world_at(400 * 24 * 60, store), store)

    (sentence,) = apply(world_at(10, store), store)
    apply(world_at(70, store), store)

    assert "2027-12-26 08:00 UTC" in sentence
    assert ledger_at(70, store).charged_until == NOW + timedelta(minutes=70)
    assert seconds_today(store) == 3600 + 3600
    assert ledger_at(70, store).charges[0].seconds[0] == 600
    assert len(store.dump()["ledger"]) == 3


def test_future_run_is_ignored(store: Store) -> None:
    for days in (0, 400):
        began = NOW + timedelta(days=days)
        store.record_run(started=began, ended=began, plan="p", outcome="{}")

    world = observe(FLEET, sources(store, alive), NOW + timedelta(minutes=1))

    assert world.runs == (NOW,)


def test_observation_contains_charged_ledger(store: Store) -> None:
    apply(world_at(0, store), store)

    world = observe(FLEET, sources(store, alive), NOW)

    assert world.ledger == ledger_at(0, store)


def test_unreadable_ledger_is_unknown(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/none.db", "debian-ci")

    world = observe(FLEET, sources(store, alive), NOW)

    assert isinstance(world.ledger, Unknown)
    assert tells(world.ledger.unknown, "store")


def test_ledger_of_another_currency_is_unknown(store: Store) -> None:
    apply(world_at(0, store), store)

    world = observe(a_sim_fleet(money={"currency": "USD"}), sources(store, alive), NOW)

    assert isinstance(world.ledger, Unknown)
    assert tells(world.ledger.unknown, "currency", "USD")
