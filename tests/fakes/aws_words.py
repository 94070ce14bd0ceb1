"""What stacks/aws declares in the words of EC2's API."""

from collections.abc import Mapping
from typing import Any

ROOT_DEVICE = "/dev/sda1"
Inputs = Mapping[str, Any]


def asked_for(inputs: Inputs) -> dict[str, Any]:
    """Return an instance's inputs in the words of RunInstances."""
    disk, market = inputs["rootBlockDevice"], inputs.get("instanceMarketOptions")
    ebs = {
        "VolumeType": disk["volumeType"],
        "Encrypted": disk["encrypted"],
        "DeleteOnTermination": disk["deleteOnTermination"],
        **({"VolumeSize": disk["volumeSize"]} if disk.get("volumeSize") else {}),
    }
    asked: dict[str, Any] = {
        "LaunchTemplate": {
            "LaunchTemplateName": inputs["launchTemplate"]["name"],
            "Version": inputs["launchTemplate"]["version"],
        },
        "ImageId": inputs["ami"],
        "InstanceType": inputs["instanceType"],
        "InstanceInitiatedShutdownBehavior": inputs["instanceInitiatedShutdownBehavior"],
        "BlockDeviceMappings": [{"DeviceName": ROOT_DEVICE, "Ebs": ebs}],
        "TagSpecifications": [
            tagged("instance", inputs),
            {"ResourceType": "volume", "Tags": tags_of(disk)},
        ],
    }
    optional = {"UserData": inputs.get("userData"), "SubnetId": inputs.get("subnetId")}
    if market:
        spot = market["spotOptions"]
        optional["InstanceMarketOptions"] = {
            "MarketType": market["marketType"],
            "SpotOptions": {
                "SpotInstanceType": spot["spotInstanceType"],
                "InstanceInterruptionBehavior": spot["instanceInterruptionBehavior"],
            },
        }
    return asked | {key: each for key, each in optional.items() if each}


def rule(declared: Inputs) -> dict[str, Any]:
    """Return what a security group lets through."""
    ports = {} if declared["protocol"] == "-1" else {"FromPort": 22, "ToPort": 22}
    return {
        "IpProtocol": declared["protocol"],
        "IpRanges": [{"CidrIp": each} for each in declared.get("cidrBlocks", ())],
        "Ipv6Ranges": [{"CidrIpv6": each} for each in declared.get("ipv6CidrBlocks", ())],
        **ports,
    }


def tagged(kind: str, inputs: Inputs) -> dict[str, Any]:
    """Return the tags of a kind of resource, to be set as it is made."""
    return {"ResourceType": kind, "Tags": tags_of(inputs)}


def tags_of(inputs: Inputs) -> list[dict[str, str]]:
    """Return tags in the API's form."""
    return [{"Key": key, "Value": text} for key, text in inputs["tags"].items()]
