"""This module finds the disk among the files of a build, and makes it raw where it is not."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.errors import PublicationRefused
from fleet.facts.manifest import File, Manifest
from fleet.images.folder import QCOW2, RAW

_SECONDS = 1800


def disk_of(manifest: Manifest) -> tuple[str, File]:
    """Return the name of a version's disk and what it holds: what tells two versions apart."""
    for name in (QCOW2, RAW):
        if name in manifest.files:
            return name, manifest.files[name]
    raise PublicationRefused(
        f"version {manifest.version} of image {manifest.image} has no disk in its folder"
        + (": it was made as a snapshot at its provider" if manifest.way == "instance" else "")
    )


@contextmanager
def raw_disk(manifest: Manifest, folder: Path) -> Iterator[Path]:
    """Yield a version's disk as raw bytes; one that has to be made is gone afterwards."""
    if RAW in manifest.files:
        yield folder / RAW
        return
    name, _ = disk_of(manifest)
    # Beside the images, where room for disks is; it is sparse.
    with TemporaryDirectory(dir=folder.parent, prefix=".raw-") as made:
        raw = Path(made) / RAW
        _convert(folder / name, raw)
        yield raw


def _convert(source: Path, raw: Path) -> None:
    command = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(source), str(raw)]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program, no shell
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except FileNotFoundError:
        raise PublicationRefused(
            "publishing to a cloud needs qemu-img, which is not here; install qemu-utils"
        ) from None
    except subprocess.TimeoutExpired:
        raise PublicationRefused(f"{source}: qemu-img took more than {_SECONDS} s") from None
    if done.returncode:
        raise PublicationRefused(f"{source} cannot be read as a disk: {done.stderr.strip()}")
