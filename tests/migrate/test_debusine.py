"""`fleet import debusine`: what a real 0.16.2 lists, and what only the server knows."""

import pytest

from fleet.migrate.from_debusine import import_debusine
from fleet.migrate.reading import Imported
from fleet.schema.model import ExistingImage, HcloudProvider, MachineSettings, Pool
from tests.builders.sentences import tells
from tests.migrate.reading import fleet_of, said, wrong
from tests.rigs.process import ROOT

RECORDED = ROOT / "tests/fixtures/debusine-0.16.2"


def recorded(name: str) -> Imported:
    return import_debusine("pools.yaml", (RECORDED / name).read_bytes(), "demo")


def a_pool_of(imported: Imported, name: str) -> Pool:
    pool = fleet_of(imported).pools[name]
    assert isinstance(pool, Pool)
    return pool


def of_text(specifications: str, limits: str = "{}") -> Imported:
    text = (
        f"- {{name: p, provider_account: a, limits: {limits}, specifications: {specifications}}}"
    )
    return import_debusine("pools.yaml", text.encode(), "demo")


def test_pool_at_hetzner_keeps_its_type_image_and_architecture() -> None:
    found = recorded("worker_pool-list.yaml")
    fleet = fleet_of(found)
    pool = a_pool_of(found, "hetzner-arm64")

    assert isinstance(pool.machine, MachineSettings)
    assert pool.machine.type == "cax21"
    image = fleet.images[pool.image]
    assert isinstance(image, ExistingImage)
    assert (image.existing, image.architecture) == ({"hetzner-account": "debian-13"}, "arm64")
    provider = fleet.providers[pool.provider]
    assert isinstance(provider, HcloudProvider)
    assert provider.location == "fsn1"


def test_limits_are_kept_or_listed() -> None:
    pool = a_pool_of(recorded("worker_pool-list.yaml"), "dummy-amd64")
    idle = a_pool_of(recorded("worker_pool-list-aws.yaml"), "hetzner-amd64")

    assert (pool.workers.max, idle.retire.idle_after) == (20, 900)
    assert any(
        "1000 machine hours" in each
        for each in said(recorded("worker_pool-list.yaml"), "no-equivalent")
    )


def test_disabled_pool_is_paused() -> None:
    assert a_pool_of(recorded("worker_pool-list-aws.yaml"), "hetzner-amd64").mode == "pause"


def test_pool_at_aws_keeps_its_type_disk_swap_and_market() -> None:
    machine = a_pool_of(recorded("worker_pool-list-aws.yaml"), "aws-big").machine

    assert isinstance(machine, MachineSettings)
    assert (machine.type, machine.disk, machine.swap) == ("c7a.8xlarge", 280 * 1024, 64 * 1024)
    assert machine.market == ["spot"]


def test_values_known_only_to_server_are_to_do() -> None:
    told = " ".join(said(recorded("worker_pool-list-aws.yaml"), "to-do"))

    for word in ("region", "tags", "token", "rate", "workers.max"):
        assert word in told


def test_machine_of_unknown_type_is_only_observed() -> None:
    found = of_text("{provider_type: hetzner, server_type: xx1, image_name: i}")

    assert a_pool_of(found, "p").mode == "observe"
    assert any(tells(each, "pool p", "`mode: observe`") for each in said(found, "to-do"))


def test_requirements_without_on_demand_price_are_only_observed() -> None:
    found = of_text(
        "{provider_type: aws, instance_market_type: on-demand, launch_templates: "
        "[{ImageId: ami-1, InstanceRequirements: {VCpuCount: {Min: 8}, MemoryMiB: {Min: 16384}}}]}"
    )

    assert a_pool_of(found, "p").mode == "observe"


def test_requirements_in_place_of_a_type_are_the_figures() -> None:
    found = of_text(
        "{provider_type: aws, launch_templates: [{ImageId: ami-1, KeyName: k, "
        "InstanceRequirements: {VCpuCount: {Min: 8}, MemoryMiB: {Min: 16384}}}, {ImageId: ami-2}]}"
    )

    machine = a_pool_of(found, "p").machine
    assert isinstance(machine, MachineSettings)
    assert (machine.cores, machine.memory) == (8, 16384)
    told = " ".join(said(found, "no-equivalent"))
    assert "KeyName: k" in told
    assert "template" in told


def test_two_locations_of_one_account_are_two_providers() -> None:
    text = "".join(
        f"- {{name: {place}, provider_account: a, specifications: {{provider_type: hetzner, "
        f"server_type: ccx33, image_name: i, location: {place}}}}}\n"
        for place in ("fsn1", "nbg1")
    )

    fleet = fleet_of(import_debusine("pools.yaml", text.encode(), "demo"))

    assert list(fleet.providers) == ["a", "a-2"]


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        (import_debusine("p", b"{}", "demo"), "p:1:1: wrong-type"),
        (import_debusine("p", b"", "demo"), "p:1:1: wrong-type"),
        (import_debusine("p", b"- 1", "demo"), "p:1:3: wrong-type"),
        (import_debusine("p", b"\xff", "demo"), "p:1:1: not-text"),
        (of_text("{provider_type: gcp}"), "pools.yaml:1:78: wrong-value"),
        (
            of_text("{provider_type: hetzner}"),
            "pools.yaml:1:62: missing-key",
        ),
        (of_text("{provider_type: aws}"), "pools.yaml:1:62: missing-key"),
        (
            of_text("{provider_type: dummy}", "{max_active_instances: many}"),
            "pools.yaml:1:65: wrong-type",
        ),
    ],
)
def test_yaml_that_is_not_a_listing_is_refused(found: Imported, finding: str) -> None:
    assert wrong(found)[0].startswith(finding)


def test_renamed_accounts_and_images_are_reported() -> None:
    long = "debian.infrastructure.hetzner.production.account"
    image = "Debian 13 with everything that builds need"
    specifications = f"{{provider_type: hetzner, server_type: cx33, image_name: {image}}}"
    text = (
        f"- {{name: p, provider_account: {long}, limits: {{}}, specifications: {specifications}}}"
    )

    found = import_debusine("pools.yaml", text.encode(), "demo")

    named, account = said(found, "renamed")
    assert "provider account" in account
    assert image in named
    for each in (account, named):
        assert "31" in each
    fleet_of(found)


def test_values_shared_by_pools_are_in_templates() -> None:
    specifications = "{provider_type: hetzner, server_type: cx33, image_name: debian-13}"
    item = "- {{name: builder-{}, provider_account: hz, limits: {{}}, specifications: {}}}\n"
    text = "".join(item.format(number, specifications) for number in range(6))

    found = import_debusine("pools.yaml", text.encode(), "demo")

    assert str(found.text).count("image: debian-13\n") == 1
    assert str(found.text).endswith("  builder-5:\n    extends: [debusine]\n")
    pools = fleet_of(found).pools
    assert pools["builder-0"] == pools["builder-5"] == a_pool_of(found, "builder-3")


@pytest.mark.parametrize(
    ("written", "idle_after", "at", "kinds"),
    [
        ("{max_idle_seconds: 0}", 1, "once", ["changed"]),
        ("{max_idle_seconds: null}", 3600, None, ["to-do"]),
        ("{max_idle_seconds: 1}", 1, None, []),
        ("{}", 3600, None, []),
    ],
)
def test_idle_limit_of_zero_becomes_immediate_and_is_reported(
    written: str, idle_after: int, at: str | None, kinds: list[str]
) -> None:
    imported = of_text(
        "{provider_type: hetzner, server_type: ccx33, image_name: debian-13, location: fsn1}",
        written,
    )

    retire = a_pool_of(imported, "p").retire
    told = [each.kind for each in imported.changes if "max_idle_seconds" in each.what]
    assert (retire.idle_after, retire.at, told) == (idle_after, at, kinds)


def test_unknown_keys_of_a_listing_have_no_equivalent() -> None:
    found = of_text("{provider_type: dummy, colour: [a, {b: null}]}", "{most_machines: 3}")

    told = said(found, "no-equivalent")
    assert any(tells(each, "limit", "most_machines: 3") for each in told)
    assert any(tells(each, "colour: [a, {b: null}]") for each in told)
    assert "# no equivalent: colour: [a, {b: null}]" in str(found.text)


def test_launch_template_of_wrong_types_is_refused() -> None:
    found = of_text(
        "{provider_type: aws, launch_templates: [{ImageId: a, root_device_size: big, "
        "InstanceRequirements: {VCpuCount: {Min: -1}}}]}"
    )

    assert [each.split(": ")[1] for each in wrong(found)] == ["wrong-type", "wrong-value"]
