"""JSON is stable and loses nothing."""

import json
from datetime import timedelta, timezone
from decimal import Decimal

import pytest

from fleet.model.decisions import Decision, NoMachineReason
from fleet.model.plan import Blocked, Plan
from fleet.report.json import plan_to_json, plan_to_lines
from tests.builders import (
    NOW,
    a_create,
    a_delete,
    a_drain,
    a_guard_result,
    a_plan,
    a_pool_verdict,
    a_signature,
    a_warning,
    a_worker_verdict,
    an_unserved,
)


def _a_full_plan() -> Plan:
    return a_plan(
        actions=(a_create(), a_drain(), a_delete()),
        withheld=(a_delete(worker="debian-ci-builders-0002"),),
        workers=(a_worker_verdict(),),
        pools=(a_pool_verdict(),),
        signatures=(a_signature(by_worker={"b": "w", "a": "w"}),),
        unserved=(an_unserved(),),
        guards=(a_guard_result(),),
        unknown=("queue copr: no answer",),
        warnings=(a_warning(),),
    )


def test_json_is_independent_of_order_of_names() -> None:
    one = a_plan(signatures=(a_signature(by_worker={"a": "w", "b": "w"}),))
    other = a_plan(signatures=(a_signature(by_worker={"b": "w", "a": "w"}),))

    assert plan_to_json(one) == plan_to_json(other)


def test_equal_times_in_two_zones_have_equal_json() -> None:
    in_berlin = NOW.astimezone(timezone(timedelta(hours=1)))

    assert plan_to_json(a_plan(time=in_berlin)) == plan_to_json(a_plan(time=NOW))


def test_omitted_rate_equals_zero_in_json() -> None:
    plan = a_plan()

    assert plan_to_json(plan) == plan_to_json(a_plan(cost_before=Decimal(0)))


def test_rate_is_never_a_negative_zero() -> None:
    assert plan_to_json(a_plan(cost_after=Decimal("-0.00001"))) == plan_to_json(a_plan())


def test_json_ends_with_a_line_break() -> None:
    assert plan_to_json(a_plan()).endswith("}\n")


def test_json_keeps_file_name_that_is_not_utf_8() -> None:
    plan = a_plan(included={"pools.arm": "more-\udcff.yaml"})

    assert json.loads(plan_to_json(plan))["included"] == plan.included


def test_long_lists_have_format_of_short_lists() -> None:
    workers = tuple(a_worker_verdict(worker=f"w-{number}") for number in range(250))
    plan = _a_full_plan().altered(workers=workers, unserved=())

    text = plan_to_json(plan)

    assert text == json.dumps(plan.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
    assert all(lines.endswith("\n") for lines in plan_to_lines(plan))


@pytest.mark.parametrize("tag", ["arm64", "größer", "\n"])
def test_unserved_requests_with_shared_reasons_have_usual_json(tag: str) -> None:
    until = NOW + timedelta(hours=1)
    blocked = tuple(
        Blocked(
            pool=f"p{n}", because=f"{tag} {n}", path=("pools", n), until=until, left=Decimal(n)
        )
        for n in range(3)
    )
    causes, decisions = (
        (blocked, blocked[:1], ()),
        ((), (Decision(code=NoMachineReason.DEADLINE, subject=("p0",)),)),
    )
    unserved = tuple(
        an_unserved(requests=(f"r{n}",)).altered(
            blocked=causes[n % 3], because=f"{tag} {n % 5}", decisions=decisions[n % 2]
        )
        for n in range(250)
    )
    plan = _a_full_plan().altered(unserved=unserved)

    text = plan_to_json(plan)

    dumped = json.dumps(plan.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False)
    assert text == dumped + "\n"
    assert all(lines.endswith("\n") for lines in plan_to_lines(plan))
