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


def test_running_server_boots_rescue_system_after_reset(
    api: SimulatedHetzner, client: Client
) -> None:
    server = make(client, start=True)
    server.enable_rescue()

    before = keys_in_rescue(api, server)
    server.reset()

    assert (before, keys_in_rescue(api, server)) == (None, [])


def test_disabled_rescue_system_is_not_booted(api: SimulatedHetzner, client: Client) -> None:
    server = make(client)
    server.enable_rescue()

    server.disable_rescue()
    server.power_on()

    assert keys_in_rescue(api, server) is None


def test_stopped_server_runs_no_rescue_system(api: SimulatedHetzner, client: Client) -> None:
    server = make(client)
    server.enable_rescue()
    server.power_on()

    server.power_off()

    assert keys_in_rescue(api, server) is None


@pytest.mark.parametrize(("kind", "keys"), [("windows", []), ("linux64", ["4711"])])
def test_unknown_rescue_system_or_key_is_refused(
    client: Client, kind: str, keys: list[str]
) -> None:
    server = make(client)

    with pytest.raises(APIException) as refused:
        server.enable_rescue(kind, keys)

    assert refused.value.code == "invalid_input"


def test_snapshot_is_found_relabelled_and_deleted(
    client: Client,
) -> None:
    made = make(client).create_image("trixie 1", "snapshot", {"fleet": "demo", "state": "partial"})
    made.action.wait_until_finished()

    made.image.update(labels={"fleet": "demo", "state": "whole"})
    found = client.images.get_all(type=["snapshot"], label_selector="fleet==demo,state==whole")

    assert [(each.id, each.status, each.description) for each in found] == [
        (made.image.id, "available", "trixie 1")
    ]
    assert found[0].created_from is not None
    found[0].delete()
    assert client.images.get_all(type=["snapshot"]) == []


def test_snapshot_boots_only_on_large_enough_disk(client: Client) -> None:
    server = client.servers.create("big", ServerType(name="ccx33"), Image(name="debian-13")).server
    image = server.create_image().image

    with pytest.raises(APIException, match="image"):
        client.servers.create("small", ServerType(name="ccx13"), Image(id=image.id))

    made = client.servers.create("other", ServerType(name="ccx33"), Image(id=image.id))
    assert made.server.image is not None
    assert made.server.image.id == image.id


def test_server_has_configured_address(api: SimulatedHetzner, client: Client) -> None:
    api.state.address = "127.0.0.1"

    server = make(client)

    assert server.public_net is not None
    assert server.public_net.ipv4 is not None
    assert server.public_net.ipv4.ip == "127.0.0.1"
