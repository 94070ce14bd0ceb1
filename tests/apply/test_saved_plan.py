"""A saved plan is held against the plan of now: by what is done, never by whom it is done for."""

from decimal import Decimal
from typing import Any

import pytest

from fleet.apply.saved_plan import find_drift, read_plan, with_unknown_amounts
from fleet.errors import FileUnreadable, PlanOutdated
from fleet.guard import guard
from fleet.model.digests import seal
from fleet.model.plan import Digests, Plan
from fleet.model.values import FOR_PEOPLE, UnknownFigure, Value
from fleet.reconcile import reconcile
from fleet.report.json import plan_to_json
from tests.builders import (
    a_create,
    a_delete,
    a_drain,
    a_plan,
    a_pool,
    a_pool_verdict,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_worker_verdict,
    an_idle_verdict,
    some_inputs,
)
from tests.builders.budgeting import a_budget_verdict
from tests.builders.sentences import tells

DIGESTS = Digests(config="c" * 64, world="w" * 64)


def sealed(**overrides: object) -> Plan:
    return seal(a_plan(**({"digests": DIGESTS} | overrides)))


def test_unknown_amounts_keep_their_reason_when_they_have_one() -> None:
    unread = UnknownFigure(unknown="the store does not answer")
    plan = a_plan(
        budgets=(a_budget_verdict(spent=unread),),
        workers=(a_worker_verdict(cost=unread, cost_known=False), a_worker_verdict()),
    )

    assert with_unknown_amounts(plan) == plan


def test_worker_cost_of_an_older_plan_is_unknown_when_it_was() -> None:
    old = a_worker_verdict(cost=Decimal(0), cost_known=False)

    (worker,) = with_unknown_amounts(a_plan(workers=(old,))).workers

    assert isinstance(worker.cost, UnknownFigure)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "EOF while parsing a value"),
        (plan_to_json(sealed()).encode()[:200], "EOF while parsing"),
        (b"[]", "$: "),
        (b'{"fleet": "debian-ci"}', "$.time: Field required"),
        (b'{"format": "fleet-world-1"}', "its format is 'fleet-world-1'; create"),
        (b"\xff\xfe", "expected value at line 1"),
        (
            plan_to_json(sealed()).replace("fleet-plan-1", "fleet-plan-2").encode(),
            "fleet-plan-1, not 'fleet-plan-2'",
        ),
    ],
)
def test_read_plan_names_defect_when_file_is_not_a_plan(content: bytes, said: str) -> None:
    with pytest.raises(FileUnreadable) as unreadable:
        read_plan("p.json", content)

    assert str(unreadable.value).startswith("p.json: ")
    assert said in str(unreadable.value)
    assert tells(str(unreadable.value), "fleet plan --out FILE")


def test_edited_plan_is_refused() -> None:
    saved = plan_to_json(sealed(actions=(a_create(),)))
    edited = saved.replace("ccx33", "ccx63")
    assert edited != saved

    with pytest.raises(PlanOutdated, match=r"p\.json") as refused:
        read_plan("p.json", edited.encode())

    assert tells(str(refused.value), "fleet plan --out FILE")


def test_drift_is_empty_when_only_requests_and_counts_differ() -> None:
    saved = a_plan(
        actions=(a_create(serves=("debian/1",), because="1 request waits", turn=0),),
        workers=(an_idle_verdict(worker="debian-ci-builders-0002"),),
    )
    now = a_plan(
        actions=(a_create(serves=("debian/7",), because="9 requests wait", turn=4),),
        workers=(a_worker_verdict(worker="debian-ci-builders-0002"),),
    )

    assert find_drift(saved, now) == ()


def test_drift_ignores_labels_that_each_run_rewrites() -> None:
    saved = a_create(inputs=some_inputs(labels={"digest": "a", "expires": "1", "commit": "1"}))
    now = a_create(inputs=some_inputs(labels={"digest": "a", "expires": "2", "commit": "2"}))

    assert find_drift(a_plan(actions=(saved,)), a_plan(actions=(now,))) == ()


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        (
            {"digests": DIGESTS},
            {"digests": DIGESTS.altered(config="d" * 64)},
            ("fleet.yaml", "changed"),
        ),
        (
            {"actions": (a_drain(),), "pools": (a_pool_verdict(serial=3),)},
            {"actions": (a_drain(),), "pools": (a_pool_verdict(serial=5),)},
            ("stack debian-ci-builders", "serial 3 then, serial 5 now"),
        ),
        (
            {"actions": (a_create(),), "pools": (a_pool_verdict(stack=None, serial=None),)},
            {"actions": (a_create(),), "pools": (a_pool_verdict(serial=5),)},
            ("stack debian-ci-builders", "absent then, serial 5 now"),
        ),
        (
            {"actions": (a_create(),)},
            {},
            ("saved", "create debian-ci-builders-0001 of pool builders [requests-wait]"),
        ),
        (
            {},
            {"actions": (a_create(because="1 waits"),)},
            (
                "current",
                "create debian-ci-builders-0001 of pool builders [requests-wait]: 1 waits",
            ),
        ),
        (
            {"actions": (a_create(inputs=some_inputs(image="trixie-1")),)},
            {"actions": (a_create(inputs=some_inputs(image="trixie-2")),)},
            ("create debian-ci-builders-0001", "image trixie-1 then, trixie-2 now"),
        ),
        (
            {"actions": (a_create(cost="0.1"),)},
            {"actions": (a_create(cost="0.2"),)},
            ("create debian-ci-builders-0001", "cost 0.1000 then, 0.2000 now"),
        ),
        (
            {"actions": (a_delete(revokes=False),)},
            {"actions": (a_delete(revokes=True),)},
            ("delete debian-ci-builders-0001", "revokes False then, True now"),
        ),
        (
            {"workers": (an_idle_verdict(worker="w", verdict="keep"),)},
            {"workers": (an_idle_verdict(worker="w", verdict="drain", because="idle for 1h"),)},
            ("worker w of pool builders", "keep then, drain now: idle for 1h"),
        ),
        (
            {"workers": (an_idle_verdict(worker="w"),)},
            {},
            ("worker w of pool builders", "keep then, absent now"),
        ),
    ],
)
def test_drift_names_each_different_action(
    before: dict[str, object], after: dict[str, object], parts: tuple[str, ...]
) -> None:
    (difference,) = find_drift(a_plan(**before), a_plan(**after))

    assert [part for part in parts if part not in difference] == []


def test_drift_ignores_serial_of_unchanged_stack() -> None:
    saved = a_plan(pools=(a_pool_verdict(serial=3),))
    now = a_plan(pools=(a_pool_verdict(serial=5),))

    assert find_drift(saved, now) == ()


def test_drift_is_empty_when_guard_withholds_a_creation() -> None:
    planned = a_worker_verdict(worker="debian-ci-builders-0009", verdict="create", state="planned")
    now = a_plan(withheld=(a_create(worker="debian-ci-builders-0009"),), workers=(planned,))

    assert find_drift(a_plan(), now) == ()


def reworded(value: Any) -> Any:  # noqa: ANN401 - any part of a plan
    """Return a value with another wording of each sentence in it."""
    fields = type(value).model_fields
    changes: dict[str, object] = {}
    for name, field in fields.items():
        held = getattr(value, name)
        if FOR_PEOPLE in field.metadata:
            changes[name] = f"{held}, in other words" if isinstance(held, str) else held
        elif isinstance(held, Value):
            changes[name] = reworded(held)
        elif isinstance(held, tuple):
            changes[name] = tuple(reworded(e) if isinstance(e, Value) else e for e in held)
    return value.altered(**changes)


def unserved_plan(**request: object) -> Plan:
    """Return a plan with a full pool, a request that fits none and one with a denied tag."""
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", max=1)}, tags={"big": {"asked_by": ["rules"]}}
    )
    denied = a_request(id="3", required=("big",), asked={"big": "user"}, requester="ada")
    requests = (a_request(id="1"), a_request(id="2"), a_request(id="4", required=("gpu",)))
    world = a_sim_world(requests=(*requests, denied.altered(**request)))
    return guard(fleet, reconcile(fleet, world))


def test_digest_is_independent_of_wording() -> None:
    plan = unserved_plan()
    other = reworded(plan)

    assert len(plan.unserved) > 1
    assert plan_to_json(plan) != plan_to_json(seal(other))
    assert seal(other).digests == plan.digests


@pytest.mark.parametrize("key", ["code", "needed"])
def test_digest_changes_with_a_decision(key: str) -> None:
    plan = unserved_plan()
    (first, *rest) = plan.unserved
    (blocked,) = first.blocked
    change = {"code": "closed"} if key == "code" else {"needed": Decimal(7)}
    other = first.altered(blocked=(blocked.altered(**change),))

    assert seal(plan.altered(unserved=(other, *rest))).digests != plan.digests


def test_plan_with_digest_over_sentences_is_read_unless_changed() -> None:
    plan = unserved_plan()
    older = seal(plan.altered(digests=plan.digests.altered(over="sentences")))

    assert older.digests.plan != plan.digests.plan
    assert read_plan("p.json", plan_to_json(older).encode()) == older
    with pytest.raises(PlanOutdated):
        read_plan("p.json", plan_to_json(older.altered(unknown=("more",))).encode())
