"""AWS as moto plays it, on the loopback, and what lies in its place."""

import atexit
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import httpx
import pytest

from fleet.clouds.aws.machines import AwsMachines
from fleet.queues.http import trusted
from fleet.schema.model import AwsProvider
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.process import ROOT

PROVIDER = AwsProvider.model_validate({"kind": "aws", "region": "eu-central-1"})
SECRET = "made-up-secret-access-key"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAMADEUPFORTESTS00",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""In an environment: made up, and no others are looked for."""


def aws_environment(endpoint: str) -> dict[str, str]:
    """Return an environment whose AWS is at an endpoint, with credentials that are made up."""
    return {"AWS_ENDPOINT_URL": endpoint, **CREDENTIALS, "AWS_MAX_ATTEMPTS": "1"}


@cache
def moto_address() -> str:
    """Return where moto plays AWS in this process; it is started once, and ends with it."""
    # moto would read its own table of some thousand images.
    os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    atexit.register(server.stop)
    host, port = server.get_host_and_port()
    return f"{host}:{port}"


def install_double(folder: Path) -> None:
    """Have the CLI find the double of Pulumi's provider in a folder of plugins."""
    launcher = folder / "pulumi-resource-aws"
    launcher.write_text(
        f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -u -m tests.fakes.aws_plugin "$@"\n'
    )
    launcher.chmod(0o755)


class _Environment:
    """Points this process at a loopback while it is entered."""

    def __init__(self) -> None:
        self._patch = pytest.MonkeyPatch()

    def use(self, endpoint: str) -> None:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            self._patch.delenv(name)
        for name, value in aws_environment(endpoint).items():
            self._patch.setenv(name, value)

    def restore(self) -> None:
        self._patch.undo()


class Amazon:
    """An account at AWS with nothing in it, played by moto in this process."""

    def __init__(self, endpoint: str = "") -> None:
        """`endpoint` is where moto is asked, if not where it always is."""
        self.endpoint = endpoint

    def __enter__(self) -> Self:
        self.endpoint = self.endpoint or f"http://{moto_address()}"
        self._environment = _Environment()
        self._environment.use(self.endpoint)
        return self

    def __exit__(self, *_: object) -> None:
        httpx.post(f"{self.endpoint}/moto-api/reset", verify=trusted()).raise_for_status()
        self._environment.restore()

    def launch(
        self,
        name: str,
        tags: Mapping[str, str] = MappingProxyType({}),
        *,
        fleet: str = "demo",
        type: str = "c7a.2xlarge",  # noqa: A002 - the word of fleet.yaml
    ) -> str:
        """Make an instance of pool builders, with these tags too, and return its id."""
        marks = {"fleet": fleet, "fleet:pool": "builders", "fleet:worker": name}
        specification = {"ResourceType": "instance", "Tags": tag_list({**marks, **tags})}
        made = self.ask(
            "run_instances",
            ImageId="ami-12345678",
            InstanceType=type,
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[specification],
        )
        return str(made["Instances"][0]["InstanceId"])

    def ask(self, operation: str, **arguments: object) -> Any:  # noqa: ANN401 - an answer of AWS
        """Call EC2 as anybody may."""
        client = _ec2(self.endpoint)
        try:
            return getattr(client, operation)(**arguments)
        finally:
            client.close()


@cache
def _ec2(endpoint: str) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
    """Return a client, which takes longer to make than to ask; closed, it can be asked again."""
    import boto3

    return boto3.client("ec2", region_name="eu-central-1", endpoint_url=endpoint)


class LyingAmazon(Loopback):
    """EC2 in the words of a test: it answers each question with the next of its answers."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(self._next)
        self._answers = list(answers)
        self._environment = _Environment()

    def __enter__(self) -> Self:
        self._environment.use(self.url)
        return super().__enter__()

    def __exit__(self, *reason: object) -> None:
        self._environment.restore()
        super().__exit__(*reason)

    def _next(self, _: Received) -> Answer:
        return self._answers.pop(0) if self._answers[1:] else self._answers[0]


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the API's form."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def refusal(code: str, status: int = 400, said: str = "said by the server") -> Answer:
    """Return what EC2 answers when it refuses."""
    errors = f"<Errors><Error><Code>{code}</Code><Message>{said}</Message></Error></Errors>"
    return _xml(f"<Response>{errors}<RequestID>1</RequestID></Response>", status)


def page(*ids: str, state: str = "running", following: str = "") -> Answer:
    """Return a page of instances of pool builders of fleet demo."""
    tag = "<item><key>{}</key><value>{}</value></item>"
    instances = "".join(
        f"<item><instanceId>{each}</instanceId><imageId>ami-1</imageId><instanceType>c7a.2xlarge"
        f"</instanceType><launchTime>2026-11-21T08:00:00.000Z</launchTime><instanceState><code>1"
        f"</code><name>{state}</name></instanceState><tagSet>{tag.format('fleet', 'demo')}"
        f"{tag.format('fleet:pool', 'builders')}{tag.format('fleet:worker', f'demo-{each}')}"
        "</tagSet></item>"
        for each in ids
    )
    more = f"<nextToken>{following}</nextToken>" if following else ""
    reservation = f"<item><instancesSet>{instances}</instancesSet></item>"
    listed = f"<reservationSet>{reservation}</reservationSet>{more}"
    return _xml(f"<DescribeInstancesResponse>{listed}</DescribeInstancesResponse>")


def _xml(body: str, status: int = 200) -> Answer:
    return Answer(status, body.encode(), {"Content-Type": "text/xml;charset=UTF-8"})


def note_calls(machines: AwsMachines, calls: set[str]) -> None:
    """Have every call of AWS go into a set, as SERVICE:OPERATION."""

    def note(model: Any, **_: object) -> None:  # noqa: ANN401 - botocore has no types
        calls.add(f"{model.service_model.service_name}:{model.name}")

    machines.session.events.register("before-call", note)
