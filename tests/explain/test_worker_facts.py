"""What is told of each worker beside what becomes of it, one sentence per test."""

from decimal import Decimal

from fleet.explain.case import Case
from fleet.explain.objects import explain_worker, facts_of_workers
from fleet.model.facts import Work, Worker, WorkerFacts, World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_fleet, a_listing, a_machine, a_pool, a_reading, a_worker, a_world, ago
from tests.builders.sentences import tells

NAME = "debian-ci-builders-0001"
WORK = Work(task="sbuild", package="chromium", requester="ann", started_at=ago(minutes=30))


def a_building_world(worker: Worker | None = None, **machine: object) -> World:
    worker = worker or a_worker(busy=True, work=WORK)
    return a_world(
        queues={"debian": a_reading(workers=(worker,))},
        providers={"hetzner": a_listing(a_machine(created_at=ago(minutes=90), **machine))},
    )


def facts(fleet: Fleet, world: World) -> WorkerFacts:
    return facts_of_workers(fleet, world)[NAME]


def test_worker_has_size_location_and_cost_so_far() -> None:
    pool = a_pool(machine={"type": "ccx33", "swap": "16GiB"})

    told = facts(a_fleet(pools={"builders": pool}), a_building_world())

    assert (told.provider, told.location) == ("hetzner", "fsn1")
    assert (told.cores, told.memory, told.disk, told.swap) == (8, 32768, 245760, 16384)
    # Two whole hours of a machine and its address have begun.
    assert told.cost_so_far == 2 * Decimal("0.2227")


def test_work_of_worker_has_package_start_and_cost_so_far() -> None:
    told = facts(a_fleet(), a_building_world())

    assert (told.task, told.package, told.work_since) == ("sbuild", "chromium", ago(minutes=30))
    # Work pays for the time that it takes, not for the hour that is begun.
    assert told.work_cost == Decimal("0.1114")


def test_unknown_facts_are_not_reported() -> None:
    world = a_building_world(a_worker(busy=True), type="ccx99")

    told = facts(a_fleet(), world)

    assert (told.cores, told.cost_so_far, told.package, told.work_cost) == (None,) * 4


def test_explanation_of_worker_has_same_facts() -> None:
    fleet, world = a_fleet(), a_building_world()

    explained = explain_worker(Case(fleet, world, reconcile(fleet, world)), NAME)

    assert explained is not None
    size, age, work = explained.facts[2:]
    assert tells(size, "8 cores", "32 GiB", "240 GiB", "amd64", "hetzner", "fsn1")
    assert tells(age, "2026-11-21 06:30 UTC", "0.4454 EUR")
    assert tells(work, "chromium", "2026-11-21 07:30 UTC", "0.1114 EUR")
