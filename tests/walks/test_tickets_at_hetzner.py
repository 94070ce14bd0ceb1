"""Tickets whose machines are servers of Hetzner Cloud: made, found ready, given out, deleted."""

import os
import re
from collections.abc import Iterator

import pytest
import yaml

from simulators.hetzner.server import SimulatedHetzner
from simulators.hetzner.shared import create_ssh_key
from simulators.hetzner.wire import Request
from tests.builders.sentences import tells
from tests.docs.test_documents import steady
from tests.ports.hcloud_rig import skip_without_plugin
from tests.rigs.booting import BootingServers
from tests.walks.conftest import Play
from tests.walks.walking import Walk

pytestmark = pytest.mark.engine
GIB = 1024**3
PLAIN = """
fleet: hz
cadence: 10m
state: {passphrase: {env: FLEET_PASS}}
providers:
  hetzner: {kind: hcloud, location: fsn1, token: {env: HCLOUD_TOKEN}}
queues:
  tickets: {kind: tickets}
durations: {any: 24h}
images:
  fedora: {existing: {hetzner: debian-13}, architecture: amd64, provides: [copr_builder]}
pools:
  powerful:
    provider: hetzner
    machine: {type: ccx63, swap: 128GiB}
    image: fedora
    provides: [extra_powerful]
    workers: {max: 3}
tags:
  extra_powerful: {on_demand: true, exclusive: true, limits: {per: {submitter: 1}, total: 2}}
"""


def settled(text: str) -> str:
    """Return a page without what differs from run to run: ids become addresses.

    Nor in which order Pulumi makes what does not depend on each other, nor the second at which an
    hour ends that is paid for, or at which runs began.
    """
    text = re.sub(r"\b127\.18\.\d+\.\d+\b", "ADDRESS", steady(text))
    times = r"(?<=paid for)\s+[\dhms ]+(?=\s+more)|[\dhms ]+(?=\s+apart)|(?<=came for)\s+[\dhms ]+"
    text = re.sub(times, "TIME", text)
    return re.sub(
        r"(?:base of .*\n)+", lambda made: "".join(sorted(made[0].splitlines(True))), text
    )


@pytest.fixture
def api(walk: Walk) -> Iterator[SimulatedHetzner]:
    """Return Hetzner Cloud, simulated, at the time of the story."""
    skip_without_plugin()
    with SimulatedHetzner(now=walk.now) as api:
        walk.environment |= {
            "HCLOUD_ENDPOINT": api.endpoint,
            "HCLOUD_TOKEN": api.token,
            "FLEET_PASS": "a passphrase for tests",
            "FLEET_PULUMI_PLUGINS": os.environ["FLEET_PULUMI_PLUGINS"],
        }
        yield api


@pytest.fixture
def booting(api: SimulatedHetzner, walk: Walk) -> Iterator[BootingServers]:
    """Return what has servers boot in forty seconds."""
    with BootingServers(api, walk.now) as booting:
        walk.words["2222"] = str(booting.port)
        yield booting


def servers(api: SimulatedHetzner) -> list[str]:
    """Return the names of the servers that exist."""
    return sorted(each["name"] for each in api.state.servers.values())


@pytest.mark.usefixtures("booting")
def test_walk_of_a_ticket_at_hetzner(play: Play, api: SimulatedHetzner) -> None:
    given: list[str] = []
    keys: set[str] = set()
    keyed: list[int] = []
    seen = api.watch

    def watch(when: str, request: Request) -> None:
        seen(when, request)
        if (when, request.method, request.path) == ("done", "POST", "/servers"):
            given.append(request.body["user_data"])
            keys.update(each["name"] for each in api.state.resources["ssh_keys"].values())
            keyed.append(len(request.body["ssh_keys"]))

    api.watch = watch
    play("a-ticket-at-hetzner", settled)

    (user_data,) = given
    swap = {"filename": "/swap.img", "size": 128 * GIB, "maxsize": 128 * GIB}
    assert (keys, keyed) == ({"hz-hetzner-key-copr-backend"}, [1])
    assert yaml.safe_load(user_data) == {"swap": swap}
    assert not servers(api)


def test_ssh_key_with_another_name_in_the_project_is_named(
    walk: Walk, api: SimulatedHetzner
) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL/BIfX6nkoAT3JjR0LUwA+Ln1ToOvtjnIfQEyk3ixzW"
    create_ssh_key(api.state, {"name": "laptop", "public_key": key})
    given = PLAIN.replace("hcloud,", f'hcloud, ssh_keys: {{ana: "{key}"}},')
    (walk.project / "fleet.yaml").write_text(given, encoding="utf-8")
    walk.run("fleet state init")

    outcome = walk.json("fleet apply --json")

    (base,) = [each for each in outcome["stacks"] if each["result"] == "failed"]
    assert tells(base["error"], "SSH key not unique", "uniqueness_error", "hz-hetzner-key-ana")


@pytest.mark.long
def test_unreachable_machine_gets_no_ticket(
    walk: Walk, play: Play, api: SimulatedHetzner, booting: BootingServers
) -> None:
    play("a-ticket-at-hetzner", settled)

    see_a_machine_that_never_answers(walk, api, booting)
    see_a_machine_that_stops_answering(walk, api, booting)


def see_a_machine_that_never_answers(
    walk: Walk, api: SimulatedHetzner, booting: BootingServers
) -> None:
    """Hold that it is a failed boot, and that the ticket gets another machine."""
    booting.dead.update(f"hz-powerful-{number:04}" for number in range(1, 10))
    walk.run("fleet ticket open --tag extra_powerful --user copr")
    walk.run("fleet apply")
    walk.run("later 1m")
    walk.run("fleet apply")
    walk.run("later 5m")
    late = walk.json("fleet plan --json")
    (delete,) = [each for each in late["actions"] if each["action"] == "delete"]
    assert delete["reason"] == "boot-failed"
    assert tells(delete["because"], f"port {booting.port}", "ready.within (5m)")
    walk.run("fleet apply")
    booting.dead.clear()
    walk.run("later 1m")
    walk.run("fleet apply")
    assert walk.run("fleet ticket check 3 --user copr").startswith("hz-powerful-")
    assert len(servers(api)) == 1


def see_a_machine_that_stops_answering(
    walk: Walk, api: SimulatedHetzner, booting: BootingServers
) -> None:
    """Hold that one that answered before gets no ticket any more."""
    walk.run("fleet ticket close 3 --user copr")
    walk.run("fleet apply")
    assert not servers(api)
    walk.run("fleet ticket open --tag extra_powerful --user copr")
    walk.run("fleet apply")
    walk.run("later 1m")
    walk.run("fleet ticket close 4 --user copr")
    walk.run("fleet apply")
    (name,) = servers(api)
    booting.dead.add(name)
    walk.run("later 2m")
    walk.run("fleet ticket open --tag extra_powerful --user copr")
    walk.run("fleet apply")
    assert "[exit code 1]" in walk.run("fleet ticket check 5 --user copr")


@pytest.mark.long
def test_walk_of_a_ticket_closed_early(
    walk: Walk, play: Play, api: SimulatedHetzner, booting: BootingServers
) -> None:
    made: list[str] = []
    seen = api.watch

    def watch(when: str, request: Request) -> None:
        seen(when, request)
        if (when, request.method, request.path) == ("done", "POST", "/servers"):
            made.append(request.body["name"])

    api.watch = watch
    play("a-ticket-closed-early", settled)

    assert made == ["early-powerful-0001", "early-powerful-0002"]
    assert not servers(api)
    assert walk.json("fleet status --json")["workers"] == []
    assert booting.port


@pytest.mark.long
def test_ticket_gets_running_machine_without_ready(walk: Walk, api: SimulatedHetzner) -> None:
    (walk.project / "fleet.yaml").write_text(PLAIN, encoding="utf-8")
    assert walk.run("fleet validate") == "fleet.yaml: valid\n"
    walk.run("fleet state init")
    walk.run("fleet ticket open --tag extra_powerful --user ada")
    planned = walk.json("fleet plan --json")["actions"]
    assert [each["worker"] for each in planned] == ["hz-powerful-0001"]
    walk.run("fleet apply")
    walk.run("later 1m")
    walk.run("fleet apply")
    (server,) = api.state.servers.values()
    address = server["public_net"]["ipv4"]["ip"]
    assert walk.run("fleet ticket check 1 --user ada") == f"{address}\n"
    walk.run("fleet ticket close 1 --user ada")
    walk.run("fleet apply")
    assert not servers(api)
