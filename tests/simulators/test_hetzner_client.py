"""The simulated Hetzner speaks as the official client expects of the real one."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from hcloud import APIException, Client
from hcloud.firewalls import FirewallResource, FirewallRule
from hcloud.images import Image
from hcloud.locations import Location
from hcloud.networks import NetworkSubnet
from hcloud.server_types import ServerType
from hcloud.servers import BoundServer, ServerCreatePublicNetwork

from simulators.hetzner.server import SimulatedHetzner

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1hZGUgdXAgZm9yIHRlc3RzLCBvcGVucyBub3RoaW5n me"
T = TypeVar("T")
SMALL, LARGE = ServerType(name="ccx13"), ServerType(name="ccx33")
DEBIAN, FALKENSTEIN = Image(name="debian-13"), Location(name="fsn1")


@pytest.fixture
def api() -> Iterator[SimulatedHetzner]:
    with SimulatedHetzner() as simulated:
        yield simulated


@pytest.fixture
def client(api: SimulatedHetzner) -> Client:
    return Client(api.token, api.endpoint, poll_interval=0)


def told(value: T | None) -> T:
    """Return what the client's types say may be missing."""
    assert value is not None
    return value


def make(client: Client, name: str = "one", **labels: str) -> BoundServer:
    made = client.servers.create(name, SMALL, DEBIAN, location=FALKENSTEIN, labels=labels)
    made.action.wait_until_finished()
    made.server.reload()
    return made.server


def test_server_has_ordered_properties_and_starts(api: SimulatedHetzner, client: Client) -> None:
    made = client.servers.create(
        *("demo-builders-0001", SMALL, DEBIAN),
        location=FALKENSTEIN,
        labels={"fleet": "demo"},
        user_data="#cloud-config canary",
    )
    server = client.servers.get_by_id(told(made.server.id))

    assert (made.server.status, made.action.status) == ("initializing", "running")
    assert [action.command for action in made.next_actions] == ["start_server"]
    assert (server.name, server.labels) == ("demo-builders-0001", {"fleet": "demo"})
    assert (told(server.server_type).name, told(server.location).name) == ("ccx13", "fsn1")
    assert (told(server.image).name, told(server.image).architecture) == ("debian-13", "x86")
    assert (server.status, server.primary_disk_size) == ("running", 80)
    assert api.state.user_data[told(server.id)] == "#cloud-config canary"
    assert "canary" not in str(client.request("GET", f"/servers/{server.id}"))
    assert [each.command for each in server.get_actions(sort=["id"])] == [
        *("create_server", "start_server")
    ]
    assert [each.status for each in client.servers.actions.get_all()] == ["success"] * 2


def test_arm_type_boots_the_image_of_its_architecture(client: Client) -> None:
    made = client.servers.create("one", ServerType(name="cax21"), DEBIAN)

    assert told(made.server.image).architecture == "arm"


def fill_group(client: Client) -> None:
    group = client.placement_groups.create("apart", "spread").placement_group
    for number in range(11):
        found = told(client.placement_groups.get_by_id(told(group.id)).servers)
        assert len(found) == number
        client.servers.create(f"server-{number}", SMALL, DEBIAN, placement_group=group)


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda client: [make(client), make(client)], "uniqueness_error"),
        (lambda client: client.servers.get_by_id(4711), "not_found"),
        (lambda client: client.images.get_all(name="debian-13")[0].delete(), "forbidden"),
        (lambda client: make(client).change_type(LARGE, upgrade_disk=False), "server_not_stopped"),
        (
            lambda client: make(client).attach_to_network(
                client.networks.create("net", "10.0.0.0/16")
            ),
            "no_subnet_available",
        ),
        (fill_group, "placement_error"),
    ],
)
def test_impossible_request_is_refused_with_code_of_hetzner(
    client: Client, ask: Callable[[Client], object], code: str
) -> None:
    with pytest.raises(APIException) as refused:
        ask(client)

    assert refused.value.code == code


@pytest.mark.parametrize(
    ("name", "order", "field"),
    [
        *((name, {}, "name") for name in ("", "two words", "-dash", "under_score")),
        ("one", {"server_type": ServerType(name="cx1")}, "server_type"),
        ("one", {"image": Image(name="windows")}, "image"),
        ("one", {"user_data": "x" * (32 * 1024 + 1)}, "user_data"),
    ],
)
def test_invalid_order_is_refused(
    client: Client, name: str, order: dict[str, Any], field: str
) -> None:
    with pytest.raises(APIException) as refused:
        client.servers.create(name, **{"server_type": SMALL, "image": DEBIAN} | order)

    assert refused.value.code == "invalid_input"
    assert refused.value.details["fields"][0]["name"] == field


def test_type_may_be_out_of_stock(api: SimulatedHetzner, client: Client) -> None:
    api.state.stock["ccx13"] = 1
    server = make(client, "one")

    with pytest.raises(APIException) as refused:
        make(client, "two")

    assert refused.value.code == "resource_unavailable"
    assert client.servers.create("three", LARGE, DEBIAN).server.name == "three"
    assert not told(told(client.server_types.get_by_name("ccx13")).locations)[0].available
    server.delete()
    assert make(client, "two").status == "running"


def test_project_may_be_full(api: SimulatedHetzner, client: Client) -> None:
    api.state.limits["servers"] = 1
    make(client, "one")

    with pytest.raises(APIException) as refused:
        client.servers.create("two", SMALL, DEBIAN)

    assert refused.value.code == "resource_limit_exceeded"


def test_wrong_token_is_refused(api: SimulatedHetzner) -> None:
    with pytest.raises(APIException) as refused:
        Client("x" * 64, api.endpoint).servers.get_all()

    assert refused.value.code == "unauthorized"


def test_labels_and_name_of_a_server_are_changed(client: Client) -> None:
    server, _ = make(client, "one", fleet="demo", pool="builders"), make(client, "two")

    assert server.update(labels={"fleet": "demo"}).labels == {"fleet": "demo"}
    assert server.update(name="three").name == "three"
    with pytest.raises(APIException, match="already used"):
        server.update(name="two")


def test_servers_are_found_by_name_and_by_labels(client: Client) -> None:
    make(client, "one", fleet="demo")
    make(client, "two", fleet="demo-two")

    assert told(client.servers.get_by_name("two")).labels == {"fleet": "demo-two"}
    assert [each.name for each in client.servers.get_all(label_selector="fleet==demo")] == ["one"]


def test_listing_has_ordered_pages(client: Client) -> None:
    for number in range(5):
        make(client, f"server-{number}")

    page = client.servers.get_list(page=2, per_page=2)

    assert [each.name for each in page.servers] == ["server-2", "server-3"]
    assert page.meta.pagination is not None
    assert (page.meta.pagination.next_page, page.meta.pagination.total_entries) == (3, 5)


def test_type_of_stopped_server_can_be_changed(client: Client) -> None:
    server = make(client)

    server.power_off().wait_until_finished()
    server.change_type(LARGE, upgrade_disk=True).wait_until_finished()
    server.power_on().wait_until_finished()
    server.reload()

    assert (told(server.server_type).name, server.status) == ("ccx33", "running")
    assert server.primary_disk_size == 240


def test_server_has_an_address_while_in_its_network(client: Client) -> None:
    network = client.networks.create("net", "10.0.0.0/16")
    subnet = NetworkSubnet("10.0.0.0/24", type="cloud", network_zone="eu-central")
    network.add_subnet(subnet).wait_until_finished()
    first = client.servers.create("one", SMALL, DEBIAN, networks=[network]).server
    second = make(client, "two")
    second.attach_to_network(network).wait_until_finished()
    second.reload()
    network.reload()
    addresses = [told(each.private_net)[0].ip for each in (first, second)]
    members = [each.id for each in told(network.servers)]
    for each in (first, second):
        each.detach_from_network(network)
        each.reload()
    network.delete_subnet(subnet).wait_until_finished()
    network.reload()

    assert (addresses, members) == (["10.0.0.2", "10.0.0.3"], [first.id, second.id])
    assert (first.private_net, second.private_net, network.subnets) == ([], [], [])


def test_firewall_is_changed_and_deleted_unless_in_use(client: Client) -> None:
    rule = FirewallRule("in", "tcp", source_ips=["0.0.0.0/0"], port="22")
    firewall = client.firewalls.create("wall", rules=[rule]).firewall
    server = client.servers.create("one", SMALL, DEBIAN, firewalls=[firewall]).server
    firewall.reload()

    assert [told(each.server).id for each in told(firewall.applied_to)] == [server.id]
    with pytest.raises(APIException) as refused:
        firewall.delete()
    assert refused.value.code == "resource_in_use"
    target = FirewallResource(type="server", server=server)
    firewall.remove_from_resources([target])
    firewall.apply_to_resources([target])
    firewall.remove_from_resources([target])
    firewall.set_rules([FirewallRule("in", "icmp", source_ips=["::/0"])])
    firewall.reload()
    assert [rule.protocol for rule in told(firewall.rules)] == ["icmp"]
    assert firewall.applied_to == []
    assert firewall.delete()


def test_ssh_key_has_fingerprint(client: Client) -> None:
    key = client.ssh_keys.create("me", PUBLIC_KEY)

    found = client.ssh_keys.get_by_fingerprint(told(key.fingerprint))

    assert told(found).name == "me"
    with pytest.raises(APIException, match="not unique"):
        client.ssh_keys.create("again", PUBLIC_KEY)


def test_server_without_a_public_address_has_none(client: Client) -> None:
    nowhere = ServerCreatePublicNetwork(enable_ipv4=False, enable_ipv6=False)
    server = client.servers.create("one", SMALL, DEBIAN, public_net=nowhere).server

    assert (told(server.public_net).ipv4, told(server.public_net).ipv6) == (None, None)


def test_catalogue_has_types_locations_and_images(client: Client) -> None:
    sold = told(client.server_types.get_by_name("ccx33"))
    arm = client.images.get_by_name_and_architecture("debian-12", "arm")

    assert (sold.cores, sold.memory, sold.disk) == (8, 32, 240)
    assert told(sold.prices)[0]["location"] == "fsn1"
    assert told(client.locations.get_by_name("hel1")).city == "Helsinki"
    assert told(arm).id == 114690389
