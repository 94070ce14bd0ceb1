"""What speaks against taking a machine into a pool, and how it is recorded; one sentence each."""

import pytest

from fleet.cli.adopt import Adoption, judge_adoption
from fleet.errors import PlanRefused
from fleet.model.facts import FoundMachine, Listing, MachineState, Unknown, WorkerState, World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_machine, a_pool, a_sim_fleet, a_sim_world, a_worker, some_inputs
from tests.builders.deciding import FIRST, actions_of, fleet_with, idle, reason_of
from tests.builders.sentences import tells

NAME = "builder-01"


def found(name: str = NAME, **said: object) -> FoundMachine:
    worker = said.pop("worker", WorkerState.IDLE)
    made: dict[str, object] = {"id": f"sim-{name}", "pool": "", "image": "trixie"}
    labels = said.pop("labels", {"rack": "a"})
    extra = {key: said.pop(key) for key in ("architecture", "settings") if key in said}
    return FoundMachine.model_validate(
        {
            "machine": a_machine(name=name, **(made | said)),
            "architecture": "amd64",
            "labels": labels,
            "worker": a_worker(name=name, pool=None, state=worker) if worker else None,
            **extra,
        }
    )


def judged(
    *machines: FoundMachine,
    world: World | None = None,
    fleet: Fleet | None = None,
    outdated: bool = False,
) -> Adoption:
    return judge_adoption(
        fleet or fleet_with(),
        world or a_sim_world(),
        "builders",
        machines or (found(),),
        outdated_too=outdated,
    )


def refusal(
    *machines: FoundMachine,
    world: World | None = None,
    fleet: Fleet | None = None,
    outdated: bool = False,
) -> str:
    with pytest.raises(PlanRefused) as refused:
        judged(*machines, world=world, fleet=fleet, outdated=outdated)
    return str(refused.value).removeprefix("refused, nothing was changed: ")


def test_adopted_machine_is_recorded_with_its_inputs_and_labels() -> None:
    (adopted,) = judged(found(settings={"boot": "uefi"})).machines

    inputs = adopted.inputs
    assert (inputs.name, inputs.type, inputs.image) == (NAME, "ccx33", "trixie")
    assert inputs.settings == {"boot": "uefi"}
    assert inputs.labels == {
        "rack": "a",
        "fleet": "debian-ci",
        "pool": "builders",
        "worker": NAME,
        "digest": inputs.labels["digest"],
    }


def test_adopted_machine_equal_to_new_one_is_not_outdated() -> None:
    (adopted,) = judged().machines

    assert adopted.differs == ()
    assert tells(adopted.next, "keep", "idle", "retire.idle_after", "15m")


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"type": "ccx43"}, ("type", "ccx43", "ccx33")),
        ({"image": "bookworm"}, ("image", "bookworm", "trixie")),
        ({"architecture": "arm64"}, ("architecture", "arm64", "amd64")),
    ],
)
def test_different_machine_needs_consent_and_is_outdated(
    said: dict[str, object], says: tuple[str, ...]
) -> None:
    machine = found(NAME, **said)

    assert tells(refusal(machine), NAME, *says, "--outdated")
    (adopted,) = judged(machine, outdated=True).machines
    assert [tells(each, *says) for each in adopted.differs] == [True]
    assert "outdated" in adopted.next or "waits" in adopted.next


def test_machine_with_other_settings_is_different() -> None:
    fleet = a_sim_fleet(
        providers={"desk": {"kind": "local", "run": ["true"]}},
        pools={"builders": a_pool(provider="desk", machine={"cores": 1, "memory": "1GiB"})},
    )

    said = refusal(found(type="own", settings={"run": "sleep"}), fleet=fleet)

    assert tells(said, "run", "sleep", "true")


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        (found(labels={"fleet": "other"}), ("label", "fleet other")),
        (
            found(labels={"fleet": "debian-ci", "pool": "big"}),
            ("label", "pool big"),
        ),
        (found("b" * 51), ("name", "50")),
        (found("under_score"), ("name", "50", "hyphens", "dots")),
        (found(state=MachineState.STOPPED), ("provider", "stopped")),
        (found(image=None), ("provider", "image")),
        (found(worker=None), ("no queue", "worker")),
        (found(worker=WorkerState.DISABLED), ("worker", "disabled")),
        (found(worker=WorkerState.DEAF), ("worker", "tags")),
    ],
)
def test_some_obstacles_to_adoption_cannot_be_waived(
    machine: FoundMachine, says: tuple[str, ...]
) -> None:
    assert tells(refusal(machine, outdated=True), machine.machine.name, *says)


def test_static_worker_is_not_counted_twice() -> None:
    pools = {"builders": a_pool(provider="desk"), "legacy": {"static": [NAME]}}

    assert "`static`" in refusal(fleet=a_sim_fleet(pools=pools))


def test_adoption_is_refused_when_two_machines_share_a_name() -> None:
    assert tells(refusal(found(), found(id="sim-2")), NAME, "two")


def test_adoption_of_all_is_refused_when_one_is_refused() -> None:
    assert refusal(found("builder-02"), found(image=None)).startswith(f"{NAME}: ")


def test_name_in_stack_of_another_pool_is_refused() -> None:
    world = a_sim_world(a_worker(name=NAME, pool="big"))

    assert tells(refusal(world=world), "stack", "pool big")


def test_adoption_above_max_is_refused() -> None:
    machines = [found(f"builder-0{number}") for number in range(4)]

    assert tells(refusal(*machines), "builders", "0", "workers.max", "3", "4")


def test_machine_in_stack_is_not_adopted_again() -> None:
    world = a_sim_world(*idle(FIRST))
    again = found(FIRST, labels={"fleet": "debian-ci", "pool": "builders"})

    adoption = judged(again, found(), world=world)

    assert adoption.already == (FIRST,)
    assert [each.machine.name for each in adoption.machines] == [NAME]


def test_marked_machine_without_stack_can_be_adopted() -> None:
    world = a_sim_world()
    listing = world.providers["desk"]
    assert isinstance(listing, Listing)
    machine = a_machine(name=NAME, id=f"sim-{NAME}", image="trixie")
    seen = listing.altered(machines=(machine,))
    world = world.altered(providers={"desk": seen})

    (adopted,) = judged(
        found(labels={"fleet": "debian-ci", "pool": "builders"}), world=world
    ).machines

    assert adopted.next.startswith("keep: ")


def test_adoption_is_refused_while_a_source_is_unknown() -> None:
    world = a_sim_world().altered(providers={"desk": Unknown(unknown="no answer")})

    assert tells(
        refusal(world=world), "pool builders", "unknown", "provider desk", "unknown", "answer"
    )


def test_adoption_is_refused_while_a_registry_is_unknown() -> None:
    world = a_sim_world()
    queue = world.queues["debian"].altered(workers=Unknown(unknown="no answer"))
    listing = world.providers["desk"]
    assert isinstance(listing, Listing)
    blind = world.altered(
        queues={"debian": queue}, providers={"desk": listing.altered(workers=None)}
    )

    assert tells(refusal(world=blind), "queue debian", "unknown", "answer")


@pytest.mark.parametrize(
    ("pools", "says"),
    [
        ({}, ("pool builders", "not in fleet.yaml", "none")),
        (
            {"builders": {"static": ["a"]}, "big": a_pool(provider="desk")},
            ("pool builders", "big"),
        ),
        (
            {"builders": a_pool(provider="desk", mode="drain")},
            ("pool builders", "mode: drain"),
        ),
    ],
)
def test_adoption_is_refused_for_pool_that_creates_no_machines(
    pools: dict[str, object], says: tuple[str, ...]
) -> None:
    assert tells(refusal(fleet=a_sim_fleet(pools=pools)), *says)


def test_plan_replaces_no_machine_after_adoption() -> None:
    (adopted,) = judged().machines
    machine = adopted.machine.altered(pool="builders", digest=adopted.inputs.labels["digest"])
    world = a_sim_world(a_worker(name=NAME))
    listing, stack = world.providers["desk"], world.stacks
    assert isinstance(listing, Listing)
    assert isinstance(stack, dict)
    recorded = stack["builders"]
    assert not isinstance(recorded, Unknown)
    held = recorded.altered(workers=(adopted.inputs,))
    seen = listing.altered(machines=(machine,))
    after = world.altered(providers={"desk": seen}, stacks={"builders": held})

    plan = reconcile(fleet_with(), after)

    assert actions_of(plan) == []
    assert reason_of(plan, NAME) == "idle-recently"
    assert some_inputs(name=NAME) != adopted.inputs
