"""When a machine is worn out, by age or by use, one sentence per test."""

import pytest

from fleet.model.plan import Cause, Reason
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_sim_world, ago
from tests.builders.deciding import (
    FIRST,
    MON_TO_FRI,
    SECOND,
    THIRD,
    actions_of,
    drained,
    fleet_with,
    idle,
    outdated,
    reason_of,
    sentence_of,
    with_machines,
)
from tests.builders.sentences import tells


def retiring(**retire: object) -> Fleet:
    return fleet_with(retire=retire)


def test_machine_older_than_max_age_is_drained_when_idle() -> None:
    world = with_machines(a_sim_world(*idle(FIRST)), created_at=ago(days=7))

    plan = reconcile(retiring(max_age="7d"), world)

    assert actions_of(plan) == [("drain", FIRST)]
    assert [a.cause for a in plan.actions] == [Cause.DEMAND]
    assert reason_of(plan, FIRST) is Reason.MAX_AGE
    assert tells(sentence_of(plan, FIRST), "7d", "retire.max_age", "7d")


def test_machine_younger_than_max_age_is_kept() -> None:
    world = with_machines(a_sim_world(*idle(FIRST)), created_at=ago(days=6, hours=23))

    assert reconcile(retiring(max_age="7d"), world).is_quiet


def test_machines_of_equal_age_are_replaced_one_at_a_time() -> None:
    world = with_machines(a_sim_world(*idle(FIRST, SECOND, THIRD)), created_at=ago(days=8))

    assert drained(reconcile(retiring(max_age="7d"), world)) == [FIRST]


def test_too_old_machine_waits_for_its_window() -> None:
    fleet = fleet_with(retire={"max_age": "1m"}, replace={"windows": [MON_TO_FRI]})

    assert reconcile(fleet, a_sim_world(*idle(FIRST))).is_quiet


@pytest.mark.parametrize(("uses", "action"), [(49, []), (50, [("drain", FIRST)]), (None, [])])
def test_worker_is_drained_after_max_uses(uses: int | None, action: list[tuple[str, str]]) -> None:
    plan = reconcile(retiring(max_uses=50), a_sim_world(*idle(FIRST, uses=uses)))

    assert actions_of(plan) == action


def test_worker_drained_after_max_uses_has_that_reason() -> None:
    plan = reconcile(retiring(max_uses=50), a_sim_world(*idle(FIRST, uses=51)))

    assert reason_of(plan, FIRST) is Reason.MAX_USES
    assert tells(sentence_of(plan, FIRST), "51", "retire.max_uses", "50")


def test_outdated_old_machine_has_reason_outdated() -> None:
    plan = reconcile(retiring(max_age="1m"), outdated(a_sim_world(*idle(FIRST))))

    assert reason_of(plan, FIRST) is Reason.OUTDATED
