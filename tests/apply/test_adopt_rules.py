"""What speaks against taking a machine into a pool, and how it is recorded: `adoptions/`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.cli.adopt import Adoption, judge_adoption
from fleet.errors import PlanRefused
from fleet.model.facts import FoundMachine, Listing, Unknown, World
from fleet.schema.model import Fleet
from tests.builders import a_machine, a_pool, a_sim_fleet, a_sim_world, a_worker
from tests.builders.cases import Block, read_blocks
from tests.builders.deciding import FIRST, fleet_with, idle
from tests.builders.sentences import tells

NAME = "builder-01"
CASES = [*read_blocks(Path(__file__).parent / "adoptions")]
LOCAL = {"providers": {"desk": {"kind": "local", "run": ["true"]}}}
OWN = {"machine": {"cores": 1, "memory": "1GiB"}}


def found(name: str = NAME, **said: Any) -> FoundMachine:  # noqa: ANN401 - keys of a machine
    worker = said.pop("worker", "idle")
    made: dict[str, object] = {"id": f"sim-{name}", "pool": "", "image": "trixie"}
    outer = {"architecture": "amd64", "labels": {"rack": "a"}}
    outer |= {key: said.pop(key) for key in ("architecture", "settings", "labels") if key in said}
    row = a_worker(name=name, pool=None, state=worker) if worker else None
    return FoundMachine.model_validate(
        {"machine": a_machine(name=name, **(made | said)), "worker": row, **outer}
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


def fleet_of(text: str) -> Fleet:
    """Return a fleet with these pools, or with its usual one."""
    if text == "local":
        return a_sim_fleet(**LOCAL, pools={"builders": a_pool(provider="desk", **OWN)})
    if not text:
        return fleet_with()
    pools = yaml.safe_load(text)
    made = {n: p if "static" in p else a_pool(provider="desk", **p) for n, p in pools.items()}
    return a_sim_fleet(pools=made)


def world_of(text: str) -> World:
    """Return a world in which a source says this."""
    if text == "in big":
        return a_sim_world(a_worker(name=NAME, pool="big"))
    if text == "in builders":
        return a_sim_world(*idle(FIRST))
    world, silent = a_sim_world(), Unknown(unknown="no answer")
    listing = world.providers["desk"]
    assert isinstance(listing, Listing)
    if text == "marked":
        machine = a_machine(name=NAME, id=f"sim-{NAME}", image="trixie")
        return world.altered(providers={"desk": listing.altered(machines=(machine,))})
    if text == "dark provider":
        return world.altered(providers={"desk": silent})
    if text == "dark queue":
        queue = world.queues["debian"].altered(workers=silent)
        blind = {"desk": listing.altered(workers=None)}
        return world.altered(queues={"debian": queue}, providers=blind)
    return world


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_machine_is_adopted_or_refused_as_in_its_case(case: Block) -> None:
    pools, machines, seen = case.parts
    fleet, world = fleet_of(pools), world_of(seen)
    taken = [found(**each) for each in yaml.safe_load(f"[{machines}]") or [{}]]
    for outdated in (False, True):
        try:
            adoption = judged(*taken, world=world, fleet=fleet, outdated=outdated)
        except PlanRefused as refused:
            said = str(refused).removeprefix("refused, nothing was changed: ")
            expected = case.result.removeprefix("refused ").removeprefix("outdated ")
            assert case.result.startswith("refused" if outdated else ("refused", "outdated")), said
            assert tells(said, *expected.split()), said
            assert outdated or "--outdated" in said or case.result.startswith("refused")
            continue
        names = [each.machine.name for each in adoption.machines]
        differs = [said for each in adoption.machines for said in each.differs]
        if case.result.startswith("outdated"):
            assert outdated
            assert [tells(each, *case.result.split()[1:]) for each in differs] == [True]
            continue
        assert (f"adopted {' '.join(names)}", differs) == (case.result, [])
        for _, words in case.because:
            assert tells(adoption.machines[0].next, *words.split()), adoption.machines[0].next


def test_adopted_machine_is_recorded_with_its_inputs_and_labels() -> None:
    (adopted,) = judged(found(settings={"boot": "uefi"})).machines

    inputs = adopted.inputs
    assert (inputs.name, inputs.type, inputs.image) == (NAME, "ccx33", "trixie")
    assert inputs.settings == {"boot": "uefi"}
    labels = {"rack": "a", "fleet": "debian-ci", "pool": "builders", "worker": NAME}
    assert inputs.labels == labels | {"digest": inputs.labels["digest"]}


def test_machine_in_stack_is_not_adopted_again() -> None:
    again = found(FIRST, labels={"fleet": "debian-ci", "pool": "builders"})
    adoption = judged(again, found(), world=world_of("in builders"))

    assert adoption.already == (FIRST,)
    assert [each.machine.name for each in adoption.machines] == [NAME]
