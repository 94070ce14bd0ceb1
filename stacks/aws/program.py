"""Declare what fleet owns at AWS: EC2 instances, and what they share.

A pool's stack holds instances only; an account's base stack holds launch templates with their
security group, role and instance profile only. It imports only pulumi and pulumi_aws, so that
people can run it with the official release and no fleet.
"""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import pulumi
from pulumi_aws.ec2 import (
    Instance,
    InstanceInstanceMarketOptionsArgs,
    InstanceInstanceMarketOptionsSpotOptionsArgs,
    InstanceLaunchTemplateArgs,
    InstanceRootBlockDeviceArgs,
    LaunchTemplate,
    LaunchTemplateIamInstanceProfileArgs,
    LaunchTemplateMetadataOptionsArgs,
    SecurityGroup,
    SecurityGroupEgressArgs,
    SecurityGroupIngressArgs,
)
from pulumi_aws.iam import InstanceProfile, Role

TEXTS = ("name", "type", "image", "architecture")
WORKER_LABELS = ("fleet", "pool", "worker", "digest")
NOTES = ("commit", "expires")
SETTINGS = ("template", "subnet", "disk", "market")
MARK = "fleet"
PATH = "/fleet/"
"""Where roles and profiles stand, so that a policy can name them and no others."""
# No one assumes this role but EC2, and it may do nothing: workers need nothing of AWS.
ASSUMED_BY_EC2 = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "ec2.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}
Inputs = Mapping[str, Any]


def program(inputs: Inputs) -> None:
    """Declare every instance and launch template that the inputs list.

    `user_data` holds a secret text per new worker; `adopt` ids of instances that exist already;
    `notes` tags that a new instance gets and that change later without its stack; `owner` says
    which engine and provider the stack belongs to, for the state to record.
    """
    extra = {key: _texts(inputs.get(key, {}), key) for key in ("adopt", "user_data", "notes")}
    for index, each in enumerate(_listed(inputs, "workers")):
        _instance(_worker(each, f"workers[{index}]"), extra)
    made: list[pulumi.CustomResource] = []
    for index, each in enumerate(_listed(inputs, "templates", optional=True)):
        made += _template(each, f"templates[{index}]")
    owner = _texts(inputs.get("owner", {}), "owner")
    for key, text in owner.items():
        pulumi.export(key, text)
    if "parts" in owner:
        # The same only once each was made as asked: of what failed, no id is told.
        done = pulumi.Output.all(*(each.id for each in made)).apply(lambda _: owner["parts"])
        pulumi.export("laid", done.recover(lambda _: ""))


def _instance(worker: Inputs, extra: Mapping[str, Mapping[str, str]]) -> None:
    name, settings, adopt = worker["name"], worker["settings"], extra["adopt"]
    given = extra["user_data"].get(name) if name not in adopt else None
    notes = {key: text for key, text in extra["notes"].items() if key in NOTES}
    tags = _tags({**worker["labels"], "architecture": worker["architecture"]}, name)
    Instance(
        name,
        launch_template=InstanceLaunchTemplateArgs(name=settings["template"], version="1"),
        ami=worker["image"],
        instance_type=worker["type"],
        subnet_id=settings.get("subnet"),
        root_block_device=_disk(settings, tags, name),
        instance_market_options=_market(settings, name),
        # It also stands in the template; said here, a template by hand cannot undo it.
        instance_initiated_shutdown_behavior="terminate",
        user_data=pulumi.Output.secret(given) if given else None,
        tags={**tags, **{f"{MARK}:{key}": text for key, text in notes.items()}},
        opts=pulumi.ResourceOptions(
            import_=adopt.get(name),
            # What it was given at its first boot, and a template that is gone, make no other
            # instance, nor does what is noted at it.
            ignore_changes=[
                *(f'tags["{MARK}:{key}"]' for key in NOTES),
                *([] if given else ["userData", "launchTemplate"]),
            ],
        ),
    )


def _disk(
    settings: Mapping[str, str], tags: Mapping[str, str], name: str
) -> InstanceRootBlockDeviceArgs:
    size = settings.get("disk")
    if size is not None and not size.isdecimal():
        raise ValueError(f"{name}: disk must be whole GiB, not {size}")
    return InstanceRootBlockDeviceArgs(
        volume_size=int(size) if size else None,
        volume_type="gp3",
        encrypted=True,
        delete_on_termination=True,
        tags=tags,
    )


def _market(settings: Mapping[str, str], name: str) -> InstanceInstanceMarketOptionsArgs | None:
    market = settings.get("market", "on-demand")
    if market not in ("spot", "on-demand"):
        raise ValueError(f"{name}: market must be spot or on-demand, not {market}")
    if market == "on-demand":
        return None
    return InstanceInstanceMarketOptionsArgs(
        market_type="spot",
        spot_options=InstanceInstanceMarketOptionsSpotOptionsArgs(
            # What AWS takes back is gone, and asked for again by nobody but fleet.
            instance_interruption_behavior="terminate",
            spot_instance_type="one-time",
        ),
    )


def _template(template: Inputs, where: str) -> list[pulumi.CustomResource]:
    """Declare a launch template of one version, and what its instances share."""
    _exactly(template, where, {"name", "vpc", "key_pair", "ssh_from", "labels"})
    labels = _texts(template["labels"], f"{where}.labels")
    if not labels.get(MARK):
        raise ValueError(f"{where}.labels lacks {MARK}, the mark of ownership")
    name, tags = template["name"], _tags(labels, template["name"])
    group = SecurityGroup(
        f"{name}-group",
        name=name,
        description=f"Machines of fleet {labels[MARK]}",
        vpc_id=template["vpc"] or None,
        ingress=_ssh(_listed(template, "ssh_from", where=f"{where}.")),
        egress=[
            SecurityGroupEgressArgs(
                protocol="-1",
                from_port=0,
                to_port=0,
                cidr_blocks=["0.0.0.0/0"],
                ipv6_cidr_blocks=["::/0"],
            )
        ],
        tags=tags,
    )
    role = Role(
        f"{name}-role",
        name=name,
        path=PATH,
        description=f"Machines of fleet {labels[MARK]}: they may do nothing at AWS",
        assume_role_policy=json.dumps(ASSUMED_BY_EC2, sort_keys=True),
        tags=tags,
    )
    profile = InstanceProfile(f"{name}-profile", name=name, path=PATH, role=role.name, tags=tags)
    made = LaunchTemplate(
        name,
        name=name,
        vpc_security_group_ids=[group.id],
        iam_instance_profile=LaunchTemplateIamInstanceProfileArgs(name=profile.name),
        instance_initiated_shutdown_behavior="terminate",
        metadata_options=LaunchTemplateMetadataOptionsArgs(
            http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
        ),
        key_name=template["key_pair"] or None,
        tags=tags,
    )
    return [group, role, profile, made]


def _ssh(ranges: list[Any]) -> list[SecurityGroupIngressArgs]:
    return (
        [SecurityGroupIngressArgs(protocol="tcp", from_port=22, to_port=22, cidr_blocks=ranges)]
        if ranges
        else []
    )


def _worker(worker: object, where: str) -> Inputs:
    checked = _exactly(worker, where, {*TEXTS, "labels", "settings"})
    for key in TEXTS:
        if not isinstance(checked[key], str) or not checked[key]:
            _wrong(f"{where}.{key}", "a text that is not empty", checked[key])
    labels = _texts(checked["labels"], f"{where}.labels")
    missing = [label for label in WORKER_LABELS if label not in labels]
    if missing:
        raise ValueError(f"{where}.labels lacks {', '.join(missing)}")
    settings = _texts(checked["settings"], f"{where}.settings")
    unknown = sorted(set(settings) - set(SETTINGS))
    if unknown:
        raise ValueError(f"{where}.settings has unknown keys: {', '.join(unknown)}")
    if not settings.get("template"):
        raise ValueError(f"{where}.settings lacks template")
    return checked


def _tags(labels: Mapping[str, str], name: str) -> dict[str, str]:
    """Return labels as tags: other people's tags may be called `pool` too."""
    marks = {key if key == MARK else f"{MARK}:{key}": text for key, text in labels.items()}
    return {**marks, "Name": name}


def _exactly(value: object, where: str, keys: set[str]) -> Inputs:
    if not isinstance(value, Mapping):
        _wrong(where, "a mapping", value)
    missing, unknown = sorted(keys - set(value)), sorted(map(str, set(value) - keys))
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    if unknown:
        raise ValueError(f"{where} has unknown keys: {', '.join(unknown)}")
    return value


def _listed(inputs: Inputs, key: str, *, where: str = "", optional: bool = False) -> list[Any]:
    value = inputs.get(key, [] if optional else None)
    if not isinstance(value, list):
        _wrong(f"{where}{key}", "a list", value)
    return value


def _texts(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        _wrong(where, "a mapping", value)
    wrong = sorted(str(key) for key, text in value.items() if not isinstance(text, str))
    if wrong:
        raise TypeError(f"{where} must hold texts, but not so: {', '.join(wrong)}")
    return dict(value)


def _wrong(where: str, expected: str, value: object) -> NoReturn:
    raise TypeError(f"{where} must be {expected}, not {type(value).__name__}")
