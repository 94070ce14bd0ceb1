"""What a pool's next machine boots: the pinned version, else the current one, and a candidate."""

from pathlib import Path

import pytest
import yaml

from fleet.model.facts import Unknown, World
from fleet.model.images import ImageVersion
from fleet.model.plan import Create, Reason
from fleet.planner.failures import recall
from fleet.planner.images import ImageChoice, choose_image
from fleet.planner.inventory import take_inventory
from fleet.planner.machine_inputs import Option, new_inputs
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    a_fleet,
    a_listing,
    a_machine,
    a_pool,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    a_world,
    ago,
    an_attempt,
)
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells

WORKERS = tuple(f"debian-ci-builders-{number:04}" for number in range(1, 10))
VERSIONS = OLD, NEW, NEWEST = "20261107T060000Z", "20261114T060000Z", "20261121T060000Z"


def version(name: str, state: str, **overrides: object) -> ImageVersion:
    values = {"image": "trixie", "version": name, "state": state, "ids": {"desk": f"id-{name}"}}
    return ImageVersion.model_validate(values | overrides)


def choice(fleet: Fleet, world: World) -> ImageChoice:
    return choose_image(
        fleet, world, recall(fleet, world, take_inventory(fleet, world)), "builders"
    )


def a_fleet_with(**image: object) -> Fleet:
    declared = {"architecture": "amd64"} | image
    if "existing" not in image:
        declared["suite"] = "trixie"
    pools = {"builders": a_pool(provider="desk", max=9, min=0)}
    guards = {"boot_failures": {"stop_after": 2, "of_last": 3, "fall_back": "previous-image"}}
    return a_sim_fleet(images={"trixie": declared}, pools=pools, guards=guards)


def failed(name: str) -> tuple[object, ...]:
    """Return tries that say of a version that it does not come up."""
    return tuple(
        an_attempt(result="failed", at=ago(minutes=m), image=f"id-{name}") for m in (40, 20)
    )


CASES = [*read_blocks(Path(__file__).parent / "images")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_new_machine_boots_the_image_of_its_case(case: Block) -> None:
    chosen = choice_of(*case.parts)

    assert describe(chosen) == case.result
    for about, words in case.because:
        assert tells(chosen.closed if about == "closed" else chosen.problem, *words.split())


def choice_of(versions: str, options: str) -> ImageChoice:
    said = yaml.safe_load(f"{{{options}}}")
    attempts = failed(str(said.pop("fails"))) if "fails" in said else ()
    if "version" in said:
        said["version"] = VERSIONS[said["version"] - 1]
    images = []
    for number, *words in (each.split() for each in versions.split(";") if each):
        state = {"state": words[0]} if words else {}
        pairs = (word.partition("=")[::2] for word in words[1:])
        given = {"ids": {"desk": f"id-{number}"}} | {k: yaml.safe_load(v) for k, v in pairs}
        values = {"image": "trixie", "version": VERSIONS[int(number) - 1]} | state | given
        images.append(ImageVersion.model_validate(values))
    return choice(a_fleet_with(**said), a_sim_world(images=tuple(images), attempts=attempts))


def describe(chosen: ImageChoice) -> str:
    parts = [chosen.id or "none"]
    parts += [f"candidate {chosen.candidate}"] if chosen.candidate else []
    parts += [f"stopped {' '.join(chosen.stopped)}"] if chosen.stopped else []
    parts += ["closed"] if chosen.closed else []
    parts += ["problem"] if chosen.problem else []
    return ", ".join((*parts, *(["until"] if chosen.until else [])))


def test_pool_is_closed_with_reason_without_promoted_version() -> None:
    tested = version(NEW, "tested", ids={"hetzner": "4711"})

    assert tells(
        choice(a_fleet(), a_world(images=(tested,))).closed, "image trixie", "promoted", "trixie"
    )


# not known


def test_unknown_versions_cause_no_creation_and_no_outdated_worker() -> None:
    world = a_sim_world(a_worker(), requests=(a_request(), a_request(id="102")))
    machine = a_machine(id="sim-debian-ci-builders-1", digest="of the current version")
    listing = a_listing(machine, workers=(a_worker(),))
    unknown = {"images": Unknown(unknown="it does not answer"), "providers": {"desk": listing}}

    plan = reconcile(a_sim_fleet(), world.altered(**unknown))

    assert plan.actions == ()
    (verdict,) = plan.workers
    assert not verdict.outdated
    (said,) = plan.unknown
    assert tells(said, "images", "unknown", "it does not answer")


# candidates


def a_pool_with(candidates: int, others: int, *, share: int, requests: int = 0) -> World:
    """Return a world in which so many idle workers boot the candidate, and so many the current."""
    fleet = a_fleet_with()
    booted = [f"id-{NEW}"] * candidates + [f"id-{OLD}"] * others
    names = WORKERS[: len(booted)]
    ways = [Option("builders", "ccx33", "on-demand", image, None) for image in booted]
    inputs = tuple(map(new_inputs, [fleet] * len(ways), ways, names))
    machines = [
        a_machine(name=each.name, image=each.image, digest=each.labels["digest"])
        for each in inputs
    ]
    workers = tuple(a_worker(name=name) for name in names)
    ids = dict.fromkeys(names, "hcloud-1")
    return a_sim_world(
        requests=tuple(a_request(id=str(number)) for number in range(101, 101 + requests)),
        providers={"desk": a_listing(*machines, workers=workers)},
        stacks={"builders": a_stack(provider="desk", workers=inputs, ids=ids)},
        images=(version(OLD, "current"), version(NEW, "candidate", share=share)),
    )


def made(world: World) -> list[str]:
    """Return what each machine boots that a plan makes."""
    actions = reconcile(a_fleet_with(), world).actions
    return [action.inputs.image[3:] for action in actions if isinstance(action, Create)]


def giving_way(world: World) -> list[str]:
    """Return the workers that are due to be replaced."""
    return [each.worker[-1] for each in reconcile(a_fleet_with(), world).workers if each.outdated]


def test_candidate_share_rounds_up_to_one_worker() -> None:
    assert made(a_pool_with(0, 0, share=10, requests=3)) == [NEW, OLD, OLD]
    assert made(a_pool_with(0, 0, share=40, requests=5)) == [NEW, OLD, OLD, OLD, NEW]
    assert made(a_pool_with(0, 0, share=100, requests=3)) == [NEW, NEW, NEW]


def test_existing_candidates_count_to_share() -> None:
    assert made(a_pool_with(1, 1, share=34, requests=4)) == [OLD, OLD]


def test_workers_are_outdated_until_candidate_has_its_share() -> None:
    assert giving_way(a_pool_with(1, 5, share=50)) == ["2", "3"]


def test_no_worker_is_outdated_when_candidate_cannot_be_created() -> None:
    fleet = a_fleet_with()
    paused = fleet.pools["builders"].model_copy(update={"mode": "pause"})

    plan = reconcile(
        fleet.model_copy(update={"pools": {"builders": paused}}), a_pool_with(1, 5, share=50)
    )

    assert not any(each.outdated for each in plan.workers)


def test_candidates_are_kept_when_pool_shrinks() -> None:
    assert giving_way(a_pool_with(3, 1, share=25)) == []


def test_worker_replaced_by_candidate_is_outdated() -> None:
    plan = reconcile(a_fleet_with(), a_pool_with(0, 2, share=50))

    assert [(each.worker[-1], each.reason) for each in plan.workers if each.outdated] == [
        ("1", Reason.OUTDATED)
    ]
