"""Break glass: machines are listed and deleted without fleet, which heals afterwards."""

import pytest

from simulators.hetzner.server import SimulatedHetzner
from tests.walks.conftest import Play
from tests.walks.test_tickets_at_hetzner import api, booting, servers, settled
from tests.walks.walking import Walk

__all__ = ("api", "booting")
pytestmark = pytest.mark.engine


@pytest.mark.usefixtures("booting")
def test_walk_recreates_manually_deleted_machines(
    walk: Walk, play: Play, api: SimulatedHetzner
) -> None:
    play("when-fleet-cannot-run", settled)

    assert servers(api) == ["debian-ci-builders-0001", "debian-ci-builders-0003"]
    (ticket,) = walk.json("fleet ticket list --json")
    assert ticket["machine"] == "debian-ci-builders-0001"
    plan = walk.json("fleet plan --json")
    assert (plan["actions"], plan["attention"]) == ([], [])
