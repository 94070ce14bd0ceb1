"""Check the root file system of an image: of a copy in a folder, or of a machine over ssh.

There are two kinds of problems: a worker's files are missing, or all machines would share an
identity or secret (name, key, token). The machine's Python runs this file, without any other
module of fleet. The arguments are the top folder, and the recipe as JSON. The program writes a
JSON list of the problems.
"""

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_WORKER = "debusine-worker"
_CONFIG = "etc/debusine/worker"
_HOME = "var/lib/debusine/worker"
_UNITS = "etc/systemd/system"
_UNIT = f"{_WORKER}.service"
_NETWORKS = ("systemd-networkd.service", "networking.service", "NetworkManager.service")
_PATH = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
_FOLDER_MODE = 0o755
_MAX_LINKS = 8
"""Maximum number of symbolic links to follow in the path of a program."""
_MAX_FILE_BYTES = 1 << 20
"""Maximum size of a file to read. Every checked file is smaller."""
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
_BACKEND_PROGRAMS = {
    "unshare": ("unshare", "newuidmap", "newgidmap", "ip"),
    "qemu": ("qemu-img", "autopkgtest-virt-qemu"),
    "incus": (*_INCUS, "qemu-img"),
    "incus-lxc": _INCUS,
    "incus-vm": (*_INCUS, "qemu-img"),
}
_TASK_PROGRAMS = {
    "autopkgtest": ("autopkgtest",),
    "sbuild": ("sbuild",),
    "mmdebstrap": ("mmdebstrap", "arch-test"),
    "simplesystemimagebuild": ("mmdebstrap", "debefivm-create", "mcopy", "sfdisk"),
}
_REBUILD = "remove it at the end of the build and build again"
_REMOVE_LISTS = "run `rm -r /var/lib/apt/lists/*` at the end of the build"
_CLEAN_CACHES = "run `apt-get clean` at the end of the build"
_LEFTOVERS = (
    ("root/.ansible", "is Ansible's own folder", _REBUILD),
    ("root/.bash_history", "is the history of typed commands", _REBUILD),
    ("var/lib/cloud/instance", "is cloud-init's data of another machine", _REBUILD),
    ("var/lib/systemd/credential.secret", "is a key that all machines would share", _REBUILD),
    ("var/lib/systemd/random-seed", "is a seed that all machines would share", _REBUILD),
    ("var/log/journal/*", "is the journal of another machine", _REBUILD),
)
_DEBIAN_LEFTOVERS = (
    ("etc/cloud/cloud-init.disabled", "keeps the token from arriving", "remove it"),
    ("usr/sbin/policy-rc.d", "keeps services from starting", _REBUILD),
    ("var/lib/apt/lists/*", "still there", _REMOVE_LISTS),
    ("var/lib/apt/lists/partial/*", "still there", _REMOVE_LISTS),
    ("var/cache/apt/*", "still there", _CLEAN_CACHES),
    ("var/cache/apt/archives/*", "still there", _CLEAN_CACHES),
    ("var/cache/apt/archives/partial/*", "still there", _CLEAN_CACHES),
)
_EMPTY_FOLDER_NAMES = ("archives", "auxfiles", "lock", "partial")
"""Names that remain in apt's folders after these are cleaned."""
_SECRETS = (
    *(f"{_CONFIG}/activation-token", f"{_CONFIG}/token", "root/.netrc"),
    *("etc/apt/auth.conf", "etc/apt/auth.conf.d/*", "etc/ssh/ssh_host_*"),
    *("root/.ssh/*", "home/*/.ssh/*", "etc/ssl/private/*"),
)


class Checks:
    """The checks of a root file system. Paths are relative to its top folder."""

    def __init__(self, top: str, recipe: "dict[str, Any]") -> None:
        self._top = Path(top)
        self._recipe = recipe

    def run(self) -> "list[str]":
        """Return the problems; empty without problems."""
        of_worker = (
            self._service,
            self._network,
            self._permissions,
            self._subordinate_ids,
            self._configuration,
            self._programs,
        )
        of_debian = () if "playbook" in self._recipe else of_worker
        checks = (*of_debian, self._identity, self._leftovers, self._secrets)
        return [problem for check in checks for problem in check()]

    def _service(self) -> Iterator[str]:
        places = (_UNITS, "usr/lib/systemd/system", "lib/systemd/system")
        units = [found for each in places if (found := self._resolve(f"{each}/{_UNIT}"))]
        if not units:
            yield f"/usr/lib/systemd/system/{_UNIT} is missing: install the package {_WORKER}"
        elif any(each == Path("/dev/null") for each in units):
            yield f"/{_UNITS}/{_UNIT} masks the worker: it never starts; remove that link"
        elif not self._is_wanted(_UNIT):
            yield (
                f"/{_UNITS}/multi-user.target.wants/{_UNIT} is missing, so that no boot starts "
                f"the worker: have the build run `systemctl enable {_UNIT}`"
            )

    def _network(self) -> Iterator[str]:
        if not any(map(self._is_wanted, _NETWORKS)):
            yield (
                f"/{_UNITS}/multi-user.target.wants/{_NETWORKS[0]} is missing, and nothing else "
                f"that brings up the network: have the build run `systemctl enable {_NETWORKS[0]}`"
            )

    def _is_wanted(self, unit: str) -> bool:
        """Return whether systemd starts a unit at boot."""
        folders = (*self._find(f"{_UNITS}/*.wants"), *self._find(f"{_UNITS}/*.requires"))
        return any(self._find(f"{folder}/{unit}") for folder in folders)

    def _permissions(self) -> Iterator[str]:
        users = (line.split(":") for line in self._text("etc/passwd").splitlines())
        ids = next((":".join(each[2:4]) for each in users if each[0] == _WORKER), None)
        if ids is None:
            yield f"/etc/passwd knows no user {_WORKER}: install the package {_WORKER}"
            return
        for path, why in (
            (_CONFIG, "the worker writes its token there"),
            (_HOME, "the worker works there, and mapped users of unshare have to enter it"),
        ):
            place = self._top / path
            if place.is_symlink() or not place.is_dir():
                yield f"/{path} is no folder ({why}): make it, owned by {_WORKER}, mode 0755"
                continue
            owner, mode = self.owner_of(place), stat.S_IMODE(place.stat().st_mode)
            if owner != ids:
                yield (
                    f"/{path} belongs to {owner}, {_WORKER} is {ids} ({why}): give it to {_WORKER}"
                )
            if mode != _FOLDER_MODE:
                yield f"/{path} has mode {mode:04o} ({why}): make it 0755"

    def owner_of(self, place: Path) -> str:
        """Return user and group of a folder."""
        return f"{place.stat().st_uid}:{place.stat().st_gid}"

    def _subordinate_ids(self) -> Iterator[str]:
        if "unshare" not in self._recipe["enable_backends"]:
            return
        for path in ("etc/subuid", "etc/subgid"):
            if not any(line.startswith(f"{_WORKER}:") for line in self._text(path).splitlines()):
                yield (
                    f"/{path} gives {_WORKER} no range, so that unshare maps no users: have the "
                    "build run `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "
                    f"{_WORKER}`"
                )

    def _configuration(self) -> Iterator[str]:
        path, url = f"{_CONFIG}/config.ini", self._recipe["api_url"]
        if url is None:
            if self._find(path):
                yield (
                    f"/{path} is there, yet the recipe has no api_url: the worker would start "
                    "before its user data came; remove it, or write api_url into fleet.yaml"
                )
        elif url.rstrip("/") not in self._text(path):
            yield f"/{path} does not say {url}, the recipe's api_url: build the image again"

    def _programs(self) -> Iterator[str]:
        backends, architecture = self._recipe["enable_backends"], self._recipe["architecture"]
        qemu = f"qemu-system-{_QEMU_ARCHITECTURES.get(architecture, architecture)}"
        wanted = [
            *((f"backend {each}", _BACKEND_PROGRAMS[each]) for each in backends),
            *((f"task {each}", _TASK_PROGRAMS[each]) for each in self._recipe["enable_tasks"]),
        ]
        wanted += [
            (f"backend {each}", (qemu,))
            for each in backends
            if each in ("qemu", "incus", "incus-vm")
        ]
        if not self._has_program("cloud-init"):
            yield "/usr/bin/cloud-init is missing, so that no token arrives: install cloud-init"
        for what, programs in wanted:
            for program in programs:
                if not self._has_program(program):
                    yield (
                        f"/usr/bin/{program} is missing, which {what} needs: install its package "
                        f"(role debusine_worker), or leave {what.split()[1]} out of the recipe"
                    )

    def _has_program(self, program: str) -> bool:
        """Return whether a program is in the PATH of the worker."""
        found = filter(None, (self._resolve(f"{folder}/{program}") for folder in _PATH))
        return any(each.is_file() and each.stat().st_mode & stat.S_IXOTH for each in found)

    def _identity(self) -> Iterator[str]:
        for path in ("etc/machine-id", "var/lib/dbus/machine-id"):
            if self._text(path).strip() not in ("", "uninitialized"):
                yield f"/{path} has an id that all machines would share: empty it"
        name = self._text("etc/hostname").strip()
        if name not in ("", "localhost"):
            yield (
                f"/etc/hostname says {name}, the builder's name or one that all machines would "
                "share: write localhost into it"
            )
        if _strip_comments(self._text("etc/resolv.conf")):
            yield (
                "/etc/resolv.conf has the builder's name servers: replace it by a link to "
                "../run/systemd/resolve/stub-resolv.conf"
            )

    def _leftovers(self) -> Iterator[str]:
        is_debian = "playbook" not in self._recipe
        for pattern, what, do in (*(_DEBIAN_LEFTOVERS if is_debian else ()), *_LEFTOVERS):
            found = self._find(pattern)
            found = [each for each in found if Path(each).name not in _EMPTY_FOLDER_NAMES]
            if found:
                more = f" and {len(found) - 1} more" if found[1:] else ""
                yield f"/{found[0]}{more} {what}: {do}"
        for path in self._find("etc/apt/apt.conf.d/*") if is_debian else ():
            told = _strip_comments(self._text(path)).lower()
            is_builders = path.endswith("/99mmdebstrap")
            if is_builders or "check-valid-until" in told or "::proxy" in told:
                yield f"/{path} configures the builder's apt: {_REBUILD}"

    def _secrets(self) -> Iterator[str]:
        for path in (path for pattern in _SECRETS for path in self._find(pattern)):
            found = (self._top / path).lstat()
            if found.st_size and not stat.S_ISDIR(found.st_mode):
                yield (
                    f"/{path} is a secret that every machine and every reader would get: "
                    f"{_REBUILD}"
                )
        for line in self._text("etc/shadow").splitlines():
            name, password = (*line.split(":"), "")[:2]
            if not password.startswith(("!", "*")):
                yield (
                    f"/etc/shadow gives {name} {'a password' if password else 'an empty password'}"
                    f": have the build run `passwd --lock {name}`"
                )

    def _find(self, pattern: str) -> "list[str]":
        """Return the paths that match a glob pattern, sorted, including broken links."""
        if "*" not in pattern:
            return [pattern] if os.path.lexists(self._top / pattern) else []
        return sorted(str(path.relative_to(self._top)) for path in self._top.glob(pattern))

    def _text(self, path: str) -> str:
        """Return the content of a small file; empty for a link or a missing file."""
        place = self._top / path
        if place.is_symlink() or not place.is_file() or place.stat().st_size > _MAX_FILE_BYTES:
            return ""
        return place.read_text(encoding="utf-8", errors="replace")

    def _resolve(self, path: str) -> "Path | None":
        """Return a file after following links within the top folder; None if it is missing."""
        place = self._top / path
        for _ in range(_MAX_LINKS):
            if not place.is_symlink():
                return place if place.exists() else None
            target = place.readlink()
            if target == Path("/dev/null"):
                return target
            inside = os.path.normpath(place.parent.relative_to(self._top) / target)
            place = self._top / inside.lstrip("/")
        return None


def _strip_comments(text: str) -> str:
    """Return a configuration text without comments and blank lines."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("#", "//", ";")))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(Checks(sys.argv[1], json.loads(sys.argv[2])).run()) + "\n")
