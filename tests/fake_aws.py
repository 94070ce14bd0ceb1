"""This module holds AWS as moto plays it, on the loopback, and what lies in its place."""

import os
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self

import httpx
import pytest

from fleet.providers.aws import AwsMachines
from fleet.schema.model import AwsProvider
from tests.loopback import Answer, Loopback, Received

PROVIDER = AwsProvider.model_validate({"kind": "aws", "region": "eu-central-1"})
SECRET = "made-up-secret-access-key"


def aws_environment(endpoint: str) -> dict[str, str]:
    """Return an environment whose AWS is at an endpoint, with credentials that are made up."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "AKIAMADEUPFORTESTS00",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }


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

    def __enter__(self) -> Self:
        # moto would read its own table of some thousand images.
        os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        self._environment = _Environment()
        self._environment.use(self.endpoint)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        httpx.post(f"{self.endpoint}/moto-api/reset").raise_for_status()
        self._environment.restore()
        self._server.stop()

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
        import boto3

        client = boto3.client("ec2", region_name="eu-central-1")
        try:
            return getattr(client, operation)(**arguments)
        finally:
            client.close()


class LyingAmazon(Loopback):
    """EC2 in the words of a test: it answers each question with the next of its answers."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(self._next)
        self._answers = list(answers)
        self._environment = _Environment()

    def __enter__(self) -> Self:
        self._environment.use(self.url)
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._environment.restore()
        super().__exit__(kind, error, traceback)

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
