"""When a machine counts as gone whose deletion nobody has confirmed."""

import pytest

from fleet.engines.projects import AbsenceCheck
from fleet.model.facts import Listing, Unknown
from tests.builders import a_listing, a_machine
from tests.ports.engines import a_sim_worker

ONE, TWO = a_sim_worker("debian-builders-0001"), a_sim_worker("debian-builders-0002")
IDS = {ONE.name: "1", TWO.name: "2"}
NONE = a_listing()
BOTH = a_listing(*(a_machine(name=name, id=each) for name, each in IDS.items()))
SECOND = a_listing(*BOTH.machines[1:])


class Cloud:
    """A provider that gives one listing after the other."""

    def __init__(self, *listings: Listing | Unknown) -> None:
        self.listings = list(listings)
        self.pauses: list[float] = []
        self._absences = AbsenceCheck()
        self._absences.pause = self.pauses.append

    def list(self, fleet: str) -> Listing | Unknown:
        assert fleet == "debian"
        return self.listings.pop(0)

    def gone(self) -> tuple[str, ...]:
        return self._absences.surely_gone(self, (ONE, TWO), IDS)


def test_machine_is_absent_when_two_listings_omit_it() -> None:
    cloud = Cloud(SECOND, SECOND)

    assert cloud.gone() == (ONE.name,)
    assert cloud.pauses == [10]


@pytest.mark.parametrize("later", [BOTH, Unknown(unknown="no answer")])
def test_machine_may_exist_when_one_listing_omits_it(later: Listing | Unknown) -> None:
    assert Cloud(NONE, later).gone() == ()


@pytest.mark.parametrize("first", [BOTH, Unknown(unknown="no answer")])
def test_absence_check_does_not_wait_when_no_machine_is_missing(first: Listing | Unknown) -> None:
    cloud = Cloud(first)

    assert cloud.gone() == ()
    assert cloud.pauses == []


def test_machine_exists_when_listed_by_another_name() -> None:
    renamed = a_listing(a_machine(name="renamed", id="1"))

    assert Cloud(renamed, renamed).gone() == (TWO.name,)


def test_worker_without_id_is_not_searched() -> None:
    assert AbsenceCheck().surely_gone(Cloud(), (ONE,), {}) == ()


def test_absence_is_confirmed_by_second_listing_without_second_wait() -> None:
    cloud = Cloud(SECOND, SECOND, SECOND, BOTH)

    assert [cloud.gone() for _ in range(3)] == [(ONE.name,), (ONE.name,), ()]
    assert cloud.pauses == [10]


def test_absence_check_waits_again_for_another_missing_machine() -> None:
    cloud = Cloud(SECOND, SECOND, NONE, NONE)

    assert [cloud.gone() for _ in range(2)] == [(ONE.name,), (ONE.name, TWO.name)]
    assert cloud.pauses == [10, 10]
