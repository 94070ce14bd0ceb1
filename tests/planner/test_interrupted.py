"""What becomes of creations that an apply was killed in, when their pool has changed since."""

import pytest

from fleet.model.facts import Machine, MachineState, Stack, World
from fleet.model.plan import Create, Plan, Reason
from fleet.reconcile import reconcile
from tests.builders import (
    a_listing,
    a_machine,
    a_pool,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    ago,
    an_attempt,
    some_inputs,
)
from tests.builders.sentences import tells

FIRST, SECOND = "debian-ci-builders-0001", "debian-ci-builders-0002"


def begun(*names: str) -> Stack:
    """Return a stack in which the creation of these workers was begun, and nothing else."""
    workers = tuple(some_inputs(name=name) for name in names)
    return a_stack(provider="desk", workers=workers, ids={}, interrupted=True)


def unmade(*names: str) -> World:
    return a_sim_world(stacks={"builders": begun(*names)})


def actions_of(plan: Plan) -> list[tuple[str, str, Reason]]:
    return [(action.action, action.worker, action.reason) for action in plan.actions]


@pytest.mark.parametrize(("result", "tries"), [("out-of-stock", 1), ("quota", 1), ("error", 4)])
def test_creation_is_forgotten_when_its_pool_is_closed(result: str, tries: int) -> None:
    failed = tuple(
        an_attempt(worker=FIRST, result=result, at=ago(minutes=each + 1)) for each in range(tries)
    )

    plan = reconcile(a_sim_fleet(), unmade(FIRST).altered(attempts=failed))

    assert actions_of(plan) == [("delete", FIRST, Reason.INTERRUPTED)]


def test_creation_is_finished_when_only_another_type_is_closed() -> None:
    failed = an_attempt(worker=FIRST, type="ccx63", result="out-of-stock", at=ago(minutes=1))

    plan = reconcile(a_sim_fleet(), unmade(FIRST).altered(attempts=(failed,)))

    assert actions_of(plan) == [("create", FIRST, Reason.INTERRUPTED)]


def test_finished_creation_has_the_same_bytes_in_any_order_of_labels() -> None:
    labels = {"fleet": "debian-ci", "pool": "builders", "digest": "d1"}
    worlds = [
        a_sim_world(
            stacks={
                "builders": begun(FIRST).altered(workers=(some_inputs(name=FIRST, labels=own),))
            }
        )
        for own in (labels, dict(reversed(labels.items())))
    ]

    one, other = (reconcile(a_sim_fleet(), world).model_dump_json() for world in worlds)

    assert one == other


def a_made_machine(**overrides: object) -> Machine:
    """Return the machine that a pool without any, with min: 1, has made of it today."""
    made = reconcile(
        a_sim_fleet(pools={"builders": a_pool(provider="desk", min=1)}), a_sim_world()
    )
    (create,) = [action for action in made.actions if isinstance(action, Create)]
    digest, image = create.inputs.labels["digest"], create.inputs.image
    seen: dict[str, object] = {"created_at": ago(minutes=1), "digest": digest, "image": image}
    return a_machine(**(seen | overrides))


def unnoted(machine: Machine, stack: Stack | None, result: str = "starting") -> World:
    """Return a world in which a machine is listed that its pool's stack knows nothing of.

    The store remembers a try to make it, with this result; empty: it remembers none.
    """
    listing = a_listing(machine, workers=())
    stacks = {"builders": stack} if stack else {}
    tried = an_attempt(worker=machine.name, at=ago(minutes=2), result=result) if result else None
    return a_sim_world(
        providers={"desk": listing}, stacks=stacks, attempts=(tried,) if tried else ()
    )


@pytest.mark.parametrize("result", ["", "registered", "out-of-stock", "quota"])
def test_machine_with_copied_labels_needs_attention(result: str) -> None:
    world = unnoted(a_made_machine(), a_stack(provider="desk"), result)

    plan = reconcile(a_sim_fleet(), world)

    assert not plan.actions
    (said,) = plan.attention
    assert tells(said, "provider", "billed", "no stack")


@pytest.mark.parametrize("result", ["starting", "gone", "error", "name-taken"])
def test_unrecorded_creation_is_completed(result: str) -> None:
    machine = a_made_machine()

    plan = reconcile(a_sim_fleet(), unnoted(machine, a_stack(provider="desk"), result))

    assert actions_of(plan) == [("create", FIRST, Reason.INTERRUPTED)]
    (create,) = plan.actions
    assert isinstance(create, Create)
    assert create.inputs.labels["digest"] == machine.digest


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(a_made_machine(digest="of-another-making"), id="fleet.yaml says another"),
        pytest.param(a_made_machine(state=MachineState.STOPPING), id="it is going"),
    ],
)
def test_machine_unknown_to_stack_needs_attention(machine: Machine) -> None:
    plan = reconcile(a_sim_fleet(), unnoted(machine, a_stack(provider="desk")))

    assert not plan.actions
    assert plan.attention


def test_machine_of_lost_stack_needs_attention() -> None:
    plan = reconcile(a_sim_fleet(), unnoted(a_made_machine(), None))

    assert not plan.actions
    assert plan.attention
