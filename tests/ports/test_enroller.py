"""Every enroller keeps one contract: a token is for one machine, once."""

import pytest

from fleet.errors import WorkerBusy
from tests.ports.registries import WORKER, Place, an_enrolment, place, tables
from tests.ports.stores import postgres_url

__all__ = ["place", "postgres_url", "tables"]


def test_enrolled_worker_registers_with_its_token_once(place: Place) -> None:
    token = place.registry.enrol(an_enrolment())

    assert place.register(WORKER, token)
    assert place.takes_work(WORKER)
    assert not place.register(WORKER, token)


def test_registration_fails_with_another_token(place: Place) -> None:
    place.registry.enrol(an_enrolment())

    assert not place.register(WORKER, "another")
    assert not place.may_talk(WORKER)


def test_each_enrolment_has_a_separate_token(place: Place) -> None:
    other = "debian-builders-0002"

    one, two = (place.registry.enrol(an_enrolment(name)) for name in (WORKER, other))

    assert one != two
    assert not place.register(WORKER, two)


def test_second_enrolment_invalidates_first_token(place: Place) -> None:
    first = place.registry.enrol(an_enrolment())

    second = place.registry.enrol(an_enrolment())

    assert not place.register(WORKER, first)
    assert place.register(WORKER, second)


def test_reused_name_is_not_drained(place: Place) -> None:
    place.register(WORKER, place.registry.enrol(an_enrolment()))
    place.registry.drain(WORKER)
    place.registry.disable(WORKER)

    token = place.registry.enrol(an_enrolment())

    assert place.register(WORKER, token)
    assert place.takes_work(WORKER)


def test_busy_worker_is_not_enrolled_again(place: Place) -> None:
    place.register(WORKER, place.registry.enrol(an_enrolment()))
    place.assign(WORKER, 90)

    with pytest.raises(WorkerBusy):
        place.registry.enrol(an_enrolment())

    assert place.may_talk(WORKER)


def test_connected_worker_is_not_enrolled_again(place: Place) -> None:
    place.register(WORKER, place.registry.enrol(an_enrolment()))

    with pytest.raises(WorkerBusy, match="connected"):
        place.registry.enrol(an_enrolment())
