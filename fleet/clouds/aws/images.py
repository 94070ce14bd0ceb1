"""Publish an image at AWS: write its disk to an EBS snapshot, read it back, register an AMI.

Blocks of zeros are not sent, since missing blocks of a snapshot read as zeros. Each block is sent
with its SHA-256, and the snapshot is sealed with the SHA-256 of all checksums in order.

The AMI is registered only after the snapshot was read back. Both have the tags of their owner. A
snapshot that is unsealed or has no AMI is left from a killed run.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from fleet.clouds.aws.machines import MARK, AwsAccount, code_of
from fleet.clouds.pieces import Pieces
from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.model.images import ImageDisk, Manifest, Tell, Upload

BLOCK = 512 * 1024
_CONCURRENT_BLOCKS = 16
_GIB = 1 << 30
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "arm64"}
_ROOT_DEVICE = "/dev/xvda"
_SNAPSHOT_TIMEOUT_MINUTES = 60
_MAX_ATTEMPTS = 8
_MAX_POLLS = 1200
_POLL_SECONDS = 3
_NAME_TAKEN_CODE = "InvalidAMIName.Duplicate"
_GONE_CODES = frozenset(
    {"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidSnapshot.NotFound"}
)
Tags = dict[str, str]


class AwsPublisher:
    """The publisher of AMIs in one account and region."""

    kind, place, noun = "aws", "AWS", "snapshot"

    def __init__(
        self,
        fleet: str,
        region: str,
        *,
        account: AwsAccount | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.fleet = fleet
        self._account = account or AwsAccount(region, connections=16, tries=_MAX_ATTEMPTS)
        self._pause = pause

    def find(self, version: tuple[str, str] | None = None) -> Iterator[Upload]:
        """Yield the AMIs with the tag of this fleet, and the snapshots without an AMI."""
        marks = _marks(*version) if version else {}
        images = self._list_marked("images", marks, Owners=["self"])
        finished = {_version(each) for each in images}
        for each in images:
            yield _upload(each, each["ImageId"], each["CreationDate"])
        for each in self._list_marked("snapshots", marks, OwnerIds=["self"]):
            if _version(each) not in finished:
                yield _upload(each, each["SnapshotId"], each["StartTime"])

    def upload(self, disk: ImageDisk, known: Upload | None) -> tuple[Upload, None]:
        """Register an AMI with the disk of an image version. No machine is rented for it."""
        manifest = disk.manifest
        _architecture(manifest)
        sha256 = {f"{MARK}:sha256": disk.content}
        tags = {MARK: self.fleet, **_marks(manifest.image, manifest.version), **sha256}
        with disk.raw() as raw:
            blocks = Pieces(Path(raw), BLOCK, disk.tell, blocks=True)
            snapshot = self._snapshot(blocks, tags, known, disk)
        image = self._register(snapshot, manifest, tags)
        return _upload(image, image["ImageId"], image["CreationDate"]), None

    def owner(self, upload_id: str) -> str | None:
        """Return the fleet in the tags of an AMI or snapshot; None if that does not exist."""
        found = self._describe(upload_id)
        return None if found is None else _tags(found).get(MARK, "")

    def remove(self, upload_id: str) -> None:
        """Deregister an AMI and delete its snapshot, or delete a snapshot that has no AMI."""
        found = self._describe(upload_id)
        if found is None:
            return
        snapshots = [upload_id]
        if upload_id.startswith("ami-"):
            self._call("DeregisterImage", lambda ec2: ec2.deregister_image(ImageId=upload_id))
            marks = _marks(*_version(found))
            of_it = self._list_marked("snapshots", marks, OwnerIds=["self"])
            snapshots = [each["SnapshotId"] for each in of_it]
        for each in snapshots:
            self._delete_snapshot(each)

    def clean_others(self, before: datetime) -> tuple[str, ...]:  # noqa: ARG002 - the port's own argument
        """Return an empty tuple, because an upload to AWS rents no machine."""
        return ()

    def _snapshot(self, disk: Pieces, tags: Tags, known: Upload | None, image: ImageDisk) -> str:
        """Write a disk to a snapshot, compare the written blocks, and return the snapshot's id."""
        begun = self._describe(known.id) if known else None
        if begun is None or begun["State"] == "error":
            said = f"{tags[MARK]}: {tags[f'{MARK}:image']} {tags[f'{MARK}:version']}"
            with self._account.asked("ebs", "StartSnapshot") as ebs:
                started = ebs.start_snapshot(
                    VolumeSize=-(-disk.bytes // _GIB),
                    Description=said,
                    Tags=_encode_tags(tags),
                    Timeout=_SNAPSHOT_TIMEOUT_MINUTES,
                )
            begun = {"SnapshotId": started["SnapshotId"], "State": "pending"}
        snapshot = str(begun["SnapshotId"])
        noted = Path(image.folder).parent / f".publish-{snapshot}.blocks"
        with self._account.asked("ebs", "writing a snapshot") as ebs:
            if begun["State"] == "pending":
                _put_blocks(ebs, snapshot, disk, noted, image.tell)
                sums = hashlib.sha256(b"".join(disk.sums.values())).digest()
                sealed = ebs.complete_snapshot(
                    SnapshotId=snapshot,
                    ChangedBlocksCount=len(disk.sums),
                    Checksum=base64.b64encode(sums).decode(),
                    ChecksumAlgorithm="SHA256",
                    ChecksumAggregationMethod="LINEAR",
                )
                if sealed["Status"] != "completed":
                    self._await(snapshot, "completed", "pending")
            wrong = _count_differing(ebs, snapshot, disk, image.tell)
        noted.unlink(missing_ok=True)
        if wrong:
            self._delete_snapshot(snapshot)
            raise SourceUnreachable(
                f"{wrong} blocks of snapshot {snapshot} at AWS differ from the sent data; the "
                "snapshot was deleted: publish again"
            )
        return snapshot

    def _register(self, snapshot: str, manifest: Manifest, tags: Tags) -> Any:  # noqa: ANN401 - same
        """Return the AMI of a snapshot. A concurrent run may already have registered the AMI."""
        name = f"{self.fleet}-{manifest.image}-{manifest.version}"
        asked = {
            "Name": name,
            "Description": f"{self.fleet}: {manifest.image} {manifest.version}",
            "Architecture": _architecture(manifest),
            "RootDeviceName": _ROOT_DEVICE,
            "BlockDeviceMappings": [
                {
                    "DeviceName": _ROOT_DEVICE,
                    "Ebs": {
                        "SnapshotId": snapshot,
                        "VolumeType": "gp3",
                        "DeleteOnTermination": True,
                    },
                }
            ],
            "VirtualizationType": "hvm",
            "EnaSupport": True,
            "ImdsSupport": "v2.0",
            # On amd64 also BIOS, for machine types without UEFI.
            "BootMode": "uefi-preferred" if manifest.architecture == "amd64" else "uefi",
            "TagSpecifications": [{"ResourceType": "image", "Tags": _encode_tags(tags)}],
        }
        image = self._call("RegisterImage", lambda ec2: ec2.register_image(**asked)["ImageId"])
        if image is None:
            same = self._list_marked("images", tags, Owners=["self"])
            if not same:
                raise PublicationRefused(f"AWS has another AMI of the name {name}; deregister it")
            image = same[0]["ImageId"]
        # A new AMI may be missing in the replies at first.
        return self._await(image, "available", "pending", "transient", "gone")

    def _await(self, upload_id: str, wanted: str, *earlier: str) -> Any:  # noqa: ANN401 - same
        """Return an AMI or snapshot in the wanted state; raises SourceUnreachable if it fails."""
        for _ in range(_MAX_POLLS):
            found = self._describe(upload_id)
            state = found["State"] if found else "gone"
            if state == wanted:
                return found
            if state not in earlier:
                break
            self._pause(_POLL_SECONDS)
        raise SourceUnreachable(f"{upload_id} at AWS is {state}, not {wanted}; publish again")

    def _list_marked(self, kind: str, marks: Tags, **owned: Any) -> list[Any]:  # noqa: ANN401 - same
        """Return the AMIs or snapshots with the tag of this fleet, `marks` and a version."""
        wanted = {MARK: self.fleet, **marks}
        chosen = [{"Name": f"tag:{key}", "Values": [text]} for key, text in wanted.items()]
        with self._account.asked("ec2", f"Describe{kind.capitalize()}") as ec2:
            pages = ec2.get_paginator(f"describe_{kind}").paginate(Filters=chosen, **owned)
            found = [each for page in pages for each in page[kind.capitalize()]]
        ours = [each for each in found if wanted.items() <= _tags(each).items()]
        return [each for each in ours if f"{MARK}:version" in _tags(each)]

    def _describe(self, upload_id: str) -> Any | None:  # noqa: ANN401 - same
        """Return the AMI or snapshot with this id; None if it does not exist."""
        if upload_id.startswith("ami-"):
            kind, asked = "Images", {"ImageIds": [upload_id]}
        else:
            kind, asked = "Snapshots", {"SnapshotIds": [upload_id]}
        name = f"describe_{kind.lower()}"
        told = self._call(f"Describe{kind}", lambda ec2: getattr(ec2, name)(**asked))
        return next(iter(told[kind]), None) if told else None

    def _delete_snapshot(self, snapshot: str) -> None:
        self._call("DeleteSnapshot", lambda ec2: ec2.delete_snapshot(SnapshotId=snapshot))

    def _call(self, action: str, call: Callable[[Any], Any]) -> Any | None:  # noqa: ANN401 - same
        """Return the reply of EC2; None if the object is missing, or its name is taken."""
        with self._account.asked("ec2", action) as ec2:
            from botocore.exceptions import ClientError

            try:
                return call(ec2)
            except ClientError as error:
                if code_of(error) in _GONE_CODES or code_of(error) == _NAME_TAKEN_CODE:
                    return None
                raise


def _put_blocks(ebs: Any, snapshot: str, disk: Pieces, noted: Path, tell: Tell) -> None:  # noqa: ANN401 - same
    """Send all blocks of a disk that were not sent before. The file `noted` records sent ones."""

    def put(number: int) -> None:
        ebs.put_snapshot_block(
            SnapshotId=snapshot,
            BlockIndex=number,
            BlockData=disk.read(number),
            DataLength=BLOCK,
            Checksum=base64.b64encode(disk.sums[number]).decode(),
            ChecksumAlgorithm="SHA256",
        )

    keys = {number: f"{number}:{checksum.hex()}" for number, checksum in disk.sums.items()}
    with noted.open("a+") as file:
        file.seek(0)
        sent = frozenset(file.read().split())
        missing = [number for number, key in keys.items() if key not in sent]
        for number, _ in disk.map("upload", missing, put, tell, _CONCURRENT_BLOCKS):
            file.write(f"{keys[number]}\n")
            file.flush()


def _count_differing(ebs: Any, snapshot: str, disk: Pieces, tell: Tell) -> int:  # noqa: ANN401 - same
    """Read a snapshot back, and return the number of missing, additional and different blocks."""
    tokens: dict[int, str] = {}
    token: str | None = ""
    while token is not None:
        more = {"NextToken": token} if token else {}
        page = ebs.list_snapshot_blocks(SnapshotId=snapshot, **more)
        tokens |= {each["BlockIndex"]: each["BlockToken"] for each in page["Blocks"]}
        token = page.get("NextToken") or None

    def is_right(number: int) -> bool:
        told = ebs.get_snapshot_block(
            SnapshotId=snapshot, BlockIndex=number, BlockToken=tokens[number]
        )
        return hashlib.sha256(told["BlockData"].read()).digest() == disk.sums[number]

    both = sorted(disk.sums.keys() & tokens)
    right = disk.map("read back", both, is_right, tell, _CONCURRENT_BLOCKS)
    return len(disk.sums.keys() | tokens) - sum(is_equal for _, is_equal in right)


def _marks(image: str, version: str) -> Tags:
    return {f"{MARK}:image": image, f"{MARK}:version": version}


def _architecture(manifest: Manifest) -> str:
    try:
        return _ARCHITECTURES[manifest.architecture]
    except KeyError:
        raise PublicationRefused(
            f"AWS has no machines of architecture {manifest.architecture}; it has: "
            f"{', '.join(_ARCHITECTURES)}"
        ) from None


def _encode_tags(tags: Tags) -> list[Tags]:
    return [{"Key": key, "Value": text} for key, text in tags.items()]


def _tags(found: Any) -> Tags:  # noqa: ANN401 - same
    return {each["Key"]: each["Value"] for each in found.get("Tags", ())}


def _version(found: Any) -> tuple[str, str]:  # noqa: ANN401 - same
    return _tags(found)[f"{MARK}:image"], _tags(found)[f"{MARK}:version"]


def _upload(found: Any, upload_id: str, since: Any) -> Upload:  # noqa: ANN401 - same
    image, version = _version(found)
    return Upload(
        id=upload_id,
        image=image,
        version=version,
        sha256=_tags(found).get(f"{MARK}:sha256", ""),
        whole=upload_id.startswith("ami-"),
        # EC2 gives a text for images and a datetime for snapshots.
        since=since if isinstance(since, datetime) else datetime.fromisoformat(str(since)),
    )
