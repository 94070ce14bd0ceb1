"""Stand before moto for what it lacks of publishing, and hand the rest to it.

moto takes blocks without looking at their checksums, knows no snapshot that is not complete, and
keeps of a registered image its name only: no tags, no boot mode, no snapshot, no second of the
same name refused. All of that is done here, as AWS documents it.
"""

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from fleet.clouds.aws.machines import AwsAccount
from tests.builders import NOW

REGION = "eu-central-1"
BLOCK = 524_288


@dataclass
class Registrar:
    """What AWS would know and moto does not."""

    blocks: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """Snapshot to its blocks."""
    begun: dict[str, datetime] = field(default_factory=dict)
    sealed: set[str] = field(default_factory=set)
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    """AMI to what it was registered with."""

    def volume(self, image: str) -> bytes:
        """Return the disk of a machine that boots an AMI, as far as blocks are in it."""
        (mapping,) = self.images[image]["BlockDeviceMappings"]
        blocks = self.blocks[mapping["Ebs"]["SnapshotId"]]
        return b"".join(blocks.get(each, bytes(BLOCK)) for each in range(max(blocks) + 1))


class StrictAccount(AwsAccount):
    """An account whose clients are moto's, behind what is checked here."""

    def __init__(self, region: str, there: Registrar, time: datetime = NOW) -> None:
        super().__init__(region, connections=16, tries=3)
        self._there = there
        self._time = time

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3 ships no types
        real = super().client(service)
        kind = StrictEbs if service == "ebs" else StrictEc2
        return kind(real, self._there, self._time)


class _Client:
    def __init__(self, real: Any, there: Registrar, time: datetime) -> None:  # noqa: ANN401 - same
        self._real = real
        self._there = there
        self._time = time

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - same
        return getattr(self._real, name)


class StrictEbs(_Client):
    """EBS direct APIs that check what they are sent."""

    def start_snapshot(self, **asked: Any) -> Any:  # noqa: ANN401 - same
        begun = self._real.start_snapshot(**asked)
        self._there.blocks[begun["SnapshotId"]] = {}
        self._there.begun[begun["SnapshotId"]] = self._time
        return begun

    def put_snapshot_block(self, **asked: Any) -> Any:  # noqa: ANN401 - same
        content, blocks = asked["BlockData"], self._there.blocks[asked["SnapshotId"]]
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        _require(asked["SnapshotId"] not in self._there.sealed, "PutSnapshotBlock")
        _require(len(content) == asked["DataLength"] == BLOCK, "PutSnapshotBlock")
        _require((asked["Checksum"], asked["ChecksumAlgorithm"]) == (digest, "SHA256"), "Put")
        blocks[asked["BlockIndex"]] = content
        return self._real.put_snapshot_block(**asked)

    def complete_snapshot(self, **asked: Any) -> Any:  # noqa: ANN401 - same
        blocks = self._there.blocks[asked["SnapshotId"]]
        sums = (hashlib.sha256(blocks[each]).digest() for each in sorted(blocks))
        whole = base64.b64encode(hashlib.sha256(b"".join(sums)).digest()).decode()
        _require(asked["ChangedBlocksCount"] == len(blocks), "CompleteSnapshot")
        _require(asked["Checksum"] == whole, "CompleteSnapshot")
        _require(asked["ChecksumAggregationMethod"] == "LINEAR", "CompleteSnapshot")
        told = self._real.complete_snapshot(**asked)
        self._there.sealed.add(asked["SnapshotId"])
        return {**told, "Status": "pending"}

    def list_snapshot_blocks(self, **asked: Any) -> Any:  # noqa: ANN401 - same
        _require(asked["SnapshotId"] in self._there.sealed, "ListSnapshotBlocks")
        return self._real.list_snapshot_blocks(**asked)


class StrictEc2(_Client):
    """EC2 that registers images as AWS does."""

    def register_image(self, **asked: Any) -> Any:  # noqa: ANN401 - same
        (mapping,) = asked["BlockDeviceMappings"]
        _require(mapping["DeviceName"] == asked["RootDeviceName"], "RegisterImage")
        _require(mapping["Ebs"]["SnapshotId"] in self._there.sealed, "RegisterImage")
        if asked["Name"] in [each["Name"] for each in self._there.images.values()]:
            raise _refused("InvalidAMIName.Duplicate", "RegisterImage")
        made = self._real.register_image(**asked)
        self._there.images[made["ImageId"]] = asked
        (tags,) = asked["TagSpecifications"]
        self._real.create_tags(Resources=[made["ImageId"]], Tags=tags["Tags"])
        return made

    def deregister_image(self, **asked: Any) -> Any:  # noqa: ANN401 - same
        self._there.images.pop(asked["ImageId"], None)
        return self._real.deregister_image(**asked)

    def describe_snapshots(self, **asked: Any) -> Any:  # noqa: ANN401 - same
        return self._as_it_is(self._real.describe_snapshots(**asked))

    def get_paginator(self, name: str) -> Any:  # noqa: ANN401 - same
        pages = self._real.get_paginator(name)
        return pages if name == "describe_images" else _Pages(pages, self)

    def _as_it_is(self, page: Any) -> Any:  # noqa: ANN401 - same
        for each in page["Snapshots"]:
            known = each["SnapshotId"]
            each["State"] = "completed" if known in self._there.sealed else "pending"
            each["StartTime"] = self._there.begun.get(known, each["StartTime"])
        return page


class _Pages:
    def __init__(self, pages: Any, ec2: StrictEc2) -> None:  # noqa: ANN401 - same
        self._pages = pages
        self._ec2 = ec2

    def paginate(self, **asked: Any) -> Iterator[Any]:  # noqa: ANN401 - same
        return map(self._ec2._as_it_is, self._pages.paginate(**asked))  # noqa: SLF001 - one module


def _require(holds: bool, operation: str) -> None:  # noqa: FBT001 - a claim
    if not holds:
        raise _refused("ValidationException", operation)


def _refused(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "said by the double"}}, operation)
