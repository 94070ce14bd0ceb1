"""Laws of the steps of a world: later plans and worlds agree with the forecast of a plan."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.explain.what_if import Run, is_served
from fleet.model.facts import Unknown, Work, Worker, WorkerState, World
from fleet.model.plan import Create
from fleet.planner.step import step
from fleet.schema.model import Fleet
from tests.builders import ago
from tests.builders.queue_worlds import QUEUE
from tests.laws.test_forecast_laws import limited_fleets
from tests.laws.test_unblock_laws import EXAMPLES, asking_worlds, planned


@st.composite
def working_worlds(draw: st.DrawFn) -> World:
    """Return a readable world whose workers are at work of mostly known duration."""
    world = draw(asking_worlds())
    desk, reading = world.providers["desk"], world.queues["debian"]
    assume(not isinstance(desk, Unknown) and not isinstance(reading.demand, Unknown))
    assume(world.known_stacks == world.stacks)
    assert not isinstance(desk, Unknown)
    workers = tuple(draw(at_work(worker)) for worker in desk.workers or ())
    if draw(st.booleans()):
        return world.altered(providers={"desk": desk.altered(workers=workers)})
    # They register at the queue.
    return world.altered(
        providers={"desk": desk.altered(workers=None)},
        queues={"debian": reading.altered(workers=workers)},
    )


@st.composite
def at_work(draw: st.DrawFn, worker: Worker) -> Worker:
    """Return a worker, with its work if it is busy."""
    if worker.state is not WorkerState.BUSY:
        return worker
    work = Work(
        task="sbuild",
        required=draw(st.sampled_from([(), ("amd64",), ("powerful",)])),
        requester=draw(st.sampled_from([None, "ada"])),
        started_at=ago(seconds=draw(st.integers(0, 3600))),
        expected_seconds=draw(st.sampled_from([None, 600, 3600, 7200])),
    )
    return worker.altered(work=work, uses=draw(st.integers(0, 3)))


@st.composite
def applied_fleets(draw: st.DrawFn) -> Fleet:
    """Return a fleet with a queue that gives tokens, and without a pool that drains."""
    fleet = draw(limited_fleets())
    queue = Fleet.model_validate({"fleet": "f", "queues": {"debian": QUEUE}}).queues["debian"]
    assume(all(getattr(pool, "mode", "") != "drain" for pool in fleet.pools.values()))
    return fleet.model_copy(update={"queues": {"debian": queue}})


@settings(max_examples=EXAMPLES)
@given(applied_fleets(), working_worlds())
def test_a_request_gets_a_worker_in_the_plan_of_its_expected_start(
    fleet: Fleet, world: World
) -> None:
    run = Run(fleet, world, planned(fleet, world))
    # A guard keeps them for now: a queue still gives them work, a plan does not.
    leaving = {each.worker for each in run.plan.withheld if each.action == "drain"}

    for key in run.unserved:
        start = run.forecast.start_of(key)
        if start is not None and run.forecast.workers[key] not in leaving:
            after = step(fleet, world, run.plan, start, run.forecast)
            then = planned(fleet, after)
            shown = [each for each in then.withheld if isinstance(each, Create)]
            is_planned = is_served(then, key) or any(key in each.serves for each in shown)
            assert is_planned, (key, start)
