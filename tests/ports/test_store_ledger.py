"""What the ledger of every Store promises, over SQLite and PostgreSQL."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.errors import StoreFailed, StoreMissing
from fleet.model.facts import Charge, Ledger, LedgerEntry, MachinePayer
from fleet.model.history import Counted, Tally
from fleet.ports import Charging, RunRecords, Since
from fleet.state.store import Store
from tests.builders import NOW
from tests.ports.stores import Opener, opener, postgres_url, store

__all__ = ["opener", "postgres_url", "store"]


# the ledger


def an_entry(**overrides: object) -> LedgerEntry:
    defaults = {"hour": NOW, "pool": "builders", "seconds": 60, "money": "0.002"}
    return LedgerEntry.model_validate(defaults | overrides)


def a_charging(*entries: LedgerEntry, **overrides: object) -> Charging:
    defaults = {"since": None, "until": NOW, "currency": "EUR", "entries": entries}
    return Charging.model_validate(defaults | overrides)


SINCE = Since(hour=NOW, day=NOW - timedelta(hours=8), month=NOW - timedelta(days=20, hours=8))


def a_payer(machine: str, team: str | None = None, **overrides: object) -> MachinePayer:
    said = {"machine": machine, "pool": "builders", "team": team, "since": NOW}
    return MachinePayer.model_validate(said | overrides)


def test_payers_are_of_latest_charge_and_later_orders(store: Store) -> None:
    tagged = a_payer("m2", "y", tags=("big",), package="hello", scope="debian", owner="ann")
    store.charge(a_charging(an_entry(), payers=(a_payer("m1", "x"), a_payer("gone", "x"))))
    later = {"since": NOW, "until": NOW + timedelta(minutes=1)}

    store.charge(a_charging(payers=(a_payer("m1", "x"), a_payer("m2")), **later))
    store.note_payers((tagged, a_payer("m3", "z")))
    store.note_payers(())

    assert store.ledger(SINCE, "EUR").payers == (a_payer("m1", "x"), tagged, a_payer("m3", "z"))


def test_charge_without_payers_keeps_them(store: Store) -> None:
    store.note_payers((a_payer("m1", "x"),))

    store.charge(a_charging(an_entry()))

    assert store.ledger(SINCE, "EUR").payers == (a_payer("m1", "x"),)


def test_new_ledger_was_never_charged(store: Store) -> None:
    assert store.ledger(SINCE, "EUR") == Ledger()


def test_ledger_sums_current_hour_day_and_month(store: Store, opener: Opener) -> None:
    hours = [NOW, NOW - timedelta(hours=1), NOW - timedelta(days=1), NOW - timedelta(days=30)]

    assert store.charge(a_charging(*(an_entry(hour=hour) for hour in hours)))

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


def test_each_payer_has_separate_sums(store: Store) -> None:
    of_work = {"scope": "debian", "team": "x", "owner": "ann", "tags": ("big",)}
    store.charge(a_charging(an_entry(), an_entry(**of_work), an_entry(pool="other")))

    charges = store.ledger(SINCE, "EUR").charges

    assert sorted((c.pool, c.scope, c.team, c.owner, c.tags) for c in charges if c.scope) == [
        ("builders", "debian", "x", "ann", ("big",))
    ]
    assert sorted(c.pool for c in charges if c.scope is None) == ["builders", "other"]


def test_hour_charged_in_parts_has_exact_sum(store: Store) -> None:
    later = NOW + timedelta(minutes=1)
    tenth = an_entry(money="0.1")
    store.charge(a_charging(tenth))
    store.charge(a_charging(an_entry(money="0.2"), since=NOW, until=later))

    (charge,) = store.ledger(SINCE, "EUR").charges

    assert (charge.seconds[0], charge.money[0]) == (120, Decimal("0.3"))


def test_negative_charge_reduces_the_ledger(store: Store) -> None:
    store.charge(a_charging(an_entry(money="0.5"), an_entry(seconds=0, money="-0.125")))

    assert store.ledger(SINCE, "EUR").charges[0].money[0] == Decimal("0.375")


def test_equal_time_is_charged_once(store: Store) -> None:
    later = NOW + timedelta(minutes=1)
    charging = a_charging(an_entry(), since=NOW, until=later)
    store.charge(a_charging())

    assert [store.charge(charging), store.charge(charging)] == [True, False]

    ledger = store.ledger(SINCE, "EUR")
    assert (ledger.charged_until, ledger.charges[0].seconds[0]) == (later, 60)


def test_first_charge_counts_once(store: Store) -> None:
    assert [store.charge(a_charging(an_entry())) for _ in range(2)] == [True, False]


def test_month_charged_in_another_currency_is_not_summed(store: Store) -> None:
    store.charge(a_charging(an_entry()))

    with pytest.raises(StoreFailed, match="USD"):
        store.ledger(SINCE, "USD")


def test_ledger_of_missing_store_is_an_error(opener: Opener) -> None:
    with pytest.raises(StoreMissing):
        opener("debian").ledger(SINCE, "EUR")
    with pytest.raises(StoreMissing):
        opener("debian").charge(a_charging())


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
        store.charge(a_charging(an_entry(), an_entry(pool="other", seconds=13)))

    assert store.ledger(SINCE, "EUR") == Ledger()


# what a month counts beside money


def a_tally(**overrides: object) -> Tally:
    return Tally.model_validate(
        {"month": "2026-11", "kind": "package", "name": "dpkg"} | overrides
    )


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


def test_repeated_charge_adds_no_tallies(store: Store) -> None:
    charging = a_charging(tallies=(a_tally(seconds=60),))

    assert [store.charge(charging) for _ in range(2)] == [True, False]
    assert store.tallies("2026-11") == (a_tally(seconds=60),)


def test_new_store_has_no_tallies(store: Store) -> None:
    assert store.tallies("2026-11") == ()
    assert store.waited() == {}
