"""What every Store promises of a pool that is renamed: its money and memory follow its stack."""

from decimal import Decimal

from fleet.state.store import Store
from tests.builders import an_attempt
from tests.ports.stores import a_record, opener, postgres_url, store
from tests.ports.test_store_ledger import SINCE, a_charging, a_payer, an_entry

__all__ = ["opener", "postgres_url", "store"]


def test_charges_follow_a_renamed_pool(store: Store) -> None:
    store.record_stack(a_record(pool="builders"))
    of_work = {"scope": "debian", "tags": ("big",)}
    store.charge(a_charging(an_entry(), an_entry(**of_work), an_entry(pool="other")))

    store.record_stack(a_record(pool="heavy"))

    charges = store.ledger(SINCE, "EUR").charges
    assert sorted((each.pool, each.scope or "", each.tags) for each in charges) == [
        ("heavy", "", ()),
        ("heavy", "debian", ("big",)),
        ("other", "", ()),
    ]


def test_charges_of_both_names_in_one_hour_are_added(store: Store) -> None:
    store.record_stack(a_record(pool="builders"))
    store.charge(a_charging(an_entry(), an_entry(pool="heavy", seconds=30, money="0.001")))

    store.record_stack(a_record(pool="heavy"))

    (charge,) = store.ledger(SINCE, "EUR").charges
    assert (charge.pool, charge.seconds[0], charge.money[0]) == ("heavy", 90, Decimal("0.003"))


def test_attempts_follow_the_stack_of_a_renamed_pool(store: Store) -> None:
    store.record_stack(a_record(pool="builders"))
    store.record_attempts([an_attempt(), an_attempt(pool="other", worker="debian-ci-other-0001")])

    store.record_stack(a_record(pool="heavy"))

    assert {(each.pool, each.worker) for each in store.attempts(5)} == {
        ("heavy", "debian-ci-builders-0001"),
        ("other", "debian-ci-other-0001"),
    }


def test_payers_follow_the_stack_of_a_renamed_pool(store: Store) -> None:
    store.record_stack(a_record(pool="builders"))
    store.note_payers([a_payer("builders"), a_payer("other", pool="other")])

    store.record_stack(a_record(pool="heavy"))

    found = store.ledger(SINCE, "EUR").payers
    assert {(each.machine, each.pool) for each in found} == {
        ("builders", "heavy"),
        ("other", "other"),
    }
