"""What reconcile makes of machines with several registrations, and of names that mislead."""

import pytest

from fleet.model.facts import Departure, Unknown, Worker, WorkerState, World
from fleet.model.plan import Reason
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import (
    a_fleet,
    a_listing,
    a_machine,
    a_pool,
    a_reading,
    a_request,
    a_stack,
    a_worker,
    ago,
    some_inputs,
)

FIRST = "debian-ci-builders-0001"
IDS = {FIRST: "hcloud-1"}


def two_queues(**pools: object) -> Fleet:
    """Return a fleet whose pool `builders` serves two queues that know their own workers."""
    queues = {name: {"kind": "world", "path": f"{name}.json"} for name in ("debian", "ubuntu")}
    given = {"builders": a_pool()} | pools
    return a_fleet(queues=queues, pools={name: pool for name, pool in given.items() if pool})


def registered(debian: tuple[Worker, ...], ubuntu: tuple[Worker, ...] = ()) -> World:
    """Return a world with one machine, and what each queue says of its workers."""
    return World.model_validate(
        {
            "fleet": "debian-ci",
            "time": ago(),
            "queues": {"debian": a_reading(workers=debian), "ubuntu": a_reading(workers=ubuntu)},
            "providers": {"hetzner": a_listing(a_machine())},
            "stacks": {"builders": a_stack(workers=(some_inputs(),), ids=IDS)},
        }
    )


def actions_of(fleet: Fleet, world: World) -> list[tuple[str, str, str | None]]:
    plan = reconcile(fleet, world)
    return [(a.action, a.worker, getattr(a, "registry", None)) for a in plan.actions]


def test_worker_idle_at_one_queue_and_busy_at_another_is_busy() -> None:
    idle = a_worker(since=ago(days=1), draining=True)
    world = registered((idle,), (a_worker(busy=True),))

    plan = reconcile(two_queues(), world)

    assert plan.is_quiet
    assert [verdict.reason for verdict in plan.workers] == [Reason.BUSY]


def test_worker_is_drained_at_every_queue_before_deletion() -> None:
    drained = a_worker(since=ago(days=1), draining=True)
    idle = a_worker(since=ago(days=1))

    assert actions_of(two_queues(), registered((drained,), (idle,))) == [
        ("drain", FIRST, "ubuntu")
    ]
    assert actions_of(two_queues(), registered((drained,), (drained,))) == [
        ("delete", FIRST, "debian")
    ]


def test_worker_is_busy_when_its_pool_no_longer_serves_its_queue() -> None:
    fleet = two_queues(builders=a_pool(serves=["ubuntu"]))

    plan = reconcile(fleet, registered((a_worker(busy=True),)))

    assert [verdict.reason for verdict in plan.workers] == [Reason.BUSY]


@pytest.mark.parametrize("backwards", [False, True])
def test_old_registration_does_not_hide_current_one(*, backwards: bool) -> None:
    rows = (
        a_worker(name="new", machine=FIRST, busy=True),
        a_worker(name="old", machine=FIRST, state=WorkerState.IDLE, draining=True),
    )

    plan = reconcile(two_queues(), registered(rows[::-1] if backwards else rows))

    assert plan.is_quiet
    assert plan.workers[0].reason is Reason.BUSY


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("pools", [{}, {"builders": a_pool(mode="drain")}, {"builders": None}])
@pytest.mark.parametrize("owner", ["fleet.yaml", "queue"])
def test_static_worker_with_name_of_machine_is_never_changed(
    owner: str, pools: dict[str, dict[str, object] | None], *, busy: bool
) -> None:
    """A machine whose worker is static is kept, also after its boot deadline."""
    worker = a_worker(since=ago(days=1), busy=busy, static=owner == "queue")
    legacy = {"static": [FIRST if owner == "fleet.yaml" else "another"]}
    given = {"builders": a_pool()} | pools | {"legacy": legacy}
    fleet = two_queues(**given)

    plan = reconcile(fleet, registered((worker,)))

    assert plan.is_quiet
    assert {verdict.reason for verdict in plan.workers} == {Reason.STATIC}


@pytest.mark.parametrize("owner", ["fleet.yaml", "queue"])
def test_interrupted_deletion_stops_when_the_worker_is_static(owner: str) -> None:
    worker = a_worker(since=ago(days=1), busy=True, static=owner == "queue")
    world = registered((worker,)).altered(stacks={"builders": a_stack(workers=(), ids=IDS)})
    fleet = two_queues(legacy={"static": [FIRST if owner == "fleet.yaml" else "another"]})

    plan = reconcile(fleet, world)

    assert plan.is_quiet
    assert {verdict.reason for verdict in plan.workers} == {Reason.STATIC}


@pytest.mark.parametrize("pools", [{}, {"builders": None}])
def test_interrupted_creation_stops_when_the_worker_is_static(pools: dict[str, None]) -> None:
    worker = a_worker(since=ago(days=1), busy=True, static=True)
    unfinished = a_stack(workers=(some_inputs(),), ids={})
    world = registered((worker,)).altered(stacks={"builders": unfinished})

    plan = reconcile(two_queues(**pools, legacy={"static": ["another"]}), world)

    assert plan.is_quiet
    assert {verdict.reason for verdict in plan.workers} == {Reason.STATIC}


def test_name_in_static_pool_is_never_used_for_a_machine() -> None:
    fleet = a_fleet(
        images={"trixie": {"existing": {"hetzner": "42"}}},
        pools={"builders": a_pool(), "legacy": {"static": [FIRST], "serves": []}},
    )
    world = World.model_validate(
        {
            "fleet": "debian-ci",
            "time": ago(),
            "queues": {"debian": a_reading(a_request(), workers=None)},
            "providers": {"hetzner": a_listing()},
        }
    )

    assert [worker for _, worker, _ in actions_of(fleet, world)] == ["debian-ci-builders-0002"]


def test_static_worker_at_two_queues_serves_one_request() -> None:
    builder = a_worker(name="builder-01", machine=None, pool=None, static=True)
    fleet = two_queues(legacy={"static": ["builder-01"]}, builders=a_pool(max=0))
    world = registered((builder,), (builder,))
    waiting = a_reading(a_request(id="1"), a_request(id="2"), workers=(builder,))
    world = world.altered(queues=world.queues | {"debian": waiting})

    (signature,) = reconcile(fleet, world).signatures

    assert list(signature.by_worker) == ["debian/1"]


def test_unknown_workers_of_one_queue_keep_idle_worker_of_another() -> None:
    world = registered((a_worker(since=ago(days=1)),))
    silent = a_reading(workers=Unknown(unknown="no answer"))
    world = world.altered(queues=world.queues | {"ubuntu": silent})

    assert actions_of(two_queues(), world) == []


def held(*registries: str, over: tuple[str, ...] = ()) -> tuple[Departure, ...]:
    """Return the records of drains for a hold at these queues; at those of `over` it is over."""
    return tuple(
        Departure(
            worker=FIRST,
            registry=name,
            reason="held",
            at=ago(minutes=10),
            over=ago(minutes=1) if name in over else None,
        )
        for name in (*registries, *over)
    )


@pytest.mark.parametrize(
    ("drained_at", "departures"),
    [
        (("debian",), held("debian")),
        (("ubuntu",), held("ubuntu")),
        (("debian", "ubuntu"), held("debian", "ubuntu")),
        (("ubuntu",), held("ubuntu", over=("debian",))),
        (("ubuntu",), held("ubuntu", "debian")),
    ],
    ids=["first", "second", "both", "rest", "undrained"],
)
@pytest.mark.parametrize("busy", [False, True])
def test_released_worker_is_released_at_each_queue(
    drained_at: tuple[str, ...], departures: tuple[Departure, ...], *, busy: bool
) -> None:
    def at(queue: str) -> tuple[Worker, ...]:
        return (a_worker(draining=queue in drained_at, busy=busy and queue == "debian"),)

    world = registered(at("debian"), at("ubuntu")).altered(departures=departures)

    plan = reconcile(two_queues(), world)

    assert plan.actions == ()
    assert {each.registry for each in plan.resumes} >= {*drained_at}


@pytest.mark.parametrize(
    ("minutes", "goes"), [(28, False), (29, True), (38, True), (39, False), (59, False)]
)
def test_worker_of_two_queues_is_deleted_before_end_of_paid_hour(
    minutes: int, *, goes: bool
) -> None:
    # With a run every 10 minutes two drain it, and a third one deletes it within 2 minutes.
    idle = a_worker(since=ago(days=1))
    world = registered((idle,), (idle,))
    listing = a_listing(a_machine(created_at=ago(minutes=minutes)))
    world = world.altered(providers={"hetzner": listing})

    assert bool(actions_of(two_queues(), world)) is goes
