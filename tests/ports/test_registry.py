"""The contract of Registry and Enroller: a token is for one machine, and nobody loses work."""

import pytest

from fleet.errors import WorkerBusy
from tests.ports.registries import WORKER, Place, an_enrolment, place, tables
from tests.ports.stores import postgres_url

__all__ = ["place", "postgres_url", "tables"]

OTHER = "debian-builders-0002"


@pytest.fixture
def at_work(place: Place) -> Place:
    """Return a place whose worker has registered."""
    assert place.register(WORKER, place.registry.enrol(an_enrolment()))
    return place


def test_enrolled_worker_registers_with_its_token_once(place: Place) -> None:
    first, other = (place.registry.enrol(an_enrolment(name)) for name in (WORKER, OTHER))
    token = place.registry.enrol(an_enrolment())

    refused = [place.register(WORKER, each) for each in ("another", first, other)]

    assert len({first, other, token}) == 3
    assert (refused, place.may_talk(WORKER)) == ([False] * 3, False)
    assert [place.register(WORKER, token) for _ in range(2)] == [True, False]
    assert place.takes_work(WORKER)


def test_reused_name_is_not_drained(at_work: Place) -> None:
    at_work.registry.drain(WORKER)
    at_work.registry.disable(WORKER)
    assert not at_work.may_talk(WORKER)

    assert at_work.register(WORKER, at_work.registry.enrol(an_enrolment()))
    assert at_work.takes_work(WORKER)


def test_connected_worker_keeps_its_token(at_work: Place) -> None:
    with pytest.raises(WorkerBusy, match="connected"):
        at_work.registry.enrol(an_enrolment())
    with pytest.raises(WorkerBusy, match="registered"):
        at_work.registry.revoke(WORKER)

    assert at_work.may_talk(WORKER)


def test_busy_worker_is_neither_disabled_nor_enrolled_again(at_work: Place) -> None:
    at_work.assign(WORKER, 90)

    with pytest.raises(WorkerBusy, match="90"):
        at_work.registry.disable(WORKER)
    with pytest.raises(WorkerBusy):
        at_work.registry.enrol(an_enrolment())

    assert at_work.may_talk(WORKER)
    assert at_work.holder_of(90) == WORKER


def test_drained_worker_keeps_its_work_and_gets_no_other(at_work: Place) -> None:
    at_work.assign(WORKER, 90)

    at_work.registry.drain(WORKER)
    before = at_work.takes_work(WORKER)
    at_work.registry.confirm(print)

    assert (before, at_work.takes_work(WORKER), at_work.may_talk(WORKER)) == (False, False, True)
    assert at_work.holder_of(90) == WORKER


def test_drained_worker_gets_work_when_resumed(at_work: Place) -> None:
    at_work.registry.drain(WORKER)

    at_work.registry.resume(WORKER)
    at_work.registry.confirm(print)

    assert at_work.takes_work(WORKER)


def test_registration_fails_with_revoked_token(place: Place) -> None:
    place.registry.revoke(WORKER)
    token = place.registry.enrol(an_enrolment())

    place.registry.revoke(WORKER)

    assert not place.register(WORKER, token)
    assert not place.may_talk(WORKER)


def test_released_worker_returns_its_request_to_queue(at_work: Place) -> None:
    at_work.assign(WORKER, 90)
    at_work.vanish(WORKER)

    at_work.registry.release(WORKER)

    assert at_work.holder_of(90) is None
    assert not at_work.may_talk(WORKER)
