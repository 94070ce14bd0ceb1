"""Every registry keeps one contract: who is told to go loses no work."""

import pytest

from fleet.errors import WorkerBusy
from tests.ports.registries import WORKER, Place, an_enrolment, place, tables
from tests.ports.stores import postgres_url

__all__ = ["place", "postgres_url", "tables"]


def test_drained_worker_keeps_its_work_and_gets_no_other(place: Place) -> None:
    place.register(WORKER, place.registry.enrol(an_enrolment()))
    place.assign(WORKER, 90)

    place.registry.drain(WORKER)

    assert not place.takes_work(WORKER)
    assert place.may_talk(WORKER)
    assert place.holder_of(90) == WORKER


def test_drained_worker_gets_work_when_resumed(place: Place) -> None:
    place.register(WORKER, place.registry.enrol(an_enrolment()))
    place.registry.drain(WORKER)

    place.registry.resume(WORKER)
    place.registry.confirm(print)

    assert place.takes_work(WORKER)


def test_busy_worker_is_not_disabled(place: Place) -> None:
    place.register(WORKER, place.registry.enrol(an_enrolment()))
    place.assign(WORKER, 90)

    with pytest.raises(WorkerBusy, match="90"):
        place.registry.disable(WORKER)

    assert place.may_talk(WORKER)
    assert place.holder_of(90) == WORKER


def test_disabled_worker_cannot_connect(place: Place) -> None:
    place.register(WORKER, place.registry.enrol(an_enrolment()))

    place.registry.disable(WORKER)

    assert not place.may_talk(WORKER)


def test_registration_fails_with_revoked_token(place: Place) -> None:
    token = place.registry.enrol(an_enrolment())

    place.registry.revoke(WORKER)

    assert not place.register(WORKER, token)


def test_token_of_registered_worker_is_not_revoked(place: Place) -> None:
    place.register(WORKER, place.registry.enrol(an_enrolment()))

    with pytest.raises(WorkerBusy, match="registered"):
        place.registry.revoke(WORKER)

    assert place.may_talk(WORKER)


def test_unenrolled_worker_can_be_revoked(place: Place) -> None:
    place.registry.revoke(WORKER)

    assert not place.may_talk(WORKER)


def test_released_worker_returns_its_request_to_queue(place: Place) -> None:
    place.register(WORKER, place.registry.enrol(an_enrolment()))
    place.assign(WORKER, 90)
    place.vanish(WORKER)

    place.registry.release(WORKER)

    assert place.holder_of(90) is None
    assert not place.may_talk(WORKER)


def test_confirm_keeps_a_drained_worker(place: Place) -> None:
    place.register(WORKER, place.registry.enrol(an_enrolment()))
    place.registry.drain(WORKER)

    place.registry.confirm(print)

    assert not place.takes_work(WORKER)
