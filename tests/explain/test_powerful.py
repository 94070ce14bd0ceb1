"""What a build on a powerful machine costs, and what it would without the allow-list."""

from datetime import timedelta
from decimal import Decimal

from fleet.explain.costs import PowerfulBuild, powerful_builds
from fleet.explain.objects import facts_of_workers
from fleet.model.facts import Work, World
from fleet.model.prices import Tariff, bill
from fleet.reconcile import reconcile
from tests.builders import (
    NOW,
    a_fleet,
    a_listing,
    a_machine,
    a_pool,
    a_reading,
    a_worker,
    a_world,
    ago,
)

NAME = "debian-ci-powerful-0001"
POOLS: dict[str, object] = {
    "builders": a_pool(),
    "powerful": a_pool(machine="ccx63", provides=["extra_powerful"]),
}
DAY = [{"match": "chromium", "takes": "24h", "machine": "ccx63", "cores": 48}]


def builds(required: str = "extra_powerful", **more: object) -> tuple[PowerfulBuild, ...]:
    """Return the builds of a fleet where Chromium runs for some hours already."""
    rule = {"match": "debian/.*/chromium", "ask": ["extra_powerful"]}
    settings: dict[str, object] = {
        "pools": POOLS,
        "powerful": [rule],
        "tags": {"extra_powerful": {}},
    }
    fleet = a_fleet(**settings | more)
    world = a_powerful_world(required)
    plan = reconcile(fleet, world)
    return powerful_builds(fleet, world, plan, facts_of_workers(fleet, world))


def a_powerful_world(required: str) -> World:
    work = Work(
        task="sbuild",
        package="chromium",
        started_at=ago(hours=6),
        required=("worker:build-arch:amd64", required),
    )
    worker = a_worker(name=NAME, machine=NAME, pool="powerful", busy=True, work=work)
    machine = a_machine(name=NAME, pool="powerful", type="ccx63", created_at=ago(hours=6))
    return a_world(
        queues={"debian": a_reading(workers=(worker,))}, providers={"hetzner": a_listing(machine)}
    )


def test_powerful_build_has_current_and_expected_cost() -> None:
    (build,) = builds(durations={"sbuild": DAY})

    assert (build.worker.worker, build.package, build.worker.type) == (NAME, "chromium", "ccx63")
    assert (build.since, build.ends) == (ago(hours=6), NOW + timedelta(hours=18))
    assert build.cost is not None
    assert build.expected == 4 * build.cost > 0


def test_build_elsewhere_has_duration_and_cost_of_that_pool() -> None:
    (build,) = builds(durations={"sbuild": DAY})

    place = build.elsewhere
    assert place is not None
    assert (place.pool, place.type) == ("builders", "ccx33")
    # Amdahl's law: a tenth of the work is serial; 8 cores instead of 48.
    assert place.seconds == -(-86400 * 48 * (10 * 8 + 90) // (8 * (10 * 48 + 90)))
    tail = 90 + 15 * 60 + 2 * 600
    assert place.cost == bill(Tariff(Decimal("0.2227"), 3600), place.seconds + tail)


def test_build_without_duration_has_unknown_end() -> None:
    (build,) = builds()

    assert build.cost
    assert (build.ends, build.expected, build.elsewhere) == (None, None, None)


def test_build_without_the_tag_is_not_powerful() -> None:
    assert builds("worker:type:external") == ()


def test_powerful_build_is_not_compared_with_pool_of_other_queue() -> None:
    pools = POOLS | {"builders": a_pool(serves=["other"])}
    other = {"kind": "world", "path": "world.json"}
    queues = a_fleet().queues | {"other": other}

    (build,) = builds(durations={"sbuild": DAY}, pools=pools, queues=queues)

    assert build.elsewhere is None
