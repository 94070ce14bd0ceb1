"""The contract of the port SharedStackEngine, over the fake and Hetzner's real provider."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.clouds.hcloud.machines import HcloudMachines, HcloudShared
from fleet.engines.projects import ProviderAccount
from fleet.engines.pulumi import PulumiBase
from fleet.errors import PlanRefused, SourceUnreachable, StackFailed
from fleet.model.facts import Base, SharedResource
from fleet.ports import SharedStackEngine, StackRef, StackStep
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from tests.fakes.shared_stack_engine import FakeSharedStackEngine
from tests.ports.engines import quiet
from tests.ports.hcloud_rig import skip_without_plugin

REF = StackRef(project="hcloud", name="debian.hetzner", provider="hetzner", pool="")
OURS = {"fleet": "debian"}
NETWORK = SharedResource(
    kind="network",
    name="debian-hetzner-network",
    inputs={"ip_range": "10.20.0.0/16", "zone": "eu-central", "labels": OURS},
)
RULE = {"direction": "in", "protocol": "tcp", "port": "22", "ips": ["192.0.2.0/24"]}
FIREWALL = SharedResource(
    kind="firewall", name="debian-hetzner-firewall", inputs={"rules": [RULE], "labels": OURS}
)
KEY = SharedResource(
    kind="ssh_key",
    name="debian-hetzner-key-ana",
    inputs={
        "public_key": "ssh-ed25519 "
        "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ",
        "labels": OURS,
    },
)
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIO3E7gNdm8pGqJp1cTj9P1FqKpuYFlQGzQ9iXqPjYV1H"
SPREAD = SharedResource(
    kind="placement_group",
    name="debian-hetzner-spread",
    inputs={"type": "spread", "labels": OURS},
)
PARTS = (FIREWALL, NETWORK, SPREAD, KEY)


@pytest.fixture
def api() -> Iterator[SimulatedHetzner]:
    with SimulatedHetzner() as simulated:
        yield simulated


def hetzner_base(folder: Path, api: SimulatedHetzner) -> PulumiBase:
    machines = HcloudMachines(api.token, base_url=api.endpoint)
    environment = {"HCLOUD_TOKEN": api.token, "HCLOUD_ENDPOINT": api.endpoint}
    return PulumiBase(
        f"file://{folder / 'state'}",
        folder / "home",
        lambda: "a passphrase for tests",
        ProviderAccount(machines, environment=lambda: environment),
        HcloudShared(api.token, base_url=api.endpoint).list,
    )


@pytest.fixture(params=["fake", pytest.param("hcloud", marks=pytest.mark.engine)])
def engine(
    request: pytest.FixtureRequest, tmp_path: Path, api: SimulatedHetzner
) -> SharedStackEngine:
    if request.param == "fake":
        return FakeSharedStackEngine()
    skip_without_plugin()
    return hetzner_base(tmp_path, api)


def read(engine: SharedStackEngine) -> Base:
    base = engine.read(REF)
    assert isinstance(base, Base), base
    return base


def test_additional_rule_updates_firewall_in_place(engine: SharedStackEngine) -> None:
    engine.up(REF, [FIREWALL], quiet)
    before = read(engine).ids
    wider = FIREWALL.altered(inputs=FIREWALL.inputs | {"rules": [RULE, RULE | {"port": "443"}]})

    (step,) = engine.preview(REF, [wider])
    engine.up(REF, [wider], quiet)

    assert (step.worker, step.operation) == (FIREWALL.name, "update")
    assert read(engine).ids == before


@pytest.mark.engine
def test_unchangeable_shared_resource_is_replaced_under_its_name(
    tmp_path: Path, api: SimulatedHetzner
) -> None:
    skip_without_plugin()
    base = hetzner_base(tmp_path, api)
    base.up(REF, [NETWORK, KEY], quiet)
    before = read(base).ids
    ranges, keys = {"ip_range": "10.30.0.0/16"}, {"public_key": OTHER_KEY}
    network = NETWORK.altered(inputs=NETWORK.inputs | ranges)
    key = KEY.altered(inputs=KEY.inputs | keys)

    base.up(REF, [network, key], quiet)

    after, (made,) = read(base), api.state.resources["networks"].values()
    assert after.laid
    assert after.ids.keys() == before.keys()
    assert not set(after.ids.values()) & set(before.values())
    assert [each["ip_range"] for each in made["subnets"]] == ["10.30.0.0/16"]


@pytest.mark.engine
def test_shared_resources_with_lost_state_are_adopted_by_label(
    tmp_path: Path, api: SimulatedHetzner
) -> None:
    skip_without_plugin()
    first = hetzner_base(tmp_path / "lost", api)
    first.up(REF, PARTS, quiet)

    again = hetzner_base(tmp_path / "new", api)
    again.up(REF, PARTS, quiet)

    assert read(again).ids == read(first).ids
    assert again.preview(REF, PARTS) == ()


def test_undeletable_leftovers_stop_change_of_base(tmp_path: Path, api: SimulatedHetzner) -> None:
    def refuse(*_: object) -> None:
        raise SourceUnreachable("no connection")

    state = tmp_path / "state/.pulumi/stacks/fleet-hcloud" / f"{REF.name}.json"
    state.parent.mkdir(parents=True)
    state.write_text('{"checkpoint": {"latest": {"resources": []}}}')
    account = ProviderAccount(HcloudMachines(api.token), clear=refuse)
    base = PulumiBase(
        f"file://{tmp_path / 'state'}", tmp_path / "home", lambda: "x", account, lambda _: {}
    )

    with pytest.raises(StackFailed, match=rf"{REF.name}.*no connection"):
        base.up(REF, PARTS, quiet)


def test_base_change_after_its_preview_is_refused(tmp_path: Path, api: SimulatedHetzner) -> None:
    base = hetzner_base(tmp_path, api)
    base.preview(REF, PARTS)
    state = tmp_path / "state/.pulumi/stacks/fleet-hcloud" / f"{REF.name}.json"
    state.parent.mkdir(parents=True)
    latest = {"manifest": {"time": "2026-11-21T08:00:00Z"}, "resources": []}
    state.write_text(json.dumps({"checkpoint": {"latest": latest}}))

    with pytest.raises(PlanRefused, match=r"debian\.hetzner"):
        base.up(REF, PARTS, quiet)


def test_shared_resources_are_created_once_and_deleted_alone(engine: SharedStackEngine) -> None:
    assert engine.read(REF) is None
    engine.up(REF, PARTS, quiet)

    base = read(engine)
    assert (base.parts, base.laid, base.interrupted) == (PARTS, True, False)
    assert base.ids.keys() == {part.key for part in PARTS}
    assert all(base.ids.values())
    assert engine.preview(REF, PARTS) == engine.up(REF, PARTS, quiet) == ()
    assert read(engine).ids == base.ids

    preview = engine.preview(REF, [NETWORK])
    engine.up(REF, [NETWORK], quiet)

    gone = sorted(part.name for part in PARTS if part != NETWORK)
    assert preview == tuple(StackStep(worker=name, operation="delete") for name in gone)
    assert read(engine).ids == {NETWORK.key: base.ids[NETWORK.key]}


OTHER_FIREWALL = FIREWALL.altered(inputs=FIREWALL.inputs | {"rules": [RULE | {"port": "443"}]})


def refusal(method: str, path: str, status: int = 422, *, done: bool = False) -> Fault:
    """Return a refusal of one call."""
    return Fault(method, path, status=status, code="invalid_input", done=done, count=1)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("first", "part", "fault"),
    [
        (FIREWALL, OTHER_FIREWALL, refusal("POST", "/firewalls/*")),
        (None, NETWORK, refusal("POST", "/networks/*")),
        (None, NETWORK, refusal("POST", "/networks/*", done=True)),
        (None, FIREWALL, refusal("GET", "/firewalls/*", 400)),
    ],
    ids=["a change fails", "it gets no subnet", "the reply is lost", "it is not read back"],
)
def test_base_is_incomplete_until_failed_change_succeeds(
    tmp_path: Path,
    api: SimulatedHetzner,
    first: SharedResource | None,
    part: SharedResource,
    fault: Fault,
) -> None:
    skip_without_plugin()
    base = hetzner_base(tmp_path, api)
    if first is not None:
        base.up(REF, [first], quiet)
    api.fail(fault)

    with pytest.raises(StackFailed):
        base.up(REF, [part], quiet)
    failed = read(base)
    base.up(REF, [part], quiet)

    assert (failed.parts, list(failed.ids), failed.laid) == ((part,), [part.key], False)
    assert (read(base).ids, read(base).laid) == (failed.ids, True)
    assert base.preview(REF, [part]) == ()
