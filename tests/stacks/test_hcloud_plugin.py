"""Pulumi's engine and Hetzner's real provider work with the simulated API as with the real one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pulumi
import pulumi_hcloud
import pytest
from pulumi import automation

from fleet.engines.pulumi_cli import Home, find_cli
from fleet.errors import EngineAbsent
from simulators.hetzner.server import SimulatedHetzner

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1hZGUgdXAgZm9yIHRlc3RzLCBvcGVucyBub3RoaW5n me"
pytestmark = pytest.mark.engine


@pytest.fixture
def api() -> Iterator[SimulatedHetzner]:
    with SimulatedHetzner() as simulated:
        yield simulated


@pytest.fixture
def stack_of(
    api: SimulatedHetzner, tmp_path: Path
) -> Callable[[Callable[[], None]], automation.Stack]:
    """Return what makes a stack of a program."""
    if not os.environ.get("FLEET_PULUMI_PLUGINS"):
        pytest.skip("FLEET_PULUMI_PLUGINS is not set; `nox -s engine` sets it")
    try:
        cli = find_cli()
    except EngineAbsent as error:
        pytest.skip(str(error))
    home = Home(tmp_path)
    home.prepare("trial", tmp_path / "state")

    def make(program: Callable[[], None]) -> automation.Stack:
        workspace = automation.LocalWorkspace(
            work_dir=str(home.work("trial")),
            pulumi_home=str(tmp_path / "cli"),
            program=program,
            env_vars={
                **home.environment(f"file://{tmp_path}/state", "made-up"),
                "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
                "HCLOUD_ENDPOINT": api.endpoint,
                "HCLOUD_TOKEN": api.token,
            },
            secrets_provider="passphrase",
            project_settings=automation.ProjectSettings(name="trial", runtime="python"),
            pulumi_command=automation.PulumiCommand(str(cli.parents[1])),
        )
        return automation.Stack.create_or_select("trial", workspace)

    return make


def server(**labels: str) -> None:
    pulumi_hcloud.Server(
        "one",
        name="one",
        server_type="ccx13",
        image="debian-13",
        location="fsn1",
        labels=labels,
        user_data=pulumi.Output.secret("#cloud-config"),
    )


def shared() -> None:
    network = pulumi_hcloud.Network("net", name="net", ip_range="10.0.0.0/16")
    pulumi_hcloud.NetworkSubnet(
        "subnet",
        network_id=network.id.apply(int),
        type="cloud",
        network_zone="eu-central",
        ip_range="10.0.0.0/24",
    )
    rule = pulumi_hcloud.FirewallRuleArgs(
        direction="in", protocol="tcp", port="22", source_ips=["0.0.0.0/0", "::/0"]
    )
    pulumi_hcloud.Firewall("wall", name="wall", rules=[rule])
    pulumi_hcloud.SshKey("key", name="key", public_key=PUBLIC_KEY)
    pulumi_hcloud.PlacementGroup("apart", name="apart", type="spread")


def test_server_is_created_relabelled_and_deleted(
    api: SimulatedHetzner, stack_of: Callable[[Callable[[], None]], automation.Stack]
) -> None:
    stack_of(lambda: server(fleet="demo")).up()
    (made,) = api.state.servers.values()
    created = (made["id"], made["name"], made["labels"])
    stack_of(lambda: server(fleet="demo", expires="tomorrow")).up()
    (kept,) = api.state.servers.values()
    stack_of(lambda: None).up()

    assert created == (kept["id"], "one", {"fleet": "demo"})
    assert kept["labels"] == {"fleet": "demo", "expires": "tomorrow"}
    assert api.state.servers == {}


def test_shared_servers_resources_are_created_without_difference(
    api: SimulatedHetzner, stack_of: Callable[[Callable[[], None]], automation.Stack]
) -> None:
    stack_of(shared).up()

    # A change, or a difference that the provider reads back, would raise.
    stack_of(shared).preview(expect_no_changes=True, refresh=True)
    (network,) = api.state.resources["networks"].values()
    assert [subnet["ip_range"] for subnet in network["subnets"]] == ["10.0.0.0/24"]
    stack_of(lambda: None).up()
    kinds = ("networks", "firewalls", "ssh_keys", "placement_groups")
    assert [kind for kind in kinds if api.state.resources[kind]] == []
