"""Tickets whose machines are instances of AWS: made, found ready, given out, closed early."""

import base64
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.fakes.aws import Amazon, aws_environment, install_double
from tests.ports.engines import skip_without_cli
from tests.rigs.amazon import NETWORK, PORT, BootingAmazon
from tests.rigs.booting import Greeter
from tests.walks.conftest import Play
from tests.walks.test_tickets_at_hetzner import settled
from tests.walks.walking import Walk

pytestmark = pytest.mark.engine
GIB = 1024**3


@pytest.fixture
def amazon(walk: Walk) -> Iterator[Amazon]:
    """Return AWS as moto plays it at the time of the story, with a network and a key pair."""
    skip_without_cli()
    try:
        Greeter("127.19.0.1", PORT).close()
    except OSError as error:
        pytest.skip(f"tickets at AWS are NOT TESTED: port {PORT} cannot be had here ({error})")
    plugins = walk.folder / "plugins"
    plugins.mkdir()
    install_double(plugins)
    with BootingAmazon(walk.now) as moto, Amazon(moto.endpoint) as amazon:
        vpc = amazon.ask("create_vpc", CidrBlock=NETWORK)["Vpc"]["VpcId"]
        subnet = amazon.ask("create_subnet", VpcId=vpc, CidrBlock=NETWORK)["Subnet"]["SubnetId"]
        amazon.ask("create_key_pair", KeyName="copr-backend")
        walk.words |= {"vpc-0123abcd": vpc, "subnet-0123abcd": subnet}
        walk.environment |= aws_environment(moto.endpoint) | {
            "FLEET_AWS_DOUBLE": str(walk.folder),
            "FLEET_PASS": "a passphrase for tests",
            "FLEET_PULUMI_PLUGINS": str(plugins),
            # pulumi_aws warns of what it imports itself.
            "PYTHONWARNINGS": "error,ignore:aws.ec2/encryptioncontrol:DeprecationWarning",
        }
        yield amazon


def settled_ids(text: str) -> str:
    """Return a page without what AWS chooses: addresses, and the network that a name is of."""
    text = re.sub(r"\b127\.19\.\d+\.\d+\b", "ADDRESS", text)
    return settled(re.sub(r"\bec-amazon-[0-9a-f]{8}\b", "ec-amazon-SHARED", text))


def test_walk_of_a_ticket_at_aws(walk: Walk, play: Play, amazon: Amazon) -> None:
    play("a-ticket-at-aws", settled_ids)

    reservations = amazon.ask("describe_instances")["Reservations"]
    instances = [each for part in reservations for each in part["Instances"]]
    assert [each["State"]["Name"] for each in instances] == ["terminated"] * 2
    assert {each["KeyName"] for each in instances} == {"copr-backend"}
    assert walk.json("fleet status --json")["workers"] == []
    for each in instances:
        told = amazon.ask(
            "describe_instance_attribute", InstanceId=each["InstanceId"], Attribute="userData"
        )
        swap = {"filename": "/swap.img", "size": 64 * GIB, "maxsize": 64 * GIB}
        assert yaml.safe_load(base64.b64decode(told["UserData"]["Value"])) == {"swap": swap}
