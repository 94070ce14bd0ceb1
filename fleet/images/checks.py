"""Check the root file system and the disk of a built image.

There are two kinds of problems: a worker's files are missing, or all machines would share an
identity or secret (name, key, token). The disk is read without mounting it. A qcow2 disk is
unpacked into an unnamed file, which the kernel removes even if this process is killed.
"""

import json
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from posixpath import basename, dirname, join, normpath
from typing import IO, Any, Protocol

from fleet.errors import FileUnreadable
from fleet.images.programs import last_line, run_on
from fleet.schema.model import ImageRecipe, PlaybookRecipe, Recipe

WORKER = "debusine-worker"
_CONFIG = "/etc/debusine/worker"
_HOME = "/var/lib/debusine/worker"
_ROOT_HOME = "/root"
_UNITS = "/etc/systemd/system"
_UNIT = f"{WORKER}.service"
_NETWORKS = ("systemd-networkd.service", "networking.service", "NetworkManager.service")
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_FOLDER_MODE = 0o755
_MAX_LINKS = 8
"""Maximum number of symbolic links to follow in the path of a program."""
_QEMU_ARCHITECTURES = {
    "amd64": "x86_64",
    "i386": "i386",
    "arm64": "aarch64",
    "armhf": "arm",
    "ppc64el": "ppc64le",
    "riscv64": "riscv64",
    "s390x": "s390x",
}
_INCUS = ("incus", "autopkgtest-virt-incus", "dnsmasq")
_BACKEND_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "unshare": ("unshare", "newuidmap", "newgidmap", "ip"),
    "qemu": ("qemu-img", "autopkgtest-virt-qemu"),
    "incus": (*_INCUS, "qemu-img"),
    "incus-lxc": _INCUS,
    "incus-vm": (*_INCUS, "qemu-img"),
}
_TASK_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "autopkgtest": ("autopkgtest",),
    "sbuild": ("sbuild",),
    "mmdebstrap": ("mmdebstrap", "arch-test"),
    "simplesystemimagebuild": ("mmdebstrap", "debefivm-create", "mcopy", "sfdisk"),
}
_REBUILD = "remove it at the end of the build and build again"


@dataclass(frozen=True)
class FileNode:
    """A file, folder or symbolic link of an image. `target` is empty except for a link."""

    mode: int
    uid: int
    gid: int
    size: int
    target: str = ""


class Tree(Protocol):
    """The files of an image. Paths are absolute. A link at the end of a path is not followed."""

    def node(self, path: str) -> FileNode | None:
        """Return the file, folder or link at a path; None if the path does not exist."""

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; empty if the folder does not exist."""

    def text(self, path: str) -> str:
        """Return the content of a file; empty if the file does not exist."""


def check_image(tree: Tree, recipe: Recipe) -> tuple[str, ...]:
    """Return the problems of an image that was built with this recipe; empty without problems."""
    if isinstance(recipe, PlaybookRecipe):
        checks = (_check_identity, _check_leftovers, _check_secrets)
        return tuple(problem for check in checks for problem in check(tree, recipe))
    return tuple(problem for check in _CHECKS for problem in check(tree, recipe))


def _check_service(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    places = (_UNITS, "/usr/lib/systemd/system", "/lib/systemd/system")
    units = [found for each in places if (found := _resolve(tree, f"{each}/{_UNIT}"))]
    if not units:
        yield f"/usr/lib/systemd/system/{_UNIT} is missing: install the package {WORKER}"
    elif any(each.target == "/dev/null" for each in units):
        yield f"{_UNITS}/{_UNIT} masks the worker: it never starts; remove that link"
    elif not _is_wanted(tree, _UNIT):
        yield (
            f"{_UNITS}/multi-user.target.wants/{_UNIT} is missing, so that no boot starts the "
            f"worker: have the build run `systemctl enable {_UNIT}`"
        )


def _check_network(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    if not any(_is_wanted(tree, unit) for unit in _NETWORKS):
        yield (
            f"{_UNITS}/multi-user.target.wants/{_NETWORKS[0]} is missing, and nothing else that "
            f"brings up the network: have the build run `systemctl enable {_NETWORKS[0]}`"
        )


def _is_wanted(tree: Tree, unit: str) -> bool:
    """Return whether systemd starts a unit at boot."""
    wants = [each for each in tree.names(_UNITS) if each.endswith((".wants", ".requires"))]
    return any(unit in tree.names(f"{_UNITS}/{each}") for each in wants)


def _check_permissions(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    ids = _worker_ids(tree)
    if ids is None:
        yield f"/etc/passwd knows no user {WORKER}: install the package {WORKER}"
        return
    for path, why in (
        (_CONFIG, "the worker writes its token there"),
        (_HOME, "the worker works there, and mapped users of unshare have to enter it"),
    ):
        found = tree.node(path)
        if found is None or not stat.S_ISDIR(found.mode):
            yield f"{path} is no folder ({why}): make it, owned by {WORKER}, mode 0755"
            continue
        if (found.uid, found.gid) != ids:
            yield (
                f"{path} belongs to {found.uid}:{found.gid}, {WORKER} is {ids[0]}:{ids[1]} "
                f"({why}): give it to {WORKER}"
            )
        if stat.S_IMODE(found.mode) != _FOLDER_MODE:
            yield f"{path} has mode {stat.S_IMODE(found.mode):04o} ({why}): make it 0755"


def _check_subordinate_ids(tree: Tree, recipe: ImageRecipe) -> Iterator[str]:
    if "unshare" not in recipe.enable_backends:
        return
    for path in ("/etc/subuid", "/etc/subgid"):
        if not any(line.startswith(f"{WORKER}:") for line in tree.text(path).splitlines()):
            yield (
                f"{path} gives {WORKER} no range, so that unshare maps no users: have the build "
                f"run `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {WORKER}`"
            )


def _check_configuration(tree: Tree, recipe: ImageRecipe) -> Iterator[str]:
    path = f"{_CONFIG}/config.ini"
    text = tree.text(path)
    if recipe.api_url is None:
        if tree.node(path):
            yield (
                f"{path} is there, yet the recipe has no api_url: the worker would start before "
                "its user data came; remove it, or write api_url into fleet.yaml"
            )
    elif recipe.api_url.rstrip("/") not in text:
        yield f"{path} does not say {recipe.api_url}, the recipe's api_url: build the image again"


def _check_programs(tree: Tree, recipe: ImageRecipe) -> Iterator[str]:
    machine = _QEMU_ARCHITECTURES.get(recipe.architecture, recipe.architecture)
    wanted = [
        *((f"backend {each}", _BACKEND_PROGRAMS[each]) for each in recipe.enable_backends),
        *((f"task {each}", _TASK_PROGRAMS[each]) for each in recipe.enable_tasks),
    ]
    wanted += [
        (f"backend {each}", (f"qemu-system-{machine}",))
        for each in recipe.enable_backends
        if each in ("qemu", "incus", "incus-vm")
    ]
    if not _has_program(tree, "cloud-init"):
        yield "/usr/bin/cloud-init is missing, so that no token arrives: install cloud-init"
    for what, programs in wanted:
        for program in programs:
            if not _has_program(tree, program):
                yield (
                    f"/usr/bin/{program} is missing, which {what} needs: install its package "
                    f"(role debusine_worker), or leave {what.split()[1]} out of the recipe"
                )


def _check_identity(tree: Tree, _: Recipe) -> Iterator[str]:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        found = tree.node(path)
        if found and not found.target and tree.text(path).strip() not in ("", "uninitialized"):
            yield f"{path} has an id that all machines would share: empty it"
    name = tree.text("/etc/hostname").strip()
    if name not in ("", "localhost"):
        yield (
            f"/etc/hostname says {name}, the builder's name or one that all machines would "
            "share: write localhost into it"
        )
    found = tree.node("/etc/resolv.conf")
    if found and not found.target and _strip_comments(tree.text("/etc/resolv.conf")):
        yield (
            "/etc/resolv.conf has the builder's name servers: replace it by a link to "
            "../run/systemd/resolve/stub-resolv.conf"
        )


_REMOVE_LISTS = "run `rm -r /var/lib/apt/lists/*` at the end of the build"
_CLEAN_CACHES = "run `apt-get clean` at the end of the build"
_LEFTOVERS = (
    (f"{_ROOT_HOME}/.ansible", "is Ansible's own folder", _REBUILD),
    (f"{_ROOT_HOME}/.bash_history", "is the history of typed commands", _REBUILD),
    ("/var/lib/cloud/instance", "is cloud-init's data of another machine", _REBUILD),
    ("/var/lib/systemd/credential.secret", "is a key that all machines would share", _REBUILD),
    ("/var/lib/systemd/random-seed", "is a seed that all machines would share", _REBUILD),
    ("/var/log/journal/*", "is the journal of another machine", _REBUILD),
)
_DEBIAN_LEFTOVERS = (
    ("/etc/cloud/cloud-init.disabled", "keeps the token from arriving", "remove it"),
    ("/usr/sbin/policy-rc.d", "keeps services from starting", _REBUILD),
    ("/var/lib/apt/lists/*", "still there", _REMOVE_LISTS),
    ("/var/lib/apt/lists/partial/*", "still there", _REMOVE_LISTS),
    ("/var/cache/apt/*", "still there", _CLEAN_CACHES),
    ("/var/cache/apt/archives/*", "still there", _CLEAN_CACHES),
    ("/var/cache/apt/archives/partial/*", "still there", _CLEAN_CACHES),
)
_EMPTY_FOLDER_NAMES = ("archives", "auxfiles", "lock", "partial")
"""Names that remain in apt's folders after these are cleaned."""


def _check_apt_leftovers(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    yield from _find_leftovers(tree, _DEBIAN_LEFTOVERS)
    for path in _expand(tree, "/etc/apt/apt.conf.d/*"):
        told = _strip_comments(tree.text(path)).lower()
        if basename(path) == "99mmdebstrap" or "check-valid-until" in told or "::proxy" in told:
            yield f"{path} configures the builder's apt: {_REBUILD}"


def _check_leftovers(tree: Tree, _: Recipe) -> Iterator[str]:
    yield from _find_leftovers(tree, _LEFTOVERS)


def _find_leftovers(tree: Tree, table: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield a problem per pattern that matches files. Rows are (pattern, problem, advice)."""
    for pattern, what, do in table:
        found = [
            path for path in _expand(tree, pattern) if basename(path) not in _EMPTY_FOLDER_NAMES
        ]
        if found:
            more = f" and {len(found) - 1} more" if found[1:] else ""
            yield f"{found[0]}{more} {what}: {do}"


_SECRETS = (
    *(f"{_CONFIG}/activation-token", f"{_CONFIG}/token", f"{_ROOT_HOME}/.netrc"),
    *("/etc/apt/auth.conf", "/etc/apt/auth.conf.d/*", "/etc/ssh/ssh_host_*"),
    *(f"{_ROOT_HOME}/.ssh/*", "/home/*/.ssh/*", "/etc/ssl/private/*"),
)


def _check_secrets(tree: Tree, _: Recipe) -> Iterator[str]:
    for path in (path for pattern in _SECRETS for path in _expand(tree, pattern)):
        found = tree.node(path)
        if found and found.size and not stat.S_ISDIR(found.mode):
            yield f"{path} is a secret that every machine and every reader would get: {_REBUILD}"
    for line in tree.text("/etc/shadow").splitlines():
        name, password = (*line.split(":"), "")[:2]
        if not password.startswith(("!", "*")):
            yield (
                f"/etc/shadow gives {name} {'a password' if password else 'an empty password'}: "
                f"have the build run `passwd --lock {name}`"
            )


def _expand(tree: Tree, pattern: str) -> list[str]:
    """Return the paths that match a glob pattern, sorted. `*` matches within one name."""
    paths = [""]
    for part in pattern[1:].split("/"):
        # A part without `*` needs no listing of the folder.
        paths = [
            f"{path}/{name}"
            for path in paths
            for name in (tree.names(path) if "*" in part else (part,))
            if fnmatchcase(name, part)
        ]
    return [path for path in paths if tree.node(path)]


_CHECKS: tuple[Callable[[Tree, ImageRecipe], Iterator[str]], ...] = (
    _check_service,
    _check_network,
    _check_permissions,
    _check_subordinate_ids,
    _check_configuration,
    _check_programs,
    _check_identity,
    _check_apt_leftovers,
    _check_leftovers,
    _check_secrets,
)


def _worker_ids(tree: Tree) -> tuple[int, int] | None:
    for line in tree.text("/etc/passwd").splitlines():
        name, _, uid, gid, *_ = (*line.split(":"), "", "", "", "")
        if name == WORKER and uid.isdecimal() and gid.isdecimal():
            return int(uid), int(gid)
    return None


def _has_program(tree: Tree, program: str) -> bool:
    """Return whether a program is in the PATH of the worker."""
    for folder in _PATH:
        found = _resolve(tree, f"{folder}/{program}")
        if found and stat.S_ISREG(found.mode) and found.mode & stat.S_IXOTH:
            return True
    return False


def _resolve(tree: Tree, path: str) -> FileNode | None:
    """Return the node at a path after following links, except to /dev/null; None if absent."""
    for _ in range(_MAX_LINKS):
        found = tree.node(path)
        if found is None or not found.target or found.target == "/dev/null":
            return found
        path = normpath(join(dirname(path), found.target))
    return None


def _strip_comments(text: str) -> str:
    """Return a configuration text without comments and blank lines."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("#", "//", ";")))


_ESP = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
_LOADERS = (b"BOOTX64.EFI", b"BOOTAA64.EFI", b"BOOTRISCV64.EFI", b"BOOTARM.EFI")
_NO_LOADER = (
    "/EFI/BOOT has no boot loader, or there is no EFI system partition: UEFI starts nothing "
    "from this disk; build the image again"
)
_SECTOR = 512
_MIN_SLOW_LINK = 60
"""Minimum length in bytes of a link target that ext4 stores outside of the inode."""
_UNPACK_SECONDS = 1800
"""Time limit for unpacking a disk."""
_MAX_FILE_BYTES = 1 << 20
"""Maximum size of a file to read. Every checked file is smaller."""


class OpenDiskImage:
    """An open disk image, with its partitions and root file system."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        failing = f"{name}: no partition table"
        read = run_on(file, "sfdisk", "--json", _descriptor(file), failing=failing)
        table: dict[str, Any] = json.loads(read.stdout)["partitiontable"]
        self._partitions = [
            (int(each["start"]), str(each["type"])) for each in table.get("partitions", ())
        ]

    @property
    def root(self) -> "Ext4":
        """Return the root file system; raises FileUnreadable if no partition has an ext4 root."""
        for start, kind in self._partitions:
            if kind != _ESP:
                tree = Ext4(self._file, start * _SECTOR)
                if tree.is_ext4 and tree.names("/etc"):
                    return tree
        raise FileUnreadable(
            f"{self._name}: no partition of it is an ext4 root file system: build the image again"
        )

    def problems(self) -> tuple[str, ...]:
        """Return the problems of the disk outside of the root file system."""
        for start, kind in self._partitions:
            image = f"{_descriptor(self._file)}@@{start * _SECTOR}"
            listed = kind == _ESP and run_on(self._file, "mdir", "-b", "-i", image, "::/EFI/BOOT")
            if listed and any(each in listed.stdout.upper() for each in _LOADERS):
                return ()
        return (_NO_LOADER,)


class Ext4:
    """An ext4 file system at an offset of a file."""

    def __init__(self, file: IO[bytes], offset: int = 0) -> None:
        self._file = file
        self._image = f"{_descriptor(file)}?offset={offset}"
        # The image does not change, so list each folder only once.
        self._listed = cache(self._list)
        self.is_ext4 = bool(self._listed("/"))

    def node(self, path: str) -> FileNode | None:
        """Return the file, folder or link at a path; None if the path does not exist."""
        path = normpath(path)
        found = self._listed(dirname(path)).get(basename(path) or ".")
        if found is None:
            return None
        inode, mode, uid, gid, size = found
        target = self._read_link(inode, size) if stat.S_ISLNK(mode) else ""
        return FileNode(mode, uid, gid, size, target)

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; empty if the folder does not exist."""
        return tuple(sorted(name for name in self._listed(path) if name not in (".", "..")))

    def text(self, path: str) -> str:
        """Return the content of a file; empty if the file is missing or over 1 MiB."""
        found = self._listed(dirname(path)).get(basename(path))
        if found is None or not stat.S_ISREG(found[1]) or found[-1] > _MAX_FILE_BYTES:
            return ""
        return self._debugfs(f"cat <{found[0]}>").decode(errors="replace")

    def copy(self, folder: Path) -> None:
        """Copy all files into a folder, with owners and modes. This needs root."""
        dumped = self._run("-R", f'rdump / "{folder}"')
        if dumped.returncode or not (folder / "etc").is_dir():
            raise FileUnreadable(f"{folder}: debugfs copied no root: {last_line(dumped.stderr)}")
        # debugfs sets the owner after the mode, and chown clears setuid, setgid and sticky bits.
        below = (path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())
        places = [f"/{path.relative_to(folder)}" for path in below]
        asked = "".join(f'ls -p "{place}"\n' for place in ("/", *places) if '"' not in place)
        told = self._run("-f", "/dev/stdin", stdin=asked.encode())
        place = ""
        for line in told.stdout.decode(errors="replace").splitlines():
            if begun := re.fullmatch(r'debugfs: ls -p "(.*)"', line):
                place = begun[1]
            elif (found := self._parse_entry(line)) and found[1][1] & _SPECIAL_BITS:
                path = folder / place.lstrip("/") / found[0]
                if not path.is_symlink():
                    path.chmod(stat.S_IMODE(found[1][1]))

    def _list(self, path: str) -> dict[str, tuple[int, int, int, int, int]]:
        if re.search(r'["\n]', path):
            raise FileUnreadable(f"the image has a path that cannot be read: {path!r}")
        listed = self._debugfs(f'ls -p "{path.rstrip("/")}/"').decode(errors="replace")
        return dict(filter(None, map(self._parse_entry, listed.splitlines())))

    @staticmethod
    def _parse_entry(line: str) -> tuple[str, tuple[int, int, int, int, int]] | None:
        """Parse a line of a listing, /inode/mode/uid/gid/name/size/; None for other lines."""
        fields = line.split("/")
        if len(fields) != len(("", "inode", "mode", "uid", "gid", "name", "size", "")):
            return None
        _, inode, mode, uid, gid, name, size, _ = fields
        return name, (int(inode), int(mode, 8), int(uid), int(gid), int(size or 0))

    def _run(self, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        command = ("debugfs", *words, self._image)
        return run_on(self._file, *command, stdin=stdin, seconds=_UNPACK_SECONDS)

    def _read_link(self, inode: int, size: int) -> str:
        if size >= _MIN_SLOW_LINK:
            return self._debugfs(f"cat <{inode}>").decode(errors="replace")
        told = re.search(
            rb'^Fast link dest: "(.*)"$', self._debugfs(f"stat <{inode}>"), re.MULTILINE
        )
        return told[1].decode(errors="replace") if told else ""

    def _debugfs(self, request: str) -> bytes:
        return run_on(self._file, "debugfs", "-R", request, self._image).stdout


_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


@contextmanager
def open_disk(path: Path) -> Iterator[OpenDiskImage]:
    """Open a raw or qcow2 disk image for reading."""
    is_packed = path.suffix == ".qcow2"
    with tempfile.TemporaryFile(dir=path.parent) if is_packed else path.open("rb") as file:
        if is_packed:
            unpack_disk(path, file)
        yield OpenDiskImage(file, str(path))


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
