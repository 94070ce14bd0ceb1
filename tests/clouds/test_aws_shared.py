"""What a killed run left of a launch template is deleted by mark and name, and nothing else."""

from collections.abc import Iterator

import boto3
import pytest

from fleet.clouds.aws.machines import AwsShared
from fleet.errors import SourceUnreachable
from tests.fakes.aws import PROVIDER, Amazon, LyingAmazon, refusal, tag_list
from tests.rigs.loopback import Answer

NAME = "debian-amazon-0123"


@pytest.fixture
def amazon() -> Iterator[Amazon]:
    with Amazon() as account:
        yield account


def make_parts(amazon: Amazon, fleet: str = "debian", name: str = NAME) -> None:
    """Make a template and all that comes with it, as stacks/aws does."""
    tags = tag_list({"fleet": fleet})
    group = {"ResourceType": "security-group", "Tags": tags}
    amazon.ask("create_security_group", GroupName=name, Description="x", TagSpecifications=[group])
    amazon.ask(
        "create_launch_template",
        LaunchTemplateName=name,
        LaunchTemplateData={"KeyName": "ops"},
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
    )
    iam = boto3.client("iam", region_name=PROVIDER.region)
    iam.create_role(RoleName=name, Path="/fleet/", AssumeRolePolicyDocument="{}", Tags=tags)
    iam.create_instance_profile(InstanceProfileName=name, Path="/fleet/", Tags=tags)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)


def parts(amazon: Amazon) -> list[str]:
    """Return the names of all parts that exist, each with its kind."""
    iam = boto3.client("iam", region_name=PROVIDER.region)
    groups = amazon.ask("describe_security_groups")["SecurityGroups"]
    templates = amazon.ask("describe_launch_templates")["LaunchTemplates"]
    return sorted(
        [
            *(f"group {each['GroupName']}" for each in groups if each["GroupName"] != "default"),
            *(f"template {each['LaunchTemplateName']}" for each in templates),
            *(f"role {each['RoleName']}" for each in iam.list_roles()["Roles"]),
            *(
                f"profile {each['InstanceProfileName']}"
                for each in iam.list_instance_profiles()["InstanceProfiles"]
            ),
        ]
    )


def clear(*known: str) -> None:
    AwsShared(PROVIDER.region).clear("debian", NAME, known)


KINDS = ("group", "profile", "role", "template")


@pytest.mark.parametrize(
    ("fleet", "name", "known", "kept"),
    [
        ("debian", NAME, (), ()),
        ("debian", NAME, (f"{NAME}-group", NAME), ("group", "template")),
        ("other", NAME, (), KINDS),
        ("debian", f"{NAME}4", (), KINDS),
    ],
)
def test_clear_deletes_only_own_parts_missing_from_stack(
    amazon: Amazon, fleet: str, name: str, known: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    clear()
    make_parts(amazon, fleet, name)

    clear(*known)

    assert parts(amazon) == [f"{kind} {name}" for kind in kept]


def test_used_placement_group_keeps_all_parts() -> None:
    groups = b"<R><securityGroupInfo><item><groupId>sg-1</groupId></item></securityGroupInfo></R>"
    one_group = Answer(200, groups, {"Content-Type": "text/xml"})
    amazon = LyingAmazon(one_group, refusal("DependencyViolation"))
    with amazon, pytest.raises(SourceUnreachable, match=r"DeleteSecurityGroup.*refused"):
        clear()

    assert len(amazon.received) == 2


def test_clear_fails_when_aws_is_unreachable() -> None:
    with (
        LyingAmazon(refusal("ServiceFailure", 500)),
        pytest.raises(SourceUnreachable, match=r"GetInstanceProfile.*refused"),
    ):
        clear(f"{NAME}-group", NAME)
    with LyingAmazon(refusal("AccessDenied", 403)):  # a forbidden name counts as missing
        clear(f"{NAME}-group", NAME)
