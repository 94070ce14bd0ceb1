"""The policy of docs/how-to/run-on-aws.md allows what fleet and its program call, and no more."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.clouds.aws.machines import AwsMachines
from tests.builders import NOW
from tests.fakes.aws import PROVIDER, Amazon, note_calls
from tests.ports.aws_rig import REF, AwsRig, a_worker
from tests.ports.engines import quiet, skip_without_cli
from tests.rigs.process import ROOT
from tests.stacks.programs import accepted, declared
from tests.stacks.test_shared_parts import TEMPLATE

PAGE = ROOT / "docs/how-to/run-on-aws.md"
# What AWS asks for beside the call itself; who asks who it is needs no right.
WITH_IT = {
    "ec2:RunInstances": {
        "ec2:CreateTags",
        "iam:PassRole",
        "iam:CreateServiceLinkedRole",  # once in an account's life, on the spot market
    },
    "ec2:CreateLaunchTemplate": {"ec2:CreateTags"},
    "ec2:CreateSecurityGroup": {"ec2:CreateTags"},
    "iam:CreateRole": {"iam:TagRole"},
    "iam:CreateInstanceProfile": {"iam:TagInstanceProfile"},
}
FREE = {"sts:GetCallerIdentity"}


def document(name: str) -> dict[str, Any]:
    text = PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(rf"<!-- {name} -->\n```json\n(.*?)```", text, flags=re.DOTALL)
    found: dict[str, Any] = json.loads(block)
    return found


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def allowed() -> set[str]:
    statements = document("policy")["Statement"]
    return {action for each in statements for action in listed(each["Action"])}


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsRig]:
    skip_without_cli()
    monkeypatch.setenv("FLEET_AWS_DOUBLE", str(tmp_path))
    with Amazon() as amazon:
        yield AwsRig(tmp_path, amazon)


@pytest.mark.engine
def test_aws_policy_allows_exactly_the_calls_of_fleet(rig: AwsRig) -> None:
    template = TEMPLATE | {"ssh_from": ["192.0.2.0/24"]}
    base = REF.altered(name="debian.amazon", pool="")
    rig.engine(templates=[template]).up(base, [], quiet)
    rig.up(a_worker(1), a_worker(2, market="spot"))
    (one, two) = rig.listed()
    assert one.created_at is not None
    rig.cloud.extend([one.id], one.created_at)
    rig.cloud.console(one.id)
    rig.cloud.delete(two.id)
    rig.up()
    rig.engine().up(base, [], quiet)

    seen = set((rig.folder / "calls.log").read_text().split()) | rig.calls
    needed = seen | {right for call in seen for right in WITH_IT.get(call, ())}

    assert needed - FREE == allowed()
    assert rig.amazon.ask("describe_launch_templates")["LaunchTemplates"] == []


def test_policy_changes_only_labelled_or_own_objects() -> None:
    changing = [
        statement
        for statement in document("policy")["Statement"]
        if statement["Sid"] not in ("Look", "MakeItFromWhatIsThere")
    ]

    unbound = [
        statement["Sid"]
        for statement in changing
        if "Condition" not in statement
        and not all("/fleet/" in each for each in listed(statement["Resource"]))
    ]
    assert unbound == []


def test_aws_policy_permits_no_additional_rights_of_roles() -> None:
    dangerous = re.compile(r"iam:(Put|Attach|Update|CreatePolicy|SetDefault)|\*")

    assert [action for action in sorted(allowed()) if dangerous.search(action)] == []


def test_trust_policy_of_role_equals_that_of_the_page() -> None:
    resources = declared("aws", accepted("aws", workers=[], templates=[TEMPLATE]))

    (role,) = (each for each in resources if each.type == "aws:iam/role:Role")
    assert json.loads(role.inputs["assumeRolePolicy"]) == document("trust")
    assert role.inputs["path"] == "/fleet/"


def test_aws_client_calls_only_permitted_actions() -> None:
    calls: set[str] = set()
    with Amazon() as amazon:
        machines = AwsMachines(PROVIDER)
        note_calls(machines, calls)
        made = amazon.launch("demo-builders-0001")
        machines.list("demo")
        machines.extend([made], NOW)
        machines.delete(made)

    assert calls == {"ec2:DescribeInstances", "ec2:CreateTags", "ec2:TerminateInstances"}
    assert calls <= allowed()
