"""List and delete machines and shared resources of an AWS account by tags; extend expiries.

An incomplete listing is Unknown, since missing machines would count as deleted. Credentials come
from AWS's default chain (environment, profile, role). No message contains credentials.

If AWS created a shared resource but its reply was lost, the state lacks the resource and its name
is taken. No machine uses it yet, since machines need completely recorded templates.
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

_LIST_TIMEOUT_SECONDS = 300
_MAX_FILTER_VALUES = 200
"""Maximum number of values in one filter of AWS."""
# AWS lists a terminated instance for another hour, without cost.
_STATES = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.STOPPING,
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
}
_TERMINATED = "terminated"
_SINGLE_INSTANCE_ERRORS = frozenset({"InvalidInstanceID.NotFound", "TagLimitExceeded"})
"""Error codes of a request for several instances that a single instance can cause."""


class _AwsReply(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_pascal)


class _AwsTag(_AwsReply):
    key: Line
    value: Line


class _State(_AwsReply):
    name: Line


class _Instance(_AwsReply):
    instance_id: Line = Field(min_length=1)
    instance_type: Line
    image_id: Line
    launch_time: Moment
    state: _State
    tags: tuple[_AwsTag, ...] = ()
    public_ip_address: Line | None = None
    private_ip_address: Line | None = None

    @property
    def marks(self) -> dict[str, str]:
        return {tag.key: tag.value for tag in self.tags}


class _Reservation(_AwsReply):
    instances: tuple[_Instance, ...]


class _ReservationPage(_AwsReply):
    reservations: tuple[_Reservation, ...]


class AwsMachines(AwsAccount):
    """The instances of one account and region. Implements Provider and MachineApi."""

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
        """Return the machines whose tag `fleet` has exactly this value; Unknown after an error."""
        read_at = self._now()
        try:
            found = self._instances({"Name": f"tag:{MARK}", "Values": [fleet]})
            ours = [each for each in found if each.marks.get(MARK) == fleet]
            machines = [_machine(each) for each in sorted(ours, key=_age)]
        except SourceUnreachable as error:
            return Unknown.of(error)
        return Listing(
            read_at=read_at,
            machines=tuple(sorted(_make_names_unique(machines), key=lambda machine: machine.name)),
            notes_expiry=True,
        )

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Write the expiry time of machines, by id. Skip machines that do not exist."""
        ids = sorted(machines)
        tag = {"Key": f"{MARK}:expires", "Value": until.isoformat()}
        failed: list[SourceUnreachable] = []
        for start in range(0, len(ids), _MAX_FILTER_VALUES):
            part = {"Name": "instance-id", "Values": ids[start : start + _MAX_FILTER_VALUES]}
            try:
                self._tag([each.instance_id for each in self._instances(part)], tag)
            except SourceUnreachable as error:
                # After a refused batch, extend the other batches, which would expire otherwise.
                failed.append(error)
        raise_first(failed)

    def _tag(self, machines: Sequence[str], tag: Mapping[str, str]) -> None:
        """Set a tag on machines. If AWS refuses because of some machines, tag the others."""
        from botocore.exceptions import ClientError

        if not machines:
            return
        with self._ec2("CreateTags") as ec2:
            try:
                ec2.create_tags(Resources=machines, Tags=[tag])
            except ClientError as error:
                if len(machines) == 1 or code_of(error) not in _SINGLE_INSTANCE_ERRORS:
                    raise
            else:
                return
        middle = len(machines) // 2
        try:
            self._tag(machines[:middle], tag)
        finally:
            self._tag(machines[middle:], tag)

    def delete(self, machine_id: str) -> None:
        """Terminate a machine. Do nothing if it does not exist."""
        with self._ec2("TerminateInstances") as ec2:
            from botocore.exceptions import ClientError

            try:
                ec2.terminate_instances(InstanceIds=[machine_id])
            except ClientError as error:
                if code_of(error) != "InvalidInstanceID.NotFound":
                    raise

    def console(self, machine_id: str) -> str:
        """Return the end of an instance's console output: at most 64 kB, some minutes old.

        https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html
        """
        with self._ec2("GetConsoleOutput") as ec2:
            return str(ec2.get_console_output(InstanceId=machine_id).get("Output") or "")

    def _instances(self, chosen: Mapping[str, object]) -> tuple[_Instance, ...]:
        """Return all instances that match a filter, without terminated instances."""
        begun = self._clock()
        found: dict[str, _Instance] = {}
        with self._ec2("DescribeInstances") as ec2:
            pages = ec2.get_paginator("describe_instances").paginate(Filters=[chosen])
            for page in pages:
                if self._clock() - begun > _LIST_TIMEOUT_SECONDS:
                    raise SourceUnreachable(
                        f"EC2 in {self.region}: the list of instances was not read within "
                        f"{_LIST_TIMEOUT_SECONDS} s; the next run tries again"
                    )
                answered = _ReservationPage.model_validate(page).reservations
                found |= {each.instance_id: each for part in answered for each in part.instances}
        return tuple(each for each in found.values() if each.state.name != _TERMINATED)

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
        # fleet may neither delete nor count this instance, so the whole list is unusable.
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
        return None  # missing, or set by a user: the next run overwrites it
    return moment_or_none(moment)


def _make_names_unique(machines: "list[Machine]") -> Iterator[Machine]:
    """Yield machines, oldest first, with unique names. The youngest of a name keeps the name.

    The others get their ids: AWS permits equal names, and all machines must be visible.
    """
    youngest = {machine.name: machine.id for machine in machines}
    for machine in machines:
        name = machine.name if youngest[machine.name] == machine.id else machine.id
        yield machine.altered(name=name)


# If no object is in fleet's path, AWS refuses credentials that are limited to this path.
_MISSING_CODES = frozenset({"AccessDenied", "NoSuchEntity"})


class AwsShared(AwsAccount):
    """The shared resources of machines in one account and region, found by tags and names."""

    def clear(self, fleet: str, template: str, known: Collection[str]) -> None:
        """Delete the resources of a launch template that the stack's record, `known`, lacks."""
        parts = {
            # First: AWS refuses to delete a group in use, and then no other resource is deleted.
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
            chosen = _filters("group-name", name, fleet)
            found = ec2.describe_security_groups(Filters=chosen)["SecurityGroups"]
        for each in found:
            with self.asked("ec2", "DeleteSecurityGroup") as ec2:
                ec2.delete_security_group(GroupId=each["GroupId"])

    def _delete_template(self, fleet: str, name: str) -> None:
        with self.asked("ec2", "DescribeLaunchTemplates") as ec2:
            chosen = _filters("launch-template-name", name, fleet)
            found = ec2.describe_launch_templates(Filters=chosen)["LaunchTemplates"]
        for each in found:
            with self.asked("ec2", "DeleteLaunchTemplate") as ec2:
                ec2.delete_launch_template(LaunchTemplateId=each["LaunchTemplateId"])

    def _delete_profile(self, fleet: str, name: str) -> None:
        found = self._get_marked("InstanceProfile", fleet, name)
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
        if self._get_marked("Role", fleet, name):
            with self.asked("iam", "DeleteRole") as iam:
                iam.delete_role(RoleName=name)

    def _get_marked(self, kind: str, fleet: str, name: str) -> Mapping[str, Any] | None:
        """Return the role or profile with this name; None if absent or without the fleet's tag."""
        with self.asked("iam", f"Get{kind}") as iam:
            from botocore.exceptions import ClientError

            ask = iam.get_role if kind == "Role" else iam.get_instance_profile
            try:
                found: Mapping[str, Any] = ask(**{f"{kind}Name": name})[kind]
            except ClientError as error:
                if code_of(error) in _MISSING_CODES:
                    return None
                raise
        return found if {"Key": MARK, "Value": fleet} in found.get("Tags", ()) else None


def _filters(attribute: str, name: str, fleet: str) -> list[dict[str, object]]:
    """Return EC2 filters for a name and the fleet's tag. Neither value can contain wildcards."""
    said = {attribute: name, f"tag:{MARK}": fleet}
    return [{"Name": key, "Values": [text]} for key, text in said.items()]
