"""The simulated Hetzner boots into rescue and takes snapshots as the official client expects."""

from collections.abc import Iterator

import pytest
from hcloud import APIException, Client
from hcloud.images import Image
from hcloud.server_types import ServerType
from hcloud.servers import BoundServer
from hcloud.ssh_keys import BoundSSHKey

from simulators.hetzner.server import SimulatedHetzner

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1hZGUgdXAgZm9yIHRlc3RzLCBvcGVucyBub3RoaW5n me"


@pytest.fixture
def api() -> Iterator[SimulatedHetzner]:
    with SimulatedHetzner() as simulated:
        yield simulated


@pytest.fixture
def client(api: SimulatedHetzner) -> Client:
    return Client(api.token, api.endpoint, poll_interval=0)


@pytest.fixture
def key(client: Client) -> BoundSSHKey:
    return client.ssh_keys.create("mine", PUBLIC_KEY)


def make(client: Client, *, start: bool = False) -> BoundServer:
    made = client.servers.create(
        "one", ServerType(name="ccx13"), Image(name="debian-13"), start_after_create=start
    )
    assert made.server.id is not None
    return client.servers.get_by_id(made.server.id)


def keys_in_rescue(api: SimulatedHetzner, server: BoundServer) -> list[int] | None:
    return api.state.in_rescue.get(server.id or 0)


def test_server_boots_rescue_system_once(
    api: SimulatedHetzner, client: Client, key: BoundSSHKey
) -> None:
    server = make(client)

    enabled = server.enable_rescue("linux64", [str(key.id)])
    asked = client.servers.get_by_id(server.id or 0).rescue_enabled
    server.power_on().wait_until_finished()
    first = keys_in_rescue(api, server)
    server.reload()
    server.reset()

    assert enabled.root_password
    assert (asked, server.rescue_enabled) == (True, False)
    assert (first, keys_in_rescue(api, server)) == ([key.id], None)


def test_rescue_system_runs_from_a_reset_to_power_off(
    api: SimulatedHetzner, client: Client
) -> None:
    server = make(client, start=True)
    server.enable_rescue()

    before = keys_in_rescue(api, server)
    server.reset()
    after = keys_in_rescue(api, server)
    server.power_off()

    assert (before, after, keys_in_rescue(api, server)) == (None, [], None)
    server.enable_rescue()
    server.disable_rescue()
    server.power_on()
    assert keys_in_rescue(api, server) is None


@pytest.mark.parametrize(("kind", "keys"), [("windows", []), ("linux64", ["4711"])])
def test_unknown_rescue_system_or_key_is_refused(
    client: Client, kind: str, keys: list[str]
) -> None:
    server = make(client)

    with pytest.raises(APIException) as refused:
        server.enable_rescue(kind, keys)

    assert refused.value.code == "invalid_input"


def test_snapshot_is_relabelled_found_booted_and_deleted(client: Client) -> None:
    server = client.servers.create("big", ServerType(name="ccx33"), Image(name="debian-13")).server
    made = server.create_image("trixie 1", "snapshot", {"fleet": "demo", "state": "partial"})
    made.action.wait_until_finished()

    made.image.update(labels={"fleet": "demo", "state": "whole"})
    (found,) = client.images.get_all(type=["snapshot"], label_selector="fleet==demo,state==whole")

    assert (found.id, found.status, found.description, found.name) == (
        *(made.image.id, "available", "trixie 1", None),
    )
    assert found.created_from is not None
    with pytest.raises(APIException, match="image"):
        client.servers.create("small", ServerType(name="ccx13"), found)
    booted = client.servers.create("other", ServerType(name="ccx33"), found).server
    assert booted.image is not None
    assert booted.image.id == found.id
    found.delete()
    assert client.images.get_all(type=["snapshot"]) == []


def test_server_has_configured_address(api: SimulatedHetzner, client: Client) -> None:
    api.state.address = "127.0.0.1"

    server = make(client)

    assert server.public_net is not None
    assert server.public_net.ipv4 is not None
    assert server.public_net.ipv4.ip == "127.0.0.1"
