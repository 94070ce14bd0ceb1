"""Laws of explain: what it suggests for a waiting request does get that request served."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.explain.case import Case
from fleet.explain.edits import Edit, lower_figure
from fleet.explain.search import Remedy, Replans, edited, find_remedies
from fleet.model.facts import Demand, Unknown, Work, Worker, WorkerState, World
from fleet.planner.forecast import forecast
from fleet.schema.model import Fleet, Guards, PowerfulRule
from tests.builders import NOW, ago
from tests.builders.explaining import awaited, is_served
from tests.builders.queue_worlds import planned
from tests.laws.strategies import fleets, worlds
from tests.rigs.pasted import paste

EXAMPLES = max(min(20, settings().max_examples), settings().max_examples // 2)
"""Worlds per law: 5 every day, 20 in `nox -s slow-laws`, 1,000 in `nox -s laws`.

One waiting request of each world is explained, which takes up to ten plans.
"""


@st.composite
def tight_fleets(draw: st.DrawFn) -> Fleet:
    """Return a fleet that throttles, forbids and has rules that expired."""
    fleet = draw(fleets())
    create = {"count": draw(st.integers(0, 3)), "free_below": draw(st.integers(0, 3))}
    guards = {"throttle": {"create": create}} if draw(st.booleans()) else {}
    asked_by = draw(st.none() | st.sampled_from([["rules"], ["user"], []]))
    tag = fleet.tags["powerful"].model_copy(update={"asked_by": asked_by})
    if asked_by is None:
        tag = fleet.tags["powerful"]
    expires = NOW.date() + timedelta(days=draw(st.integers(-30, 30)))
    rule = PowerfulRule(match="debian/.*/.*/chromium", ask=["powerful"], expires=expires)
    return fleet.model_copy(
        update={
            "guards": Guards.model_validate(guards),
            "tags": {"powerful": tag},
            "powerful": [rule] if draw(st.booleans()) else [],
        }
    )


@st.composite
def asking_worlds(draw: st.DrawFn) -> World:
    """Return a world whose requests have names, askers and expected durations."""
    world = draw(worlds())
    reading = world.queues["debian"]
    if not isinstance(reading.demand, Demand):
        return world
    requests = tuple(
        request.altered(
            expected_seconds=draw(st.none() | st.integers(1, 7200)),
            requester=draw(st.sampled_from([None, "ada"])),
            asked=dict.fromkeys(request.required, "user") if draw(st.booleans()) else {},
            workspace="System",
            package=draw(st.sampled_from(["chromium", "hello"])),
            task_data={"host_architecture": "amd64"},
        )
        for request in reading.demand.requests
    )
    demand = reading.demand.altered(requests=requests, stored=draw(st.booleans()))
    queue = reading.altered(demand=demand)
    return world.altered(queues={"debian": queue})


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


def works(fleet: Fleet, world: World, key: str, remedy: Remedy) -> bool:
    """Return whether a request is served when a user does what a remedy says."""
    wait = remedy.suggestion.wait
    _, after = edited(fleet, world, key, remedy.edits)
    document = fleet.model_dump(mode="json", exclude_unset=True)
    for change in remedy.suggestion.changes:
        paste(document, change)
    then = Fleet.model_validate(document)
    if wait is not None:
        seen = awaited(Case(then, after, planned(then, after)), wait, Replans())
        return seen is not None and is_served(planned(then, seen), key)
    return is_served(planned(then, after), key)


def one_step_less(fleet: Fleet, edits: Sequence[Edit]) -> Iterator[tuple[Edit, ...]]:
    """Yield the same edits with one of their figures a step lower."""
    for number, edit in enumerate(edits):
        if less := lower_figure(fleet, edit):
            yield (*edits[:number], less, *edits[number + 1 :])


def without_one(edits: Sequence[Edit]) -> Iterator[tuple[Edit, ...]]:
    """Yield the same edits without one of them."""
    for number in range(len(edits) if edits[1:] else 0):
        yield (*edits[:number], *edits[number + 1 :])


@settings(max_examples=EXAMPLES)
@given(tight_fleets(), asking_worlds(), st.data())
def test_suggestion_serves_its_request_and_is_minimal(
    fleet: Fleet, world: World, data: st.DataObject
) -> None:
    plan = planned(fleet, world)
    waiting = [key for unserved in plan.unserved for key in unserved.requests]
    assume(waiting)
    key = data.draw(st.sampled_from(waiting))

    replans = Replans()
    remedies = find_remedies(Case(fleet, world, plan), key, replans)
    # At its limit of plans, a search returns what works although less may do.
    is_least = bool(replans.left)
    for remedy in remedies:
        assert works(fleet, world, key, remedy), remedy.suggestion.sentence
        for less in (
            (*one_step_less(fleet, remedy.edits), *without_one(remedy.edits)) if is_least else ()
        ):
            assert not is_served(planned(*edited(fleet, world, key, less)), key)


@given(tight_fleets(), asking_worlds())
def test_waiting_request_has_start_or_reason_for_none(fleet: Fleet, world: World) -> None:
    plan = planned(fleet, world)
    expected = forecast(fleet, world, plan)

    for key in (key for signature in plan.signatures for key in signature.requests):
        start = expected.start_of(key)
        assert bool(expected.not_known.get(key)) == (start is None)
        assert start is None or start >= world.time
