"""Play Pulumi's AWS provider for the real engine, over what AWS_ENDPOINT_URL names.

Its official plugin cannot be had everywhere. This double makes the same calls as far as they are
known from its source, also those that only read; it proves the program and the engine, not the
real provider's own diff and retries. `FLEET_AWS_DOUBLE` is a folder: faults.json says what goes
wrong, calls.log gets every call. Run by the CLI as `pulumi-resource-aws`.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError
from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.server import main as serve

from tests.fakes.aws_words import Inputs, asked_for, rule, tagged, tags_of

FOLDER = Path(os.environ.get("FLEET_AWS_DOUBLE", "."))


class Double(api.Provider):
    """Makes, reads and deletes what stacks/aws declares."""

    def __init__(self) -> None:
        self._region = ""

    async def configure(self, request: api.ConfigureRequest) -> api.ConfigureResponse:
        """Take the region, and see who we are, as the real one does."""
        given = _plain(request.args)
        self._region = given.get("region") or request.variables["aws:config:region"]
        await self._in_thread(lambda: self._aws("sts").get_caller_identity())
        return await super().configure(request)

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        """Name what differs; all but tags means another resource."""
        before, after = _plain(request.old_state), _plain(request.new_inputs)
        ignored = set(request.ignore_changes)
        changed = sorted(
            key
            for key in before.keys() | after.keys()
            if key not in ignored and before.get(key) != after.get(key)
        )
        disks = [{**each.get("rootBlockDevice", {}), "tags": None} for each in (before, after)]
        retagged = ("rootBlockDevice",) if disks[0] == disks[1] else ()
        replaces = [key for key in changed if key not in ("tags", "ingress", *retagged)]
        return api.DiffResponse(changes=bool(changed), diffs=changed, replaces=replaces)

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        """Make it; in a preview, nothing."""
        if request.preview:
            return api.CreateResponse(resource_id="", properties=request.properties)
        kind = self._kind(request.urn)
        made = await self._in_thread(lambda: kind.create(_plain(request.properties)))
        return api.CreateResponse(resource_id=made, properties=request.properties)

    async def read(self, request: api.ReadRequest) -> api.ReadResponse:
        """Return what is there; an empty id when it is gone."""
        kind = self._kind(request.urn)
        found = await self._in_thread(lambda: kind.read(request.resource_id))
        if found is None:
            return api.ReadResponse(resource_id="")
        values = {key: _value(each) for key, each in found.items()}
        return api.ReadResponse(request.resource_id, values, dict(values))

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        """Change nothing but in a preview: fleet asks for no update."""
        if not request.preview:
            raise NotImplementedError(f"{request.urn}: the double changes nothing in place")
        return api.UpdateResponse(properties=request.news)

    async def delete(self, request: api.DeleteRequest) -> None:
        """Delete it; what is already gone is fine."""
        kind = self._kind(request.urn)
        await self._in_thread(lambda: kind.delete(request.resource_id))

    def _kind(self, urn: str) -> "Instances | Groups | Roles | Profiles | Templates":
        kinds: dict[str, type[Instances | Groups | Roles | Profiles | Templates]] = {
            "aws:ec2/instance:Instance": Instances,
            "aws:ec2/securityGroup:SecurityGroup": Groups,
            "aws:iam/role:Role": Roles,
            "aws:iam/instanceProfile:InstanceProfile": Profiles,
            "aws:ec2/launchTemplate:LaunchTemplate": Templates,
        }
        return kinds[urn.split("::")[2]](self._aws)

    def _aws(self, service: str) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
        client = boto3.client(service, region_name=self._region)  # type: ignore[call-overload, unused-ignore]
        client.meta.events.register("before-call", _note)
        return client

    async def _in_thread(self, act: Callable[[], Any]) -> Any:  # noqa: ANN401 - what `act` returns
        try:
            return await asyncio.to_thread(act)
        except ClientError as error:
            told = error.response["Error"]
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            raise RuntimeError(
                f"operation error {error.operation_name}, https response error StatusCode: "
                f"{status}, api error {told['Code']}: {told['Message']}"
            ) from None


class Kind:
    """What can be done with one type of resource."""

    def __init__(self, aws: Callable[[str], Any]) -> None:
        self.ec2, self.iam = aws("ec2"), aws("iam")


class Instances(Kind):
    """EC2 instances."""

    def create(self, inputs: Inputs) -> str:
        """Launch one from its template; faults.json may say otherwise."""
        faults = _faults()
        name, market = inputs["tags"]["Name"], inputs.get("instanceMarketOptions")
        code = faults.get("refuse", {}).get(name) or (faults.get("spot") if market else None)
        if code:
            raise RuntimeError(f"api error {code}: there is none of it, says the double")
        self.ec2.describe_images(Filters=[{"Name": "image-id", "Values": [inputs["ami"]]}])
        made = self.ec2.run_instances(MinCount=1, MaxCount=1, **asked_for(inputs))
        if name == faults.get("kill_after"):
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(1)
        if name == faults.get("lose_answer_of"):
            raise RuntimeError("the connection broke off, says the double")
        machine = str(made["Instances"][0]["InstanceId"])
        if self.read(machine) is None:
            raise RuntimeError(f"waiting for EC2 Instance ({machine}) create: it is terminated")
        return machine

    def read(self, machine: str) -> Inputs | None:
        """Return what stands at AWS, in the program's words."""
        chosen = [{"Name": "instance-id", "Values": [machine]}]
        reservations = self.ec2.describe_instances(Filters=chosen)["Reservations"]
        found = [each for part in reservations for each in part["Instances"]]
        if not found or found[0]["State"]["Name"] == "terminated":
            return None
        there = found[0]
        self.ec2.describe_instance_types(InstanceTypes=[there["InstanceType"]])
        tags = {tag["Key"]: tag["Value"] for tag in there["Tags"]}
        return {
            "ami": there["ImageId"],
            "instanceType": there["InstanceType"],
            "launchTemplate": self._template(tags),
            "rootBlockDevice": self._disk(there["BlockDeviceMappings"][0]["Ebs"]),
            "instanceInitiatedShutdownBehavior": self.ec2.describe_instance_attribute(
                InstanceId=machine, Attribute="instanceInitiatedShutdownBehavior"
            )["InstanceInitiatedShutdownBehavior"]["Value"],
            "tags": {key: text for key, text in tags.items() if not key.startswith("aws:")},
            **self._market(there),
        }

    def delete(self, machine: str) -> None:
        """Terminate it."""
        self.ec2.terminate_instances(InstanceIds=[machine])

    def _template(self, tags: Mapping[str, str]) -> Inputs:
        number = tags["aws:ec2launchtemplate:id"]
        found = self.ec2.describe_launch_templates(LaunchTemplateIds=[number])
        version = tags["aws:ec2launchtemplate:version"]
        self.ec2.describe_launch_template_versions(LaunchTemplateId=number, Versions=[version])
        return {"name": found["LaunchTemplates"][0]["LaunchTemplateName"], "version": version}

    def _market(self, instance: Inputs) -> Inputs:
        if instance.get("InstanceLifecycle") != "spot":
            return {}
        # moto keeps no request of it; what AWS would tell is what stacks/aws asks for.
        chosen = [{"Name": "instance-id", "Values": [instance["InstanceId"]]}]
        self.ec2.describe_spot_instance_requests(Filters=chosen)
        spot = {"instanceInterruptionBehavior": "terminate", "spotInstanceType": "one-time"}
        return {"instanceMarketOptions": {"marketType": "spot", "spotOptions": spot}}

    def _disk(self, mapped: Inputs) -> Inputs:
        (disk,) = self.ec2.describe_volumes(VolumeIds=[mapped["VolumeId"]])["Volumes"]
        return {
            "volumeSize": disk["Size"],
            "volumeType": disk["VolumeType"],
            "encrypted": disk["Encrypted"],
            "deleteOnTermination": mapped["DeleteOnTermination"],
            "tags": {tag["Key"]: tag["Value"] for tag in disk.get("Tags", [])},
        }


class Groups(Kind):
    """Security groups."""

    def create(self, inputs: Inputs) -> str:
        """Make one, opened as its rules say."""
        where = {"VpcId": inputs["vpcId"]} if inputs.get("vpcId") else {}
        made = self.ec2.create_security_group(
            GroupName=inputs["name"],
            Description=inputs["description"],
            TagSpecifications=[tagged("security-group", inputs)],
            **where,
        )["GroupId"]
        # AWS opens each group outwards; the provider closes it and opens what is declared.
        everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
        self.ec2.revoke_security_group_egress(GroupId=made, IpPermissions=everything)
        self.ec2.authorize_security_group_egress(
            GroupId=made, IpPermissions=[rule(each) for each in inputs["egress"]]
        )
        if inputs.get("ingress"):
            self.ec2.authorize_security_group_ingress(
                GroupId=made, IpPermissions=[rule(each) for each in inputs["ingress"]]
            )
        self.read(made)
        return str(made)

    def read(self, group: str) -> Inputs | None:
        """Return its name, when it is there."""
        (found,) = self.ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
        return {"name": found["GroupName"]}

    def delete(self, group: str) -> None:
        """Delete it, seeing first that nothing uses it."""
        chosen = [{"Name": "group-id", "Values": [group]}]
        self.ec2.describe_network_interfaces(Filters=chosen)
        self.ec2.delete_security_group(GroupId=group)


class Roles(Kind):
    """IAM roles."""

    def create(self, inputs: Inputs) -> str:
        """Make one."""
        self.iam.create_role(
            RoleName=inputs["name"],
            Path=inputs["path"],
            Description=inputs["description"],
            AssumeRolePolicyDocument=inputs["assumeRolePolicy"],
            Tags=tags_of(inputs),
        )
        self.read(inputs["name"])
        return str(inputs["name"])

    def read(self, role: str) -> Inputs | None:
        """Return its name, when it is there."""
        self.iam.list_role_policies(RoleName=role)
        self.iam.list_attached_role_policies(RoleName=role)
        return {"name": self.iam.get_role(RoleName=role)["Role"]["RoleName"]}

    def delete(self, role: str) -> None:
        """Delete it, seeing first that no profile holds it."""
        self.iam.list_instance_profiles_for_role(RoleName=role)
        self.iam.delete_role(RoleName=role)


class Profiles(Kind):
    """IAM instance profiles."""

    def create(self, inputs: Inputs) -> str:
        """Make one with its role."""
        name = inputs["name"]
        self.iam.create_instance_profile(
            InstanceProfileName=name, Path=inputs["path"], Tags=tags_of(inputs)
        )
        self.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=inputs["role"])
        return str(name)

    def read(self, profile: str) -> Inputs | None:
        """Return its name, when it is there."""
        found = self.iam.get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]
        return {"name": found["InstanceProfileName"]}

    def delete(self, profile: str) -> None:
        """Take its role out and delete it."""
        found = self.iam.get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]
        for role in found["Roles"]:
            self.iam.remove_role_from_instance_profile(
                InstanceProfileName=profile, RoleName=role["RoleName"]
            )
        self.iam.delete_instance_profile(InstanceProfileName=profile)


class Templates(Kind):
    """Launch templates."""

    def create(self, inputs: Inputs) -> str:
        """Make one, of one version."""
        metadata = inputs["metadataOptions"]
        data = {
            "SecurityGroupIds": inputs["vpcSecurityGroupIds"],
            "IamInstanceProfile": {"Name": inputs["iamInstanceProfile"]["name"]},
            "InstanceInitiatedShutdownBehavior": inputs["instanceInitiatedShutdownBehavior"],
            "MetadataOptions": {
                "HttpEndpoint": metadata["httpEndpoint"],
                "HttpTokens": metadata["httpTokens"],
                "HttpPutResponseHopLimit": metadata["httpPutResponseHopLimit"],
            },
            **({"KeyName": inputs["keyName"]} if inputs.get("keyName") else {}),
        }
        made = self.ec2.create_launch_template(
            LaunchTemplateName=inputs["name"],
            LaunchTemplateData=data,
            TagSpecifications=[tagged("launch-template", inputs)],
        )
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def read(self, template: str) -> Inputs | None:
        """Return its name, when it is there."""
        found = self.ec2.describe_launch_templates(LaunchTemplateIds=[template])
        return {"name": found["LaunchTemplates"][0]["LaunchTemplateName"]}

    def delete(self, template: str) -> None:
        """Delete it with its version."""
        self.ec2.delete_launch_template(LaunchTemplateId=template)


def _faults() -> dict[str, Any]:
    path = FOLDER / "faults.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _note(model: Any, **_: object) -> None:  # noqa: ANN401 - botocore has no types
    with (FOLDER / "calls.log").open("a", encoding="utf-8") as log:
        log.write(f"{model.service_model.service_name}:{model.name}\n")


def _plain(values: Mapping[str, PropertyValue]) -> dict[str, Any]:
    return {key: _unwrap(each) for key, each in values.items() if not key.startswith("__")}


def _unwrap(value: Any) -> Any:  # noqa: ANN401 - any property
    inner = value.value if isinstance(value, PropertyValue) else value
    if isinstance(inner, Mapping):
        return {key: _unwrap(each) for key, each in inner.items() if not key.startswith("__")}
    if isinstance(inner, (list, tuple)):
        return [_unwrap(each) for each in inner]
    return int(inner) if isinstance(inner, float) and inner.is_integer() else inner


def _value(value: Any) -> PropertyValue:  # noqa: ANN401 - any property
    if isinstance(value, Mapping):
        return PropertyValue({key: _value(each) for key, each in value.items()})
    return PropertyValue(float(value) if type(value) is int else value)


def main() -> None:
    """Serve the engine that started this process until it is gone."""
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    serve(sys.argv[1:], "7.51.1", Double())


def _exit_with_parent(parent: int) -> None:
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(0.5)
    os._exit(0)


if __name__ == "__main__":
    main()
