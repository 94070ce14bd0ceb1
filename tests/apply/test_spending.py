"""What counts as used of an approval after a run that was killed."""

import pytest

from fleet.apply.spending import used_so_far
from fleet.model.facts import Stack, Unknown, Worker
from tests.builders import a_stack, a_worker, some_inputs

DARK = Unknown(unknown="no answer")
ONE = "debian-ci-builders-0001"


def holding_one() -> Stack:
    return a_stack(serial=3, workers=(some_inputs(name=ONE),), ids={ONE: "sim-1"})


def used(machine: str, stack: Stack | Unknown | None, *workers: Worker) -> int:
    stacks = {} if stack is None else {"builders": stack}
    return used_so_far({"a": (machine,)}, stacks, [workers])["a"]


def test_approval_is_unused_when_drain_was_not_sent() -> None:
    assert used(f"builders/{ONE}:sim-1", holding_one(), a_worker(name=ONE)) == 0


def test_approval_is_used_when_worker_drains() -> None:
    assert used(f"builders/{ONE}:sim-1", holding_one(), a_worker(name=ONE, draining=True)) == 1


@pytest.mark.parametrize("stack", [a_stack(), None])
def test_approval_is_used_when_machine_is_missing(stack: Stack | None) -> None:
    assert used(f"builders/{ONE}:sim-1", stack) == 1


def test_approval_is_used_when_machine_was_replaced_under_its_name() -> None:
    assert used(f"builders/{ONE}:sim-0", holding_one(), a_worker(name=ONE)) == 1


def test_approval_is_unused_when_creation_never_started() -> None:
    assert used(f"builders/{ONE}@1", a_stack(serial=1)) == 0
    assert used(f"builders/{ONE}@0", None) == 0


def test_approval_is_used_when_creation_started() -> None:
    assert used(f"builders/{ONE}@3", holding_one()) == 1
    assert used(f"builders/{ONE}@1", a_stack(serial=2)) == 1


def test_approval_is_used_when_its_effect_is_unknown() -> None:
    assert used(f"builders/{ONE}:sim-1", DARK) == 1
    assert used_so_far({"a": (f"builders/{ONE}:sim-1",)}, {"builders": holding_one()}, [DARK]) == {
        "a": 1
    }
    assert used_so_far({"a": (f"builders/{ONE}@1",)}, DARK, []) == {"a": 1}
