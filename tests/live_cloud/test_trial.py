"""One machine lives and goes: at a double of AWS; with live-aws and live-hcloud for real."""

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest

from fleet.clouds.aws.machines import AwsMachines
from fleet.clouds.hcloud.machines import HcloudMachines
from fleet.engines.projects import ProviderAccount
from fleet.model.facts import WorkerInputs
from fleet.planner.shared_stacks import parts_of
from fleet.schema.model import AwsProvider, Fleet, HcloudProvider
from tests.builders import a_fleet
from tests.fakes.aws import Amazon
from tests.live_cloud.trial import LONGEST, TooDear, Trial, bounded, cleaned_up
from tests.ports.aws_rig import AwsRig
from tests.ports.engines import skip_without_cli

DEBIAN = "/aws/service/debian/release/12/latest/amd64"


def a_worker(fleet: str, machine_type: str, image: str, **settings: str) -> WorkerInputs:
    name = f"{fleet}-trial-1"
    labels = {"fleet": fleet, "pool": "trial", "worker": name, "digest": "0123"}
    return WorkerInputs(
        name=name, type=machine_type, image=image, labels=labels, settings=settings
    )


def an_aws_fleet(region: str = "eu-central-1") -> Fleet:
    return a_fleet(
        fleet=f"trial-{secrets.token_hex(4)}",
        money={"currency": "USD"},
        providers={"live": {"kind": "aws", "region": region}},
        pools={},
        budgets={},
    )


def an_aws_trial(fleet: Fleet, image: str, folder: Path) -> Trial:
    provider = fleet.providers["live"]
    assert isinstance(provider, AwsProvider)
    (template,) = parts_of(fleet, "live")
    machine_type = os.environ.get("FLEET_LIVE_TYPE", "c7a.2xlarge")
    worker = a_worker(fleet.fleet, machine_type, image, template=template.name, disk="10")
    cloud = AwsMachines(provider)
    account = ProviderAccount(cloud, {"aws:region": provider.region})
    base = {"templates": [{"name": template.name, **template.inputs}]}
    return Trial(cloud, account, worker, folder, base=base)


def double(stack: ExitStack, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    skip_without_cli()
    monkeypatch.setenv("FLEET_AWS_DOUBLE", str(folder))
    AwsRig(folder, stack.enter_context(Amazon()))
    return an_aws_trial(an_aws_fleet(), "ami-12345678", folder)


def aws(stack: ExitStack, folder: Path, _: pytest.MonkeyPatch) -> Trial:
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "eu-central-1")
    fleet = an_aws_fleet(region)
    ssm = boto3.client("ssm", region_name=region)
    image = ssm.get_parameter(Name=DEBIAN)["Parameter"]["Value"]
    ssm.close()
    trial = an_aws_trial(fleet, image, folder)
    stack.enter_context(bounded(fleet, "live", trial.worker.type))
    return trial


def hcloud(stack: ExitStack, folder: Path, _: pytest.MonkeyPatch) -> Trial:
    token = os.environ["HCLOUD_TOKEN"]
    declared = {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}
    name = f"trial-{secrets.token_hex(4)}"
    fleet = a_fleet(fleet=name, providers={"live": declared}, pools={}, budgets={})
    provider = fleet.providers["live"]
    assert isinstance(provider, HcloudProvider)
    machine_type = os.environ.get("FLEET_LIVE_TYPE", "ccx13")
    worker = a_worker(name, machine_type, "debian-12", location=provider.location)
    stack.enter_context(bounded(fleet, "live", machine_type))
    cloud = HcloudMachines(token)
    return Trial(
        cloud, ProviderAccount(cloud, environment=lambda: {"HCLOUD_TOKEN": token}), worker, folder
    )


@pytest.fixture(
    params=[
        pytest.param(double, id="double", marks=pytest.mark.engine),
        pytest.param(aws, id="aws", marks=pytest.mark.live_aws),
        pytest.param(hcloud, id="hcloud", marks=pytest.mark.live_hcloud),
    ]
)
def trial(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Trial]:
    with ExitStack() as stack:
        made: Trial = request.param(stack, tmp_path, monkeypatch)
        yield made


def test_trial_machine_gets_an_expiry_and_is_deleted(trial: Trial) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    with cleaned_up(trial):
        trial.up(trial.worker)
        (machine,) = trial.machines()
        trial.cloud.extend([machine.id], until)
        (vouched,) = trial.machines()
        difference = trial.engine().preview(trial.ref, [trial.worker])

    assert (machine.name, machine.digest) == (trial.worker.name, "0123")
    assert vouched.expires == until
    assert difference == ()
    assert trial.machines() == ()


def test_failed_trial_leaves_no_machine(trial: Trial) -> None:
    def stumble() -> None:
        with cleaned_up(trial):
            trial.up(trial.worker)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stumble()

    assert trial.machines() == ()


@pytest.mark.parametrize(("machine_type", "says"), [("c7a.8xlarge", "0.313 USD"), ("x9", "price")])
def test_trial_above_cost_ceiling_is_refused(machine_type: str, says: str) -> None:
    with pytest.raises(TooDear, match=says), bounded(an_aws_fleet(), "live", machine_type):
        raise AssertionError("it was to be refused")


def test_trial_has_a_time_limit() -> None:
    with bounded(an_aws_fleet(), "live", "c7a.2xlarge"):
        left, _ = signal.getitimer(signal.ITIMER_REAL)
    afterwards, _ = signal.getitimer(signal.ITIMER_REAL)

    assert 0 < left <= LONGEST.total_seconds()
    assert afterwards == 0
