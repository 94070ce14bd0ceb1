"""This module deletes what a killed run left of a launch template and what came with it.

A part whose answer was lost is in no state, and AWS refuses to make another of its name. Nothing
uses it yet: machines are made only from templates whose every part is recorded.
"""

from collections.abc import Collection, Mapping
from typing import Any

from fleet.providers.aws_account import MARK, AwsAccount, code_of

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
        from botocore.exceptions import ClientError

        with self.asked("iam", f"Get{kind}") as iam:
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
