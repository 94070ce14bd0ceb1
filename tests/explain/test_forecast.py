"""When each waiting request is expected to start, in the queue's own order."""

from pathlib import Path

import pytest

from fleet.guard import guard
from fleet.model.facts import Request, World
from fleet.planner.forecast import Forecast, forecast
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago
from tests.builders.decisions import Case, read_cases, world_of
from tests.builders.sentences import tells
from tests.rigs.golden_plans import PLANS, load_fleet, load_world


def one_worker(**overrides: object) -> Fleet:
    """Return a fleet that may hold one worker, and knows that everything takes ten minutes."""
    pools = {"builders": a_pool(provider="desk", max=1)}
    return a_sim_fleet(**({"pools": pools, "durations": {"any": "10m"}} | overrides))


def expected(fleet: Fleet, world: World) -> Forecast:
    return forecast(fleet, world, guard(fleet, reconcile(fleet, world)))


def three(**overrides: object) -> tuple[Request, ...]:
    return tuple(a_request(id=str(number), **overrides) for number in (1, 2, 3))


CASES = [*read_cases(Path(__file__).parent / "forecasts")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_requests_start_as_in_their_case(case: Case) -> None:
    found = expected(case.fleet, world_of(case.world))

    starts = ", ".join(f"{key[7:]} in {after / 60:g}" for key, after in found.starts.items())
    unknown = ", ".join(key.removeprefix("debian/") for key in found.not_known)
    assert starts + (f"; unknown {unknown}" if unknown else "") == case.decisions
    for number, words in case.because:
        assert tells(found.not_known[f"debian/{number}"], *words.split())


def test_request_with_denied_stored_tag_never_starts() -> None:
    request = a_request(required=("powerful",), asked={"powerful": "user"}, requester="ada")
    world = a_sim_world(a_worker(), requests=(request,))
    reading = world.queues["debian"]
    demand = reading.demand.altered(stored=True)
    queues = {"debian": reading.altered(demand=demand)}
    fleet = one_worker(tags={"powerful": {"asked_by": ["rules"]}})

    assert expected(fleet, world.altered(queues=queues)).starts == {}


def of_powerful(fleet: Fleet, *, limits: dict[str, object]) -> Forecast:
    """Return when three builds start that ask for a tag with these limits."""
    requests = tuple(
        a_request(id=str(n), required=("powerful",), pending_since=ago(minutes=9 - n), owner=owner)
        for n, owner in ((1, "ada"), (2, "ada"), (3, "bob"))
    )
    tag = {"on_demand": True, "exclusive": True, "limits": limits}
    limited = a_sim_fleet(
        pools={"big": a_pool(provider="desk", max=3, provides=["powerful"])},
        tags={"powerful": tag},
        durations=fleet.durations and {"any": "10m"},
    )
    return expected(limited, a_sim_world(requests=requests))


def test_start_of_limited_request_is_unknown_to_the_forecast() -> None:
    found = of_powerful(one_worker(), limits={"per": {"owner": 1}, "total": 2})

    assert list(found.not_known) == ["debian/2"]
    said = found.not_known["debian/2"]
    assert tells(said, "tags.powerful.limits.total")


def test_start_is_unknown_when_a_request_is_late_by_its_own_limit() -> None:
    folder = PLANS / "a-stated-speed-and-a-build-s-own-limit-say-where-it-goes"

    found = expected(load_fleet(folder), load_world(folder))

    assert "debian/3" not in found.starts
    assert "leaves no room" not in found.not_known["debian/3"]


def test_start_is_unknown_because_of_deadline_of_queue() -> None:
    fleet = one_worker(
        durations={"any": "3h"},
        queues={"debian": {"kind": "world", "path": "world.json", "deadline": "2h"}},
    )

    found = expected(fleet, a_sim_world(requests=three()))

    assert {*found.not_known} == {"debian/1", "debian/2", "debian/3"}
    assert all("queues.debian.deadline" in because for because in found.not_known.values())
