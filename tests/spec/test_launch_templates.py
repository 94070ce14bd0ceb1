"""What machines at AWS are made from follows from fleet.yaml, by names alone."""

from typing import Any

import pytest

from fleet.launch_templates import settings_of, template_of
from fleet.schema.model import Fleet, Pool
from tests.builders import a_fleet, a_pool

NETWORK = {"vpc": "vpc-0a1b", "subnet": "subnet-0a1b"}


def at_aws(machine: Any = "c7a.8xlarge", **keys: object) -> Fleet:  # noqa: ANN401 - as in fleet.yaml
    provider = {"kind": "aws", "region": "eu-central-1", **keys}
    pool = a_pool(provider="amazon", machine=machine)
    return a_fleet(providers={"amazon": provider}, pools={"builders": pool})


def settings(fleet: Fleet) -> dict[str, str]:
    pool = fleet.pools["builders"]
    assert isinstance(pool, Pool)
    return settings_of(fleet, pool)


def test_machines_are_made_from_the_template_of_their_account() -> None:
    fleet = at_aws()

    assert settings(fleet) == {"template": template_of(fleet, "amazon")["name"]}


def test_a_template_is_named_after_its_fleet_its_account_and_its_content() -> None:
    template = template_of(at_aws(), "amazon")

    assert template["name"].rpartition("-")[0] == f"{at_aws().fleet}-amazon"
    assert template["labels"] == {"fleet": at_aws().fleet}


@pytest.mark.parametrize("change", [{"network": NETWORK}, {"key_pair": "ops"}])
def test_another_content_is_another_template(change: dict[str, object]) -> None:
    assert settings(at_aws(**change))["template"] != settings(at_aws())["template"]


def test_who_may_reach_machines_outdates_none_of_them() -> None:
    opened = at_aws(ssh_from=["192.0.2.0/24"])

    assert settings(opened) == settings(at_aws())
    assert template_of(opened, "amazon")["ssh_from"] == ["192.0.2.0/24"]


def test_machines_stand_in_the_subnet_that_is_named() -> None:
    assert settings(at_aws(network=NETWORK))["subnet"] == "subnet-0a1b"


@pytest.mark.parametrize(
    ("machine", "disk"),
    [
        ({"type": "c7a.8xlarge", "disk": "280GiB"}, "280"),
        ({"type": "c7a.8xlarge", "disk": "280GiB", "swap": "64GiB"}, "344"),
        ({"type": "c7a.8xlarge", "disk": "100MiB"}, "1"),
        ({"type": "c7a.8xlarge"}, None),
    ],
)
def test_a_disk_holds_what_is_asked_for_and_the_swap(
    machine: dict[str, str], disk: str | None
) -> None:
    assert settings(at_aws(machine)).get("disk") == disk


def test_another_provider_has_no_launch_template() -> None:
    with pytest.raises(TypeError, match="is of kind hcloud, not aws"):
        template_of(a_fleet(), "hetzner")
