"""The simulated Hetzner speaks as the official client expects of the real one."""

from collections.abc import Iterator
from typing import TypeVar

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


def test_server_has_ordered_properties(client: Client) -> None:
    server = make(client, "demo-builders-0001", fleet="demo")

    assert (server.name, server.labels) == ("demo-builders-0001", {"fleet": "demo"})
    assert (told(server.server_type).name, told(server.location).name) == ("ccx13", "fsn1")
    assert (told(server.image).name, told(server.image).architecture) == ("debian-13", "x86")
    assert (server.status, server.primary_disk_size) == ("running", 80)


def test_server_starts_after_its_creation(client: Client) -> None:
    made = client.servers.create("one", SMALL, DEBIAN)

    assert (made.server.status, made.action.status) == ("initializing", "running")
    assert [action.command for action in made.next_actions] == ["start_server"]
    assert client.servers.get_by_id(told(made.server.id)).status == "running"


def test_user_data_is_stored_but_not_returned(api: SimulatedHetzner, client: Client) -> None:
    made = client.servers.create("one", SMALL, DEBIAN, user_data="#cloud-config canary")

    assert api.state.user_data[told(made.server.id)] == "#cloud-config canary"
    assert "canary" not in str(client.request("GET", f"/servers/{made.server.id}"))


def test_user_data_has_a_limit(client: Client) -> None:
    with pytest.raises(APIException, match="user_data"):
        client.servers.create("one", SMALL, DEBIAN, user_data="x" * (32 * 1024 + 1))


def test_arm_type_boots_the_image_of_its_architecture(client: Client) -> None:
    made = client.servers.create("one", ServerType(name="cax21"), DEBIAN)

    assert told(made.server.image).architecture == "arm"


def test_server_name_is_unique(client: Client) -> None:
    make(client)

    with pytest.raises(APIException) as refused:
        client.servers.create("one", SMALL, DEBIAN)

    assert refused.value.code == "uniqueness_error"


@pytest.mark.parametrize("name", ["", "two words", "-dash", "under_score"])
def test_server_name_must_be_a_hostname(client: Client, name: str) -> None:
    with pytest.raises(APIException, match="name"):
        client.servers.create(name, SMALL, DEBIAN)


@pytest.mark.parametrize(
    ("order", "field"),
    [
        ((ServerType(name="cx1"), DEBIAN), "server_type"),
        ((SMALL, Image(name="windows")), "image"),
    ],
)
def test_order_of_unsold_type_or_location_is_refused(
    client: Client, order: tuple[ServerType, Image], field: str
) -> None:
    with pytest.raises(APIException) as refused:
        client.servers.create("one", *order)

    assert refused.value.code == "invalid_input"
    assert refused.value.details["fields"][0]["name"] == field


def test_type_may_be_out_of_stock(api: SimulatedHetzner, client: Client) -> None:
    api.state.stock["ccx13"] = 1
    make(client, "one")

    with pytest.raises(APIException) as refused:
        client.servers.create("two", SMALL, DEBIAN)

    assert refused.value.code == "resource_unavailable"
    assert client.servers.create("three", LARGE, DEBIAN).server.name == "three"
    assert not told(told(client.server_types.get_by_name("ccx13")).locations)[0].available


def test_deleted_server_returns_to_stock(api: SimulatedHetzner, client: Client) -> None:
    api.state.stock["ccx13"] = 1
    make(client, "one").delete()

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


def test_deleted_server_is_not_found(client: Client) -> None:
    server = make(client)

    server.delete().wait_until_finished()

    assert client.servers.get_all() == []
    with pytest.raises(APIException) as refused:
        server.reload()
    assert refused.value.code == "not_found"


def test_labels_are_replaced_completely(client: Client) -> None:
    server = make(client, fleet="demo", pool="builders")

    assert server.update(labels={"fleet": "demo"}).labels == {"fleet": "demo"}


def test_server_is_renamed_unless_name_is_taken(client: Client) -> None:
    server, _ = make(client, "one"), make(client, "two")

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

    with pytest.raises(APIException) as refused:
        server.change_type(LARGE, upgrade_disk=False)
    server.power_off().wait_until_finished()
    server.change_type(LARGE, upgrade_disk=True).wait_until_finished()
    server.power_on().wait_until_finished()
    server.reload()

    assert refused.value.code == "server_not_stopped"
    assert (told(server.server_type).name, server.status) == ("ccx33", "running")
    assert server.primary_disk_size == 240


def test_snapshot_is_created_listed_booted_and_deleted(client: Client) -> None:
    made = make(client).create_image(description="baked", labels={"fleet": "demo"})
    made.action.wait_until_finished()

    (found,) = client.images.get_all(type=["snapshot"], label_selector="fleet=demo")
    booted = client.servers.create("two", SMALL, found).server

    assert (found.description, found.status, found.name) == ("baked", "available", None)
    assert told(booted.image).id == found.id
    assert found.delete()
    assert client.images.get_all(type=["snapshot"]) == []


def test_system_images_cannot_be_deleted(client: Client) -> None:
    with pytest.raises(APIException) as refused:
        client.images.get_all(name="debian-13")[0].delete()

    assert refused.value.code == "forbidden"


def test_server_gets_an_address_in_its_network(client: Client) -> None:
    subnet = NetworkSubnet("10.0.0.0/24", type="cloud", network_zone="eu-central")
    network = client.networks.create("net", "10.0.0.0/16", subnets=[subnet])
    first = client.servers.create("one", SMALL, DEBIAN, networks=[network]).server
    second = make(client, "two")
    second.attach_to_network(network).wait_until_finished()
    second.reload()
    network.reload()

    assert [told(each.private_net)[0].ip for each in (first, second)] == ["10.0.0.2", "10.0.0.3"]
    assert [each.id for each in told(network.servers)] == [first.id, second.id]


def test_server_leaves_its_network(client: Client) -> None:
    network = client.networks.create("net", "10.0.0.0/16")
    network.add_subnet(NetworkSubnet("10.0.0.0/24", type="cloud", network_zone="eu-central"))
    server = client.servers.create("one", SMALL, DEBIAN, networks=[network]).server

    server.detach_from_network(network)
    server.reload()

    assert server.private_net == []


def test_network_requires_subnet_in_zone_of_server(client: Client) -> None:
    network = client.networks.create("net", "10.0.0.0/16")

    with pytest.raises(APIException) as refused:
        make(client).attach_to_network(network)

    assert refused.value.code == "no_subnet_available"


def test_subnet_is_added_and_deleted(client: Client) -> None:
    network = client.networks.create("net", "10.0.0.0/16")
    subnet = NetworkSubnet("10.0.1.0/24", type="cloud", network_zone="eu-central")
    network.add_subnet(subnet).wait_until_finished()
    network.reload()
    added = [each.ip_range for each in told(network.subnets)]
    network.delete_subnet(subnet).wait_until_finished()
    network.reload()

    assert (added, network.subnets) == (["10.0.1.0/24"], [])


def test_firewall_of_a_server_cannot_be_deleted(client: Client) -> None:
    rule = FirewallRule("in", "tcp", source_ips=["0.0.0.0/0"], port="22")
    firewall = client.firewalls.create("wall", rules=[rule]).firewall
    server = client.servers.create("one", SMALL, DEBIAN, firewalls=[firewall]).server
    firewall.reload()

    assert [told(each.server).id for each in told(firewall.applied_to)] == [server.id]
    with pytest.raises(APIException) as refused:
        firewall.delete()
    assert refused.value.code == "resource_in_use"


def test_rules_and_servers_of_firewall_can_be_changed(client: Client) -> None:
    firewall, server = client.firewalls.create("wall").firewall, make(client)
    target = FirewallResource(type="server", server=server)
    firewall.set_rules([FirewallRule("in", "icmp", source_ips=["::/0"])])
    firewall.apply_to_resources([target])
    firewall.remove_from_resources([target])
    firewall.reload()

    assert [rule.protocol for rule in told(firewall.rules)] == ["icmp"]
    assert firewall.applied_to == []
    assert firewall.delete()


def test_placement_group_has_at_most_ten_servers(client: Client) -> None:
    group = client.placement_groups.create("apart", "spread").placement_group
    for number in range(10):
        client.servers.create(f"server-{number}", SMALL, DEBIAN, placement_group=group)

    with pytest.raises(APIException) as refused:
        client.servers.create("one-more", SMALL, DEBIAN, placement_group=group)

    assert refused.value.code == "placement_error"
    assert len(told(client.placement_groups.get_by_id(told(group.id)).servers)) == 10


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


def test_actions_are_listed_per_server_and_globally(client: Client) -> None:
    server = make(client)

    commands = [each.command for each in server.get_actions(sort=["id"])]

    assert commands == ["create_server", "start_server"]
    assert [each.status for each in client.servers.actions.get_all()] == ["success"] * 2


def test_catalogue_has_types_locations_and_images(client: Client) -> None:
    sold = told(client.server_types.get_by_name("ccx33"))
    arm = client.images.get_by_name_and_architecture("debian-12", "arm")

    assert (sold.cores, sold.memory, sold.disk) == (8, 32, 240)
    assert told(sold.prices)[0]["location"] == "fsn1"
    assert told(client.locations.get_by_name("hel1")).city == "Helsinki"
    assert told(arm).id == 114690389
