"""This module looks into a disk image without mounting it, as any user.

A qcow2 disk is unpacked into a file without a name, so that nothing is left however this ends.
"""

import json
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from posixpath import basename, dirname, normpath
from typing import IO, Any

from fleet.errors import FileUnreadable
from fleet.images.checks import Node
from fleet.images.programs import need

_ESP = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
_LOADERS = (b"BOOTX64.EFI", b"BOOTAA64.EFI", b"BOOTRISCV64.EFI", b"BOOTARM.EFI")
_NO_LOADER = (
    "/EFI/BOOT holds no boot loader, or there is no EFI system partition: UEFI starts nothing "
    "from this disk; build the image again"
)
_SECTOR = 512
_FAST_LINK = 60
"""A link that is shorter than this lies in its inode."""
_LONGEST = 1 << 20
"""Bytes of a file that are read at most; nothing that is checked is longer."""
_SECONDS = 120


class Disk:
    """A disk image that is open: its partitions and the root file system."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self._partitions = self._read_partitions()

    @property
    def root(self) -> "Ext4":
        """Return the file system that the machine starts from; FileUnreadable without one."""
        for start, kind in self._partitions:
            if kind != _ESP:
                tree = Ext4(self._file, start * _SECTOR)
                if tree.is_ext4 and tree.names("/etc"):
                    return tree
        raise FileUnreadable(
            f"{self._name}: no partition of it is an ext4 root file system: build the image again"
        )

    def problems(self) -> tuple[str, ...]:
        """Return what is wrong with the disk beside its root file system."""
        for start, kind in self._partitions:
            image = f"{_descriptor(self._file)}@@{start * _SECTOR}"
            listed = kind == _ESP and _run(self._file, "mdir", "-b", "-i", image, "::/EFI/BOOT")
            if listed and any(each in listed.stdout.upper() for each in _LOADERS):
                return ()
        return (_NO_LOADER,)

    def _read_partitions(self) -> list[tuple[int, str]]:
        read = _run(self._file, "sfdisk", "--json", _descriptor(self._file))
        if read.returncode:
            raise FileUnreadable(f"{self._name}: no partition table: {_last(read.stderr)}")
        table: dict[str, Any] = json.loads(read.stdout)["partitiontable"]
        return [(int(each["start"]), str(each["type"])) for each in table.get("partitions", ())]


class Ext4:
    """A file system of type ext4, in a file, from some byte on."""

    def __init__(self, file: IO[bytes], offset: int = 0) -> None:
        self._file = file
        self._image = f"{_descriptor(file)}?offset={offset}"
        # What does not change is asked for once.
        self._listed = cache(self._list)
        self.is_ext4 = bool(self._listed("/"))

    def node(self, path: str) -> Node | None:
        """Return what lies there; None where nothing does."""
        path = normpath(path)
        found = self._listed(dirname(path)).get(basename(path) or ".")
        if found is None:
            return None
        inode, mode, uid, gid, size = found
        target = self._target(inode, size) if stat.S_ISLNK(mode) else ""
        return Node(mode, uid, gid, size, target)

    def names(self, path: str) -> tuple[str, ...]:
        """Return what a folder holds, sorted; nothing where there is none."""
        return tuple(sorted(name for name in self._listed(path) if name not in (".", "..")))

    def text(self, path: str) -> str:
        """Return what a file holds; empty where there is none."""
        found = self._listed(dirname(path)).get(basename(path))
        if found is None or not stat.S_ISREG(found[1]) or found[-1] > _LONGEST:
            return ""
        return self._ask(f"cat <{found[0]}>").decode(errors="replace")

    def _list(self, path: str) -> dict[str, tuple[int, int, int, int, int]]:
        if re.search(r'["\n]', path):
            raise FileUnreadable(f"the image holds a path that cannot be looked at: {path!r}")
        found = {}
        for line in (
            self._ask(f'ls -p "{path.rstrip("/")}/"').decode(errors="replace").splitlines()
        ):
            # /inode/mode/uid/gid/name/size/
            fields = line.split("/")
            if len(fields) == len(("", "inode", "mode", "uid", "gid", "name", "size", "")):
                _, inode, mode, uid, gid, name, size, _ = fields
                found[name] = (int(inode), int(mode, 8), int(uid), int(gid), int(size or 0))
        return found

    def _target(self, inode: int, size: int) -> str:
        if size >= _FAST_LINK:
            return self._ask(f"cat <{inode}>").decode(errors="replace")
        told = re.search(rb'^Fast link dest: "(.*)"$', self._ask(f"stat <{inode}>"), re.MULTILINE)
        return told[1].decode(errors="replace") if told else ""

    def _ask(self, request: str) -> bytes:
        return _run(self._file, "debugfs", "-R", request, self._image).stdout


@contextmanager
def open_disk(path: Path) -> Iterator[Disk]:
    """Open a disk image, raw or qcow2, for looking at it; it is not changed."""
    if path.suffix != ".qcow2":
        with path.open("rb") as file:
            yield Disk(file, str(path))
        return
    with tempfile.TemporaryFile(dir=path.parent) as file:
        _unpack(path, file)
        yield Disk(file, str(path))


def _unpack(path: Path, file: IO[bytes]) -> None:
    """Write a qcow2 disk as a raw one into a file, sparsely."""
    told = _run(file, "qemu-img", "info", "--output=json", str(path))
    if told.returncode:
        raise FileUnreadable(f"{path}: {_last(told.stderr)}")
    os.ftruncate(file.fileno(), json.loads(told.stdout)["virtual-size"])
    target = ("-n", "--target-is-zero", "-O", "raw", str(path), _descriptor(file))
    done = _run(file, "qemu-img", "convert", "-f", "qcow2", *target)
    if done.returncode:
        raise FileUnreadable(f"{path}: {_last(done.stderr)}")


def _descriptor(file: IO[bytes]) -> str:
    return f"/dev/fd/{file.fileno()}"


def _run(file: IO[bytes], program: str, *args: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a program that reads the open file; it speaks English whoever asks."""
    return subprocess.run(  # noqa: S603 - programs of this module's own choice
        [need(program), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=_SECONDS,
        pass_fds=(file.fileno(),),
        env={**os.environ, "LC_ALL": "C.UTF-8", "PAGER": "cat", "DEBUGFS_PAGER": "cat"},
    )


def _last(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no error message"
