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


UNKNOWN = Unknown(unknown="no answer")
RENAMED = a_listing(a_machine(name="renamed", id="1"))


@pytest.mark.parametrize(
    ("listings", "gone", "pauses"),
    [
        ((SECOND, SECOND), [(ONE.name,)], [10]),
        ((NONE, BOTH), [()], [10]),
        ((NONE, UNKNOWN), [()], [10]),
        # None is missing: no wait.
        ((BOTH,), [()], []),
        ((UNKNOWN,), [()], []),
        ((RENAMED, RENAMED), [(TWO.name,)], [10]),
        # A second listing confirms an absence without a second wait.
        ((SECOND, SECOND, SECOND, BOTH), [(ONE.name,), (ONE.name,), ()], [10]),
        # Another machine is missing.
        ((SECOND, SECOND, NONE, NONE), [(ONE.name,), (ONE.name, TWO.name)], [10, 10]),
    ],
)
def test_machine_is_absent_when_two_listings_omit_it(
    listings: tuple[Listing | Unknown, ...], gone: list[tuple[str, ...]], pauses: list[float]
) -> None:
    cloud = Cloud(*listings)

    assert [cloud.gone() for _ in gone] == gone
    assert cloud.pauses == pauses


def test_worker_without_id_is_not_searched() -> None:
    assert AbsenceCheck().surely_gone(Cloud(), (ONE,), {}) == ()
