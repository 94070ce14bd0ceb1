"""What the ledger of every Store promises, over SQLite and PostgreSQL."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.errors import StoreFailed
from fleet.model.facts import Charge, Ledger
from fleet.model.history import Counted
from fleet.ports import RunRecords
from fleet.state.store import Store
from tests.builders import NOW
from tests.ports.records import SINCE, a_charge, a_charging, a_payer, a_tally
from tests.ports.stores import Opener, opener, postgres_url, store

__all__ = ["opener", "postgres_url", "store"]


def test_payers_are_of_latest_charge_and_later_orders(store: Store) -> None:
    tagged = a_payer("m2", "y", tags=("big",), package="hello", scope="debian", owner="ann")
    store.charge(a_charging(a_charge(), payers=(a_payer("m1", "x"), a_payer("gone", "x"))))
    later = {"since": NOW, "until": NOW + timedelta(minutes=1)}

    store.charge(a_charging(payers=(a_payer("m1", "x"), a_payer("m2")), **later))
    store.note_payers((tagged, a_payer("m3", "z")))
    store.note_payers(())

    assert store.ledger(SINCE, "EUR").payers == (a_payer("m1", "x"), tagged, a_payer("m3", "z"))


def test_ledger_sums_current_hour_day_and_month(store: Store, opener: Opener) -> None:
    hours = [NOW, NOW - timedelta(hours=1), NOW - timedelta(days=1), NOW - timedelta(days=30)]

    assert store.charge(a_charging(*(a_charge(hour=hour) for hour in hours)))

    ledger = opener("debian").ledger(SINCE, "EUR")
    assert ledger == Ledger(
        charged_until=NOW,
        charges=(
            Charge(
                pool="builders",
                seconds=(60, 120, 180),
                money=(Decimal("0.002"), Decimal("0.004"), Decimal("0.006")),
            ),
        ),
    )


def test_each_time_is_charged_once_and_exactly(store: Store) -> None:
    tally = (a_tally(seconds=60),)
    first = a_charging(a_charge(money="0.1"), tallies=tally)
    later = {"since": NOW, "until": NOW + timedelta(minutes=1)}
    second = a_charging(a_charge(money="0.4"), a_charge(seconds=0, money="-0.2"), **later)
    store.note_payers((a_payer("m1", "x"),))

    charged = [store.charge(each) for each in (first, first, second, second)]

    assert charged == [True, False, True, False]
    ledger = store.ledger(SINCE, "EUR")
    assert (ledger.charged_until, ledger.payers) == (later["until"], (a_payer("m1", "x"),))
    assert (ledger.charges[0].seconds[0], ledger.charges[0].money[0]) == (120, Decimal("0.3"))
    assert store.tallies("2026-11") == tally


def test_each_payer_has_separate_sums(store: Store) -> None:
    of_work = {"scope": "debian", "team": "x", "owner": "ann", "tags": ("big",)}
    store.charge(a_charging(a_charge(), a_charge(**of_work), a_charge(pool="other")))

    charges = store.ledger(SINCE, "EUR").charges

    with pytest.raises(StoreFailed, match="USD"):
        store.ledger(SINCE, "USD")
    assert sorted((c.pool, c.scope, c.team, c.owner, c.tags) for c in charges if c.scope) == [
        ("builders", "debian", "x", "ann", ("big",))
    ]
    assert sorted(c.pool for c in charges if c.scope is None) == ["builders", "other"]


def test_failing_charge_is_undone(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/store.db")
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "create trigger full before insert on fleet_ledger when new.seconds = 13 "
                "begin select raise(abort, 'disk full'); end"
            )
        )
    engine.dispose()

    with pytest.raises(StoreFailed, match="disk full"):
        store.charge(a_charging(a_charge(), a_charge(pool="other", seconds=13)))

    assert store.ledger(SINCE, "EUR") == Ledger()


# what a month counts beside money


def test_figures_of_a_month_add_up_by_kind_and_name(store: Store, opener: Opener) -> None:
    first = a_charging(tallies=(a_tally(seconds=60, nanos=5), a_tally(month="2026-10", count=1)))
    store.charge(first)
    run = Counted(
        (a_tally(seconds=1, nanos=2, count=3), a_tally(kind="run", name="")), {"q/1": NOW}
    )
    store.record_run(started=NOW, ended=NOW, plan="", outcome="{}", noted=RunRecords((), run))

    again = opener("debian")
    assert again.tallies("2026-11") == (
        a_tally(seconds=61, nanos=7, count=3),
        a_tally(kind="run", name=""),
    )
    assert again.tallies("2026-10") == (a_tally(month="2026-10", count=1),)
    assert again.waited() == {"q/1": NOW}
