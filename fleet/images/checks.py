"""Look into a disk image without mounting it, and check the root file system of an image.

A qcow2 disk is unpacked into an unnamed file, which the kernel removes even if this process is
killed. The checks (`checks_inside.py`) run on a copy of the root file system, or on the machine
that becomes a snapshot.
"""

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import IO, Any, Protocol

from fleet.errors import FileUnreadable, FleetError, SourceUnreachable
from fleet.images.programs import as_root, held, last_line, run_on
from fleet.schema.model import Recipe

_CHECKS = Path(__file__).with_name("checks_inside.py")
_ESP = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
_LOADERS = (b"BOOTX64.EFI", b"BOOTAA64.EFI", b"BOOTRISCV64.EFI", b"BOOTARM.EFI")
_NO_LOADER = (
    "/EFI/BOOT has no boot loader, or there is no EFI system partition: UEFI starts nothing "
    "from this disk; build the image again"
)
_SECTOR = 512
_UNPACK_SECONDS = 1800
"""Time limit for unpacking a disk."""
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_COPY_PREFIX = ".jobs-"
"""Name prefix of folders that contain a copy of a root file system."""


class RootShell(Protocol):
    """A computer that runs shell scripts as root: this one, or a rented one over ssh."""

    def start(self, script: str, log: Path) -> "subprocess.Popen[bytes]":
        """Start a script. Append its standard error to the log."""

    def run(self, script: str, sent: bytes = b"") -> str:
        """Run a script with `sent` as standard input; return the standard output."""


def check_root(root: Path, recipe: Recipe) -> tuple[str, ...]:
    """Return the problems of a copied root file system; empty without problems."""
    command = as_root(sys.executable, _CHECKS, root, recipe.model_dump_json())
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - ourselves
    if done.returncode:
        raise FleetError(f"{root} cannot be checked: {last_line(done.stderr)}")
    return tuple(json.loads(done.stdout))


def check_machine(machine: RootShell, recipe: Recipe) -> tuple[str, ...]:
    """Return the problems of the root file system of a machine; empty without problems."""
    script = f"python3 - / {quote(recipe.model_dump_json())}"
    answer = machine.run(script, _CHECKS.read_bytes())
    try:
        return tuple(json.loads(answer))
    except ValueError:
        raise SourceUnreachable(
            f"asked for its problems, the machine answers {answer[:60]!r}: does the shell of its "
            "root print something?"
        ) from None


class OpenDiskImage:
    """An open disk image, with its partitions and root file system."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        failing = f"{name}: no partition table"
        read = run_on(file, "sfdisk", "--json", _descriptor(file), failing=failing)
        table: dict[str, Any] = json.loads(read.stdout)["partitiontable"]
        self._partitions = [
            (int(each["start"]) * _SECTOR, str(each["type"]))
            for each in table.get("partitions", ())
        ]

    def problems(self) -> tuple[str, ...]:
        """Return the problems of the disk outside of the root file system."""
        for start, kind in self._partitions:
            image = f"{_descriptor(self._file)}@@{start}"
            listed = kind == _ESP and run_on(self._file, "mdir", "-b", "-i", image, "::/EFI/BOOT")
            if listed and any(each in listed.stdout.upper() for each in _LOADERS):
                return ()
        return (_NO_LOADER,)

    def text(self, path: str) -> str:
        """Return the content of a file of the root file system; empty if it does not exist."""
        return self._run_on_root("debugfs", "-R", f"cat {path}").stdout.decode(errors="replace")

    def copy(self, folder: Path) -> None:
        """Copy all files of the root file system into a folder, with owners and modes."""
        dumped = self._run_on_root(*as_root("debugfs"), "-R", f'rdump / "{folder}"')
        if dumped.returncode or not (folder / "etc").is_dir():
            raise FileUnreadable(f"{folder}: debugfs copied no root: {last_line(dumped.stderr)}")
        if os.geteuid() == 0:
            self._restore_special_bits(folder)

    def _restore_special_bits(self, folder: Path) -> None:
        """Set the bits that debugfs lost: it sets the owner last, and chown clears these bits."""
        below = (path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())
        places = [f"/{path.relative_to(folder)}" for path in below]
        asked = "".join(f'ls -p "{place}"\n' for place in ("/", *places) if '"' not in place)
        told = self._run_on_root("debugfs", "-f", "/dev/stdin", stdin=asked.encode())
        place = ""
        for line in told.stdout.decode(errors="replace").splitlines():
            # A listing has lines /inode/mode/uid/gid/name/size/.
            _, _, mode, _, _, name, *_ = (*line.split("/"), *[""] * 6)
            if begun := re.fullmatch(r'debugfs: ls -p "(.*)"', line):
                place = begun[1]
            elif name and mode.isdecimal() and int(mode, 8) & _SPECIAL_BITS:
                path = folder / place.lstrip("/") / name
                if not path.is_symlink():
                    path.chmod(stat.S_IMODE(int(mode, 8)))

    def _run_on_root(
        self, *command: str, stdin: bytes = b""
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a command of debugfs on the root file system; raises FileUnreadable without one."""
        for start, kind in self._partitions:
            image = f"{_descriptor(self._file)}?offset={start}"
            found = kind != _ESP and run_on(self._file, "debugfs", "-R", "stat /etc", image).stdout
            if found:
                return run_on(self._file, *command, image, stdin=stdin, seconds=_UNPACK_SECONDS)
        raise FileUnreadable(
            f"{self._name}: no partition of it is an ext4 root file system: build the image again"
        )


@contextmanager
def open_disk(path: Path) -> Iterator[OpenDiskImage]:
    """Open a raw or qcow2 disk image for reading."""
    is_packed = path.suffix == ".qcow2"
    with tempfile.TemporaryFile(dir=path.parent) if is_packed else path.open("rb") as file:
        if is_packed:
            unpack_disk(path, file)
        yield OpenDiskImage(file, str(path))


@contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """Lock and create a folder for a copied root file system. Delete those of killed runs."""
    with held(folder / ".jobs.lock"):
        remove_trees(*folder.glob(f"{_COPY_PREFIX}*"))
        made = Path(tempfile.mkdtemp(prefix=_COPY_PREFIX, dir=folder))
        try:
            root = made / "root"
            root.mkdir(mode=0o755)
            yield root
        finally:
            remove_trees(made)


def remove_trees(*trees: Path) -> None:
    """Remove folders with files of other owners. Raises FleetError for a user who could not."""
    subprocess.run(as_root("rm", "-rf", "--", *trees), check=False)  # noqa: S603 - fleet's own


def unpack_disk(path: Path, file: IO[bytes]) -> None:
    """Convert a qcow2 disk to a sparse raw disk in an open file."""
    told = run_on(file, "qemu-img", "info", "--output=json", str(path), failing=str(path))
    os.ftruncate(file.fileno(), json.loads(told.stdout)["virtual-size"])
    convert = ("convert", "-f", "qcow2", "-n", "--target-is-zero", "-O", "raw", str(path))
    run_on(
        file, "qemu-img", *convert, _descriptor(file), seconds=_UNPACK_SECONDS, failing=str(path)
    )


def _descriptor(file: IO[bytes]) -> str:
    return f"/dev/fd/{file.fileno()}"
