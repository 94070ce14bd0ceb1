"""The builds of recorded observations: each counts once, with its latest request."""

from datetime import timedelta

import pytest

from fleet.explain.builds import RecordedBuild, Recording, read_builds
from fleet.model.facts import Request, Unknown, Work, Worker, World
from tests.builders import NOW, a_listing, a_reading, a_request, a_sim_world, a_worker

NAME = "a/b/c/chromium"
NAMED = {"owner": "a", "project": "b", "chroot": "c", "package": "chromium"}
UNREAD = {"queues": {"debian": a_reading(demand=Unknown(unknown="down"))}}


def a_build(**more: object) -> Request:
    return a_request(**{"id": "1", "expected_seconds": 3600} | NAMED | more)


def a_busy_worker() -> Worker:
    work = Work(task="sbuild", names=(NAME,), started_at=NOW - timedelta(minutes=5))
    return a_worker(busy=True, running="1", work=work)


def moment(hours_ago: float, world: World) -> World:
    return world.altered(time=NOW - timedelta(hours=hours_ago))


def read(*worlds: World) -> Recording:
    recording = read_builds(worlds)
    assert recording is not None
    return recording


def the_build(*worlds: World) -> RecordedBuild:
    (build,) = read(*worlds).builds.values()
    return build


@pytest.mark.parametrize(("expected", "withdrawn"), [(60, False), (7200, True), (None, True)])
def test_build_is_withdrawn_when_too_long_to_run_unseen(
    expected: int | None, *, withdrawn: bool
) -> None:
    waits = a_sim_world(requests=(a_build(expected_seconds=expected),))

    assert the_build(moment(1, waits), a_sim_world()).is_withdrawn is withdrawn


def test_build_of_unread_queue_is_not_withdrawn() -> None:
    waits = a_sim_world(requests=(a_build(expected_seconds=None),))
    unread = a_sim_world().altered(**UNREAD)

    assert not the_build(moment(1, waits), unread).is_withdrawn
    assert read(moment(1, waits), unread).unread == 1


def test_build_that_ran_has_the_duration_until_it_disappeared() -> None:
    build = the_build(moment(0.05, a_sim_world(a_busy_worker())), a_sim_world())

    assert (build.seconds, build.is_withdrawn) == (300, False)


def test_build_is_not_withdrawn_when_it_runs_after_a_gap() -> None:
    waits, runs = a_sim_world(requests=(a_build(),)), a_sim_world(a_busy_worker())

    build = the_build(moment(0.5, waits), moment(0.25, a_sim_world()), moment(0, runs))

    assert (build.seconds, build.is_withdrawn) == (None, False)
    assert build.started is not None


def test_build_that_runs_after_a_gap_has_the_duration_until_its_end() -> None:
    runs = a_sim_world(a_busy_worker())

    seen = [moment(0.05, runs), moment(0.04, a_sim_world()), moment(0.03, runs)]

    assert the_build(*seen).seconds is None
    assert the_build(*seen, a_sim_world()).seconds == 300


def test_nameless_build_gets_the_name_of_its_work() -> None:
    nameless = a_build(package=None)
    waits, runs = a_sim_world(requests=(nameless,)), a_sim_world(a_busy_worker())

    assert the_build(moment(1, waits)).names == ()
    assert the_build(moment(1, waits), runs).names == (NAME,)


def test_build_that_only_a_provider_lists_is_the_one_that_waited() -> None:
    waits = a_sim_world(requests=(a_build(),))
    listed = a_sim_world(providers={"desk": a_listing(workers=(a_busy_worker(),))})

    build = the_build(moment(1, waits), listed)

    assert (build.queue, build.request.package) == ("debian", "chromium")
    assert build.started is not None


def test_build_has_no_queue_when_only_a_provider_was_read() -> None:
    listed = a_sim_world(providers={"desk": a_listing(workers=(a_busy_worker(),))})

    build = the_build(listed.altered(queues={}))

    assert (build.queue, build.names) == ("", (NAME,))
