"""An account at Hetzner Cloud with nothing in it, from an empty folder to the first build."""

import re

import pytest

from simulators.hetzner.server import SimulatedHetzner
from tests.rigs.booting import BootingServers
from tests.walks.conftest import Play
from tests.walks.test_tickets_at_hetzner import api, booting, servers, settled
from tests.walks.walking import Walk

__all__ = ("api", "booting")
pytestmark = pytest.mark.engine
_BUDGET = re.compile(r"(?m)^( +(?:pools|budgets)\.\S+ +(?:today|this month)) .+? (\S+ EUR)$")
_BASE = re.compile(r"(?m)(^base of hetzner: .+\n)+")
_SHARED = ("networks", "firewalls", "ssh_keys", "placement_groups")


def settled_money(text: str) -> str:
    """Return a page without what budgets hold: it depends on how much of the month is left.

    The parts of a base are made at the same time, in any order.
    """
    text = _BUDGET.sub(r"\1 \2", text)
    text = _BASE.sub(lambda found: "".join(sorted(found[0].splitlines(keepends=True))), text)
    return settled(re.sub(r"\d+ days old|on Python \S+", "N", text))


def test_walk_of_a_new_cloud_account(
    walk: Walk, play: Play, api: SimulatedHetzner, booting: BootingServers
) -> None:
    for each in walk.project.iterdir():
        each.unlink()
    walk.words["/home/you/bin/pulumi"] = f"{walk.folder}/bin/pulumi"
    assert not servers(api)

    play("new-cloud-account", settled_money)

    assert servers(api) == ["nova-everyday-0002"]
    (server,) = api.state.servers.values()
    assert len(server["private_net"]) == 1
    assert {kind: len(api.state.resources[kind]) for kind in _SHARED} == dict.fromkeys(_SHARED, 1)
    made = [each.body["name"] for each in api.requests if each.body.get("server_type")]
    assert made == ["nova-everyday-0001", "nova-everyday-0002"]
    assert walk.json("fleet plan --json")["actions"] == []
    (worker,) = walk.json("fleet status --json")["workers"]
    assert (worker["worker"], worker["cost"]) == ("nova-everyday-0002", "0.0096")
    assert booting.port
