"""When an apply charges the ledger, and what observing reads of it: cases of `charges/`."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from fleet.apply.run import apply_plan, settle_accounts
from fleet.model.facts import Ledger, World
from fleet.planner.inventory import take_inventory
from fleet.planner.ledger import periods
from fleet.ports import Engine, Since
from tests.builders import NOW, a_plan, a_pool_verdict, a_sim_fleet, a_sim_world, a_worker
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells
from tests.builders.sources import some_sources
from tests.builders.stores import new_store
from tests.fakes.engine import FakeEngine, Killed

FLEET = a_sim_fleet()
CASES = [*read_blocks(Path(__file__).parent / "charges")]


def killed(_: str) -> Engine:
    """Be killed as the first pool's engine is wanted."""
    raise Killed


def alive(_: str) -> Engine:
    return FakeEngine()


class Runs:
    """Applies of one fleet, whose one machine was made an hour before NOW."""

    def __init__(self) -> None:
        self.store = new_store()
        self.said: list[str] = []
        self._world: World | None = None

    def play(self, text: str) -> None:
        """Apply at these minutes; `again` with the world of the last, `killed` to no end."""
        for minute, *how in (each.split() for each in text.split(",")):
            if self._world is None or "again" not in how:
                moment = NOW + timedelta(minutes=int(minute))
                ledger = self.ledger(int(minute))
                self._world = a_sim_world(a_worker(), time=moment, ledger=ledger)
            self.apply(self._world, killed if "killed" in how else alive)

    def apply(self, world: World, engine_of: Callable[[str], Engine]) -> None:
        """Apply in a world."""
        self.said.clear()
        edges = some_sources(self.store, engine_of=engine_of)
        settle_accounts(FLEET, world, take_inventory(FLEET, world), edges, self.said.append)
        plan = a_plan(pools=(a_pool_verdict(provider="desk"),))
        try:
            apply_plan(FLEET, world, plan, edges, self.said.append)
        except Killed:
            self.said.append("killed")

    def ledger(self, minute: int) -> Ledger:
        """Return the ledger as a minute sees it."""
        hour, day, month = (p.start for p in periods(FLEET, NOW + timedelta(minutes=minute)))
        return self.store.ledger(Since(hour=hour, day=day, month=month), "EUR")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_runs_charge_the_time_of_their_case(case: Block) -> None:
    minutes, seen = case.parts
    runs = Runs()
    runs.play(minutes)

    ledger = runs.ledger(int(seen))
    until = ledger.charged_until
    assert until is not None
    seconds = [sum(each.seconds[n] for each in ledger.charges) for n in range(3)]
    told = " ".join(map(str, seconds))
    assert f"until {(until - NOW) / timedelta(minutes=1):g}; {told}" == case.result
    (*_, words) = case.because[0] if case.because else ("", "")
    assert bool(runs.said) is bool(words)
    assert all(tells(each, *words.split()) for each in runs.said), runs.said


def test_charge_has_the_price_of_its_time() -> None:
    runs = Runs()
    runs.play("0, 10")

    assert runs.ledger(10).charges[0].money[1] == Decimal("0.0777") * 4200 / 3600


@pytest.mark.slow
def test_charge_is_reverted_and_reported_when_clock_was_ahead() -> None:
    runs = Runs()
    runs.play(f"0, {40 * 24 * 60}, 10")

    (sentence,) = runs.said
    runs.play("70")
    assert "2026-12-31 08:00 UTC" in sentence
    assert runs.ledger(70).charged_until == NOW + timedelta(minutes=70)
    assert runs.ledger(70).charges[0].seconds[:2] == (600, 3600 + 4200)
    assert len(runs.store.dump()["ledger"]) == 3
