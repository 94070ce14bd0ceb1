"""Make builds to publish, and the places that they are published to."""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.clouds.aws.images import BLOCK, AwsPublisher
from fleet.errors import SourceUnreachable
from fleet.images.publish import Pipeline
from fleet.images.stores import Bucket, Directory, StorePublisher
from fleet.model.images import Manifest, ManifestFile, Publication, Transfer
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW
from tests.fakes.aws import Amazon
from tests.fakes.ebs import REGION, Registrar, StrictAccount
from tests.fakes.publisher import Account, FakePublisher
from tests.rigs.rescue import RescueRig

MIB = 1 << 20
VERSION = "20261121T203000Z"
PART = 5 * MIB
"""The least that S3 takes as one of several parts."""
ROTTEN = b"rotten" * 100


def some_disk(*, size: int = MIB + 512, seed: bytes = b"trixie") -> bytes:
    """Return a disk that is the same for the same seed, empty in its middle."""
    piece, quarter = hashlib.sha256(seed).digest(), size // 4
    full = (piece * (quarter // len(piece) + 1))[:quarter]
    return full + bytes(size - 2 * quarter) + full


def a_build(folder: Path, *, disk: bytes | None = None, **overrides: object) -> Manifest:
    """Write the folder of a build, and return its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"disk.raw": some_disk() if disk is None else disk, "sbom.spdx.json": b"{}\n"}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    files = {
        name: ManifestFile(sha256=sha256(each), size=len(each)) for name, each in contents.items()
    }
    described = {
        "image": "trixie",
        "version": VERSION,
        "way": "disk",
        "suite": "trixie",
        "architecture": "amd64",
        "recipe_digest": "r" * 64,
        "role_digest": "o" * 64,
        "digest": "d" * 64,
        "built_at": NOW,
        "built_by": "ana",
        "seconds": {},
        "files": files,
    }
    manifest = Manifest.model_validate(described | overrides)
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return manifest


def sha256(content: bytes) -> str:
    """Return a checksum in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@dataclass
class Watcher:
    """Hears how far an upload is; the connection breaks off at a share of it."""

    breaks_at: float = 2
    heard: list[Transfer] = field(default_factory=list)

    def __call__(self, transfer: Transfer) -> None:
        self.heard.append(transfer)
        if transfer.phase == "upload" and transfer.done >= self.breaks_at * transfer.total:
            raise SourceUnreachable("the connection broke off")

    def last(self, phase: str) -> Transfer:
        """Return what was said last of a phase."""
        return [each for each in self.heard if each.phase == phase][-1]


@dataclass
class Place:
    """Somewhere to publish to."""

    open: Callable[..., Pipeline]
    """Open it for a fleet; `later` is how much later than NOW."""
    holds: Callable[[Publication], bytes]
    """Tell what machines would boot."""
    spoil: Callable[[], None]
    """Change the bytes of every disk that it holds."""
    keeps_partial: bool = True
    """Whether what was uploaded stays when the connection breaks off."""


def fake_place(_: pytest.FixtureRequest, __: ExitStack, ___: Path) -> Place:
    """Return a place in memory."""
    account = Account()
    return Place(
        lambda fleet, later=timedelta(0): Pipeline(FakePublisher(account, fleet, NOW + later)),
        lambda published: bytes(account.content[published.id]),
        lambda: None,
    )


def directory_place(_: pytest.FixtureRequest, __: ExitStack, folder: Path) -> Place:
    """Return a directory."""
    root = folder / "published"

    def opened(fleet: str, later: timedelta = timedelta(0)) -> Pipeline:
        return Pipeline(StorePublisher(Directory(root), fleet, now=lambda: NOW + later))

    def spoil() -> None:
        for disk in root.rglob("disk.raw"):
            disk.write_bytes(ROTTEN)

    return Place(opened, lambda it: Path(it.id.removeprefix("file://")).read_bytes(), spoil)


def moto_place(request: pytest.FixtureRequest, _: ExitStack, __: Path) -> Place:
    """Return a prefix of a bucket of moto's."""
    return _bucket_place(request, "moto")


def s3_place(request: pytest.FixtureRequest, _: ExitStack, __: Path) -> Place:
    """Return a prefix of a real server's bucket."""
    return _bucket_place(request, "s3")


def _bucket_place(request: pytest.FixtureRequest, kind: str) -> Place:
    from tests.rigs.backends import backend_url

    url = backend_url(request, kind).replace("?", "/images?")

    def opened(fleet: str, later: timedelta = timedelta(0)) -> Pipeline:
        shelf = Bucket(url, part_bytes=PART)
        return Pipeline(StorePublisher(shelf, fleet, now=lambda: NOW + later))

    def holds(it: Publication) -> bytes:
        bucket = Bucket(url)
        return b"".join(bucket.pieces(it.id.removeprefix(f"{bucket.address}/")))

    def spoil() -> None:
        bucket = Bucket(url)
        for key in bucket.keys(""):
            if key.endswith("disk.raw"):
                bucket.write(key, ROTTEN)

    return Place(opened, holds, spoil)


def hcloud_place(_: pytest.FixtureRequest, stack: ExitStack, folder: Path) -> Place:
    """Return a simulated project of Hetzner Cloud."""
    api = stack.enter_context(SimulatedHetzner(now=lambda: NOW))
    rig = RescueRig(folder / "hetzner", api)

    def spoil() -> None:
        rig.disk.write_bytes(ROTTEN)

    return Place(
        lambda fleet, **_: rig.publisher(fleet),
        lambda it: rig.snapshots[int(it.id)],
        spoil,
        keeps_partial=False,
    )


def aws_place(_: pytest.FixtureRequest, stack: ExitStack, __: Path) -> Place:
    """Return an account at AWS, as moto plays it behind what it lacks."""
    stack.enter_context(Amazon())
    there = Registrar()

    def opened(fleet: str, later: timedelta = timedelta(0)) -> Pipeline:
        account = StrictAccount(REGION, there, NOW + later)
        return Pipeline(AwsPublisher(fleet, REGION, account=account, pause=lambda _: None))

    def spoil() -> None:
        for blocks in amazon_blocks():
            for block in blocks.values():
                block.block_data = b"rotten".ljust(BLOCK, b"\0")

    return Place(opened, lambda it: there.volume(it.id), spoil)


def amazon_blocks() -> list[dict[int, Any]]:
    """Return the blocks that moto keeps, to be spoilt."""
    from moto.ebs.models import ebs_backends

    accounts = [backend for regions in ebs_backends.values() for backend in regions.values()]
    return [each.blocks for backend in accounts for each in backend.snapshots.values()]


PLACES = (
    *(fake_place, directory_place),
    # What is of the last two alone: tests/images/test_publish_hcloud.py and test_publish_aws.py.
    *(
        pytest.param(each, marks=pytest.mark.slow)
        for each in (moto_place, hcloud_place, aws_place)
    ),
    pytest.param(s3_place, marks=pytest.mark.engine),
)
