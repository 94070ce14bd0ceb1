"""That a list too long to read in time is sampled, and says of what."""

from collections.abc import Callable, Iterable
from itertools import chain, count, repeat

from fleet.model.facts import Demand, QueueReading, QueueSample
from fleet.queues.debusine.rest import OLDEST, DebusineRest
from fleet.schema.model import DebusineQueue
from tests.rigs.debusine import LIST, METRICS, NO_ROWS, NOW, one_page, row, serving
from tests.rigs.loopback import Answer, Received
from tests.rigs.replay import TOKEN

TIMELY = 10
"""With `max_age` of 100, a clock that ticks so many seconds at each look shows some pages."""


FIRST, LAST = 1, 9_999


def endless(received: Received) -> Answer:
    """Return one row a page, and always another page: the newest is LAST, the oldest FIRST."""
    return listing(received, LAST)


def listing(received: Received, last: int) -> Answer:
    """Return one row a page of a list that goes from `last` down; back from its end are -1, -2."""
    cursor = received.query.get("cursor", str(last))
    place = -FIRST if cursor == OLDEST else int(cursor)
    return one_page(
        row(id=abs(place), scope=received.headers["x-debusine-scope"]),
        next_page=f"/?cursor={place - 1}",
        previous_page=f"/?cursor={place - 1}",
    )


def read(url: str, *scopes: str, seconds: Iterable[float]) -> Demand:
    clock: Callable[[], float] = iter(seconds).__next__
    queue = DebusineQueue(kind="debusine", url=url, scopes=list(scopes))
    reading = DebusineRest(queue, TOKEN, max_age=100, clock=clock).read(NOW)
    assert isinstance(reading, QueueReading)
    assert isinstance(reading.demand, Demand), reading.demand
    return reading.demand


def test_too_long_list_is_sampled_from_both_ends_as_estimate() -> None:
    with serving(endless, debian=50_000) as server:
        demand = read(server.url, "debian", seconds=count(step=TIMELY / 4))

    known = sorted(int(request.id) for request in demand.requests)
    assert demand.estimate
    assert demand.sample == QueueSample(
        listed=len(known), unlisted={"debian": 50_000 - len(known)}, longest=len(known)
    )
    old = [number for number in known if number < FIRST + 100]
    new = [number for number in known if number > LAST - 100]
    assert old == list(range(FIRST, FIRST + len(old)))
    assert new == list(range(LAST - len(new) + 1, LAST + 1))
    assert min(len(old), len(new)) > 1
    assert len(old) + len(new) == len(known) < 40


def test_list_read_from_both_ends_is_complete_when_they_meet() -> None:
    with serving(lambda received: listing(received, 9), debian=9) as server:
        late = (31 if len(server.received) > 4 else 0 for _ in count())
        demand = read(server.url, "debian", seconds=late)

    assert sorted(int(request.id) for request in demand.requests) == list(range(1, 10))
    assert demand.sample is None
    assert sum(each.path == LIST for each in server.received) == 10  # one was listed twice


def test_each_long_list_is_read_as_far_as_the_others() -> None:
    with serving(endless, debian=500, kali=700) as server:
        demand = read(server.url, "debian", "kali", seconds=count(step=TIMELY / 4))

    scopes = [request.scope for request in demand.requests]
    assert abs(scopes.count("debian") - scopes.count("kali")) <= 1
    assert demand.sample is not None
    assert demand.sample.unlisted == {
        "debian": 500 - scopes.count("debian"),
        "kali": 700 - scopes.count("kali"),
    }


def test_short_list_is_checked_next_to_a_sampled_one() -> None:
    def answer(received: Received) -> Answer:
        is_long = received.headers["x-debusine-scope"] == "debian"
        return endless(received) if is_long else Answer(200, NO_ROWS)

    with serving(answer, debian=500, kali=0) as server:
        demand = read(server.url, "debian", "kali", seconds=count(step=TIMELY / 4))

    assert demand.sample is not None
    assert list(demand.sample.unlisted) == ["debian"]


def test_endless_list_has_at_least_one_more_request() -> None:
    with serving(endless, debian=4) as server:
        demand = read(server.url, "debian", seconds=count(step=TIMELY / 4))

    assert demand.sample is not None
    assert demand.sample.unlisted == {"debian": 1}


def test_unfinished_second_read_leaves_an_estimate() -> None:
    def answer(received: Received) -> Answer:
        counted = any(each.path == METRICS for each in server.received)
        return endless(received) if counted else one_page(row(id=1))

    with serving(answer, debian=40) as server:
        seconds = chain(repeat(0, 6), count(start=0, step=TIMELY / 4))
        demand = read(server.url, "debian", seconds=seconds)

    assert demand.estimate
    assert demand.sample is not None
    assert demand.sample.unlisted == {"debian": 40 - demand.sample.listed}
