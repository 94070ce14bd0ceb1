"""The machines of an AWS account, and what they share, by their tags: list, extend, delete.

A listing is whole or it is Unknown: half a list would read as machines that are gone. Credentials
come by AWS's own chain (environment, profile, role) and are in no message.

A part whose answer was lost is in no state, and AWS refuses to make another of its name. Nothing
uses it yet: machines are made only from templates whose every part is recorded.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_pascal

from fleet.clock import utc_now
from fleet.clouds.aws.account import MARK, AwsAccount, code_of
from fleet.clouds.cloud import raise_first
from fleet.errors import SourceUnreachable
from fleet.model.facts import Listing, Machine, MachineState, Unknown
from fleet.model.values import Line, Moment, moment_or_none
from fleet.schema.model import AwsProvider

_DEADLINE = 300
_AT_ONCE = 200
"""How many values a filter may have."""
# An instance that is terminated stays listed for an hour, costs nothing and does nothing.
_STATES = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.STOPPING,
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
}
_GONE = "terminated"
_OF_ONE = frozenset({"InvalidInstanceID.NotFound", "TagLimitExceeded"})
"""What a question about many is refused with because of one of them."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_pascal)


class _Tag(_Answer):
    key: Line
    value: Line


class _State(_Answer):
    name: Line


class _Instance(_Answer):
    instance_id: Line = Field(min_length=1)
    instance_type: Line
    image_id: Line
    launch_time: Moment
    state: _State
    tags: tuple[_Tag, ...] = ()
    public_ip_address: Line | None = None
    private_ip_address: Line | None = None

    @property
    def marks(self) -> dict[str, str]:
        return {tag.key: tag.value for tag in self.tags}


class _Reservation(_Answer):
    instances: tuple[_Instance, ...]


class _Page(_Answer):
    reservations: tuple[_Reservation, ...]


class AwsMachines(AwsAccount):
    """What exists in one account and region: Provider and MachineApi."""

    def __init__(
        self,
        provider: AwsProvider,
        *,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(provider.region)
        self._now = now
        self._clock = clock

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines whose tag `fleet` is exactly this name."""
        read_at = self._now()
        try:
            found = self._instances({"Name": f"tag:{MARK}", "Values": [fleet]})
            ours = [each for each in found if each.marks.get(MARK) == fleet]
            machines = [_machine(each) for each in sorted(ours, key=_age)]
        except SourceUnreachable as error:
            return Unknown(unknown=str(error))
        return Listing(
            read_at=read_at,
            machines=tuple(sorted(_with_unique_names(machines), key=lambda machine: machine.name)),
            notes_expiry=True,
        )

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Write the expiry of machines at the provider; one that is gone is fine."""
        ids = sorted(machines)
        tag = {"Key": f"{MARK}:expires", "Value": until.isoformat()}
        failed: list[SourceUnreachable] = []
        for start in range(0, len(ids), _AT_ONCE):
            part = {"Name": "instance-id", "Values": ids[start : start + _AT_ONCE]}
            try:
                self._tag([each.instance_id for each in self._instances(part)], tag)
            except SourceUnreachable as error:
                # One part that is refused must not let those behind it expire.
                failed.append(error)
        raise_first(failed)

    def _tag(self, machines: Sequence[str], tag: Mapping[str, str]) -> None:
        """Tag machines; where one of them refuses, all the others all the same."""
        from botocore.exceptions import ClientError

        if not machines:
            return
        with self._ec2("CreateTags") as ec2:
            try:
                ec2.create_tags(Resources=machines, Tags=[tag])
            except ClientError as error:
                if len(machines) == 1 or code_of(error) not in _OF_ONE:
                    raise
            else:
                return
        middle = len(machines) // 2
        try:
            self._tag(machines[:middle], tag)
        finally:
            self._tag(machines[middle:], tag)

    def delete(self, machine_id: str) -> None:
        """Terminate a machine; one that is already gone is fine."""
        with self._ec2("TerminateInstances") as ec2:
            from botocore.exceptions import ClientError

            try:
                ec2.terminate_instances(InstanceIds=[machine_id])
            except ClientError as error:
                if code_of(error) != "InvalidInstanceID.NotFound":
                    raise

    def console(self, machine_id: str) -> str:
        """Return the end of an instance's console, as EC2 keeps it (64 kB, late by minutes).

        https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html
        """
        with self._ec2("GetConsoleOutput") as ec2:
            return str(ec2.get_console_output(InstanceId=machine_id).get("Output") or "")

    def _instances(self, chosen: Mapping[str, object]) -> tuple[_Instance, ...]:
        """Return every instance that a filter chooses and that is there still."""
        begun = self._clock()
        found: dict[str, _Instance] = {}
        with self._ec2("DescribeInstances") as ec2:
            pages = ec2.get_paginator("describe_instances").paginate(Filters=[chosen])
            for page in pages:
                if self._clock() - begun > _DEADLINE:
                    raise SourceUnreachable(
                        f"EC2 in {self.region}: the list of instances was not read within "
                        f"{_DEADLINE} s; the next run tries again"
                    )
                answered = _Page.model_validate(page).reservations
                found |= {each.instance_id: each for part in answered for each in part.instances}
        return tuple(each for each in found.values() if each.state.name != _GONE)

    def _ec2(self, action: str) -> AbstractContextManager[Any]:
        return self.asked("ec2", action)


def _age(instance: _Instance) -> tuple[datetime, str]:
    return (instance.launch_time, instance.instance_id)


def _machine(instance: _Instance) -> Machine:
    marks, state = instance.marks, _STATES.get(instance.state.name)
    name, pool = marks.get(f"{MARK}:worker"), marks.get(f"{MARK}:pool")
    if state is None:
        raise SourceUnreachable(
            f"instance {instance.instance_id} is in the state {instance.state.name!r}, which this "
            "version of fleet does not know"
        )
    if not name or not pool:
        # It is neither ours to delete nor to be counted, so nothing may rest on this list.
        raise SourceUnreachable(
            f"instance {instance.instance_id} carries the tag {MARK} but not both {MARK}:pool and "
            f"{MARK}:worker; remove the first if fleet did not make it, or give it the others"
        )
    return Machine(
        name=name,
        id=instance.instance_id,
        pool=pool,
        type=instance.instance_type,
        state=state,
        created_at=instance.launch_time,
        image=instance.image_id,
        digest=marks.get(f"{MARK}:digest"),
        expires=_expiry(instance),
        address=instance.public_ip_address or instance.private_ip_address,
    )


def _expiry(instance: _Instance) -> datetime | None:
    try:
        moment = datetime.fromisoformat(instance.marks.get(f"{MARK}:expires", ""))
    except ValueError:
        return None  # none, or a person's: the next run writes its own
    return moment_or_none(moment)


def _with_unique_names(machines: "list[Machine]") -> Iterator[Machine]:
    """Yield machines, the oldest first; of two with one name only the younger keeps it.

    AWS has no names that are unique: the other one goes by its id, so that it is seen.
    """
    youngest = {machine.name: machine.id for machine in machines}
    for machine in machines:
        name = machine.name if youngest[machine.name] == machine.id else machine.id
        yield machine.altered(name=name)


# Who may ask only for what stands under our path is refused where nothing does.
_ABSENT = frozenset({"AccessDenied", "NoSuchEntity"})


class AwsShared(AwsAccount):
    """What the machines of one account and region share, by mark and name."""

    def clear(self, fleet: str, template: str, known: Collection[str]) -> None:
        """Delete those parts of a template that are not among the known resources of a stack."""
        parts = {
            # The first: AWS deletes no group that a machine is in, and then nothing else goes.
            f"{template}-group": self._delete_group,
            template: self._delete_template,
            f"{template}-profile": self._delete_profile,
            f"{template}-role": self._delete_role,
        }
        for resource, delete in parts.items():
            if resource not in known:
                delete(fleet, template)

    def _delete_group(self, fleet: str, name: str) -> None:
        with self.asked("ec2", "DescribeSecurityGroups") as ec2:
            chosen = _chosen("group-name", name, fleet)
            found = ec2.describe_security_groups(Filters=chosen)["SecurityGroups"]
        for each in found:
            with self.asked("ec2", "DeleteSecurityGroup") as ec2:
                ec2.delete_security_group(GroupId=each["GroupId"])

    def _delete_template(self, fleet: str, name: str) -> None:
        with self.asked("ec2", "DescribeLaunchTemplates") as ec2:
            chosen = _chosen("launch-template-name", name, fleet)
            found = ec2.describe_launch_templates(Filters=chosen)["LaunchTemplates"]
        for each in found:
            with self.asked("ec2", "DeleteLaunchTemplate") as ec2:
                ec2.delete_launch_template(LaunchTemplateId=each["LaunchTemplateId"])

    def _delete_profile(self, fleet: str, name: str) -> None:
        found = self._named("InstanceProfile", fleet, name)
        if found is None:
            return
        for role in found["Roles"]:
            with self.asked("iam", "RemoveRoleFromInstanceProfile") as iam:
                iam.remove_role_from_instance_profile(
                    InstanceProfileName=name, RoleName=role["RoleName"]
                )
        with self.asked("iam", "DeleteInstanceProfile") as iam:
            iam.delete_instance_profile(InstanceProfileName=name)

    def _delete_role(self, fleet: str, name: str) -> None:
        if self._named("Role", fleet, name):
            with self.asked("iam", "DeleteRole") as iam:
                iam.delete_role(RoleName=name)

    def _named(self, kind: str, fleet: str, name: str) -> Mapping[str, Any] | None:
        """Return the role or profile of a name, where it carries the mark."""
        with self.asked("iam", f"Get{kind}") as iam:
            from botocore.exceptions import ClientError

            ask = iam.get_role if kind == "Role" else iam.get_instance_profile
            try:
                found: Mapping[str, Any] = ask(**{f"{kind}Name": name})[kind]
            except ClientError as error:
                if code_of(error) in _ABSENT:
                    return None
                raise
        return found if {"Key": MARK, "Value": fleet} in found.get("Tags", ()) else None


def _chosen(attribute: str, name: str, fleet: str) -> list[dict[str, object]]:
    """Return what chooses by name and mark; neither holds what AWS would take for a pattern."""
    said = {attribute: name, f"tag:{MARK}": fleet}
    return [{"Name": key, "Values": [text]} for key, text in said.items()]
