"""This module says what is wrong with a built image, by what its root file system holds.

Each problem is a sentence with the path in the image and what to do about it. What every machine
would share (a name, a key, a token) is as wrong as what a worker would miss.
"""

import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from posixpath import dirname, join, normpath
from typing import Protocol

from fleet.schema.model import ImageRecipe

WORKER = "debusine-worker"
_CONFIG = "/etc/debusine/worker"
_HOME = "/var/lib/debusine/worker"
_ROOTS = "/root"
_UNITS = "/etc/systemd/system"
_UNIT = f"{WORKER}.service"
_NETWORKS = ("systemd-networkd.service", "networking.service", "NetworkManager.service")
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_OPEN = 0o755
_LINKS = 8
"""As many links as are followed on the way to a program."""
_QEMU = {
    "amd64": "x86_64",
    "i386": "i386",
    "arm64": "aarch64",
    "armhf": "arm",
    "ppc64el": "ppc64le",
    "riscv64": "riscv64",
    "s390x": "s390x",
}
_OF_BACKEND: Mapping[str, tuple[str, ...]] = {
    "unshare": ("unshare", "newuidmap", "newgidmap", "ip"),
    "qemu": ("qemu-img", "autopkgtest-virt-qemu"),
    "incus": ("incus", "autopkgtest-virt-incus"),
}
_OF_TASK: Mapping[str, tuple[str, ...]] = {
    "autopkgtest": ("autopkgtest",),
    "sbuild": ("sbuild",),
    "mmdebstrap": ("mmdebstrap", "arch-test"),
    "simplesystemimagebuild": ("mmdebstrap", "debefivm-create", "mcopy", "sfdisk"),
}
_AGAIN = "remove it at the end of the build and build again"


@dataclass(frozen=True)
class Node:
    """A file, folder or link of an image; `target` is where a link leads."""

    mode: int
    uid: int
    gid: int
    size: int
    target: str = ""


class Tree(Protocol):
    """The files of an image; paths are absolute, and no link at the end of one is followed."""

    def node(self, path: str) -> Node | None:
        """Return what lies there; None where nothing does."""

    def names(self, path: str) -> tuple[str, ...]:
        """Return what a folder holds, sorted; nothing where there is none."""

    def text(self, path: str) -> str:
        """Return what a file holds; empty where there is none."""


def check_image(tree: Tree, recipe: ImageRecipe) -> tuple[str, ...]:
    """Return what is wrong with an image of this recipe; nothing: it is fit for use."""
    return tuple(problem for check in _CHECKS for problem in check(tree, recipe))


def _service(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    places = (_UNITS, "/usr/lib/systemd/system", "/lib/systemd/system")
    units = [found for each in places if (found := _node(tree, f"{each}/{_UNIT}"))]
    if not units:
        yield f"/usr/lib/systemd/system/{_UNIT} is missing: install the package {WORKER}"
    elif any(each.target == "/dev/null" for each in units):
        yield f"{_UNITS}/{_UNIT} masks the worker: it never starts; remove that link"
    elif not _is_wanted(tree, _UNIT):
        yield (
            f"{_UNITS}/multi-user.target.wants/{_UNIT} is missing, so that no boot starts the "
            f"worker: have the build run `systemctl enable {_UNIT}`"
        )


def _network(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    if not any(_is_wanted(tree, unit) for unit in _NETWORKS):
        yield (
            f"{_UNITS}/multi-user.target.wants/{_NETWORKS[0]} is missing, and nothing else that "
            f"brings up the network: have the build run `systemctl enable {_NETWORKS[0]}`"
        )


def _is_wanted(tree: Tree, unit: str) -> bool:
    """Say whether a boot starts a unit."""
    wants = [each for each in tree.names(_UNITS) if each.endswith((".wants", ".requires"))]
    return any(unit in tree.names(f"{_UNITS}/{each}") for each in wants)


def _permissions(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    ids = _ids_of_worker(tree)
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
        if stat.S_IMODE(found.mode) != _OPEN:
            yield f"{path} has mode {stat.S_IMODE(found.mode):04o} ({why}): make it 0755"


def _subordinate_ids(tree: Tree, recipe: ImageRecipe) -> Iterator[str]:
    if "unshare" not in recipe.enable_backends:
        return
    for path in ("/etc/subuid", "/etc/subgid"):
        if not any(line.startswith(f"{WORKER}:") for line in tree.text(path).splitlines()):
            yield (
                f"{path} gives {WORKER} no range, so that unshare maps no users: have the build "
                f"run `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {WORKER}`"
            )


def _configuration(tree: Tree, recipe: ImageRecipe) -> Iterator[str]:
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


def _user_data(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    if not _finds(tree, "cloud-init"):
        yield "/usr/bin/cloud-init is missing, so that no token arrives: install cloud-init"
    disabled = "/etc/cloud/cloud-init.disabled"
    if tree.node(disabled):
        yield f"{disabled} keeps cloud-init from running, so that no token arrives: remove it"


def _programs(tree: Tree, recipe: ImageRecipe) -> Iterator[str]:
    machine = _QEMU.get(recipe.architecture, recipe.architecture)
    wanted = [
        *((f"backend {each}", _OF_BACKEND[each]) for each in recipe.enable_backends),
        *((f"task {each}", _OF_TASK[each]) for each in recipe.enable_tasks),
    ]
    if "qemu" in recipe.enable_backends:
        wanted.append(("backend qemu", (f"qemu-system-{machine}",)))
    for what, programs in wanted:
        for program in programs:
            if not _finds(tree, program):
                yield (
                    f"/usr/bin/{program} is missing, which {what} needs: install its package "
                    f"(role debusine_worker), or leave {what.split()[1]} out of the recipe"
                )


def _identity(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        found = tree.node(path)
        if found and not found.target and tree.text(path).strip() not in ("", "uninitialized"):
            yield f"{path} holds an id, which all machines would share: empty it"
    name = tree.text("/etc/hostname").strip()
    if name not in ("", "localhost"):
        yield (
            f"/etc/hostname says {name}, the builder's name or one that all machines would "
            "share: write localhost into it"
        )
    found = tree.node("/etc/resolv.conf")
    if found and not found.target and _statements(tree.text("/etc/resolv.conf")):
        yield (
            "/etc/resolv.conf holds the builder's name servers: replace it by a link to "
            "../run/systemd/resolve/stub-resolv.conf"
        )
    for path, what in (
        ("/var/lib/systemd/random-seed", "a seed of random numbers"),
        ("/var/lib/systemd/credential.secret", "a key"),
    ):
        if tree.node(path):
            yield f"{path} is {what} that all machines would share: {_AGAIN}"


def _left_by_apt(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    for folder, kept, do in (
        ("/var/lib/apt/lists", ("lock", "partial", "auxfiles"), "rm -r /var/lib/apt/lists/*"),
        ("/var/lib/apt/lists/partial", (), "rm -r /var/lib/apt/lists/*"),
        ("/var/cache/apt/archives", ("lock", "partial"), "apt-get clean"),
        ("/var/cache/apt/archives/partial", (), "apt-get clean"),
        ("/var/cache/apt", ("archives",), "apt-get clean"),
    ):
        left = [each for each in tree.names(folder) if each not in kept]
        if left:
            yield (
                f"{folder} still holds {left[0]}{_and_more(left)}: run `{do}` at the end of the "
                "build"
            )
    configuration = "/etc/apt/apt.conf.d"
    for name in tree.names(configuration):
        path = f"{configuration}/{name}"
        told = _statements(tree.text(path)).lower()
        if name == "99mmdebstrap" or "check-valid-until" in told or "::proxy" in told:
            yield f"{path} is how the builder's apt was told to work: {_AGAIN}"
    if tree.node("/usr/sbin/policy-rc.d"):
        yield f"/usr/sbin/policy-rc.d keeps services from starting: {_AGAIN}"


def _left_by_others(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    for path, what in (
        (f"{_ROOTS}/.ansible", "Ansible's own folder"),
        (f"{_ROOTS}/.bash_history", "what somebody typed"),
        ("/var/lib/cloud/instance", "what cloud-init keeps of a machine that was booted"),
    ):
        if tree.node(path):
            yield f"{path} is {what}: {_AGAIN}"
    journals = tree.names("/var/log/journal")
    if journals:
        yield f"/var/log/journal/{journals[0]} is the journal of another machine: {_AGAIN}"


def _secrets(tree: Tree, _: ImageRecipe) -> Iterator[str]:
    for path in _secret_paths(tree):
        found = tree.node(path)
        if found and found.size and not stat.S_ISDIR(found.mode):
            yield f"{path} is a secret that every machine and every reader would get: {_AGAIN}"
    for line in tree.text("/etc/shadow").splitlines():
        name, password = (*line.split(":"), "")[:2]
        if not password.startswith(("!", "*")):
            yield (
                f"/etc/shadow gives {name} {'a password' if password else 'an empty password'}: "
                f"have the build run `passwd --lock {name}`"
            )


def _secret_paths(tree: Tree) -> Iterator[str]:
    yield from (f"{_CONFIG}/{each}" for each in ("activation-token", "token"))
    yield from (f"{_ROOTS}/.netrc", "/etc/apt/auth.conf")
    yield from (f"/etc/apt/auth.conf.d/{each}" for each in tree.names("/etc/apt/auth.conf.d"))
    keys = (each for each in tree.names("/etc/ssh") if each.startswith("ssh_host_"))
    yield from (f"/etc/ssh/{each}" for each in keys)
    homes = (_ROOTS, *(f"/home/{each}" for each in tree.names("/home")))
    for folder in (*(f"{home}/.ssh" for home in homes), "/etc/ssl/private"):
        yield from (f"{folder}/{each}" for each in tree.names(folder))


_CHECKS: tuple[Callable[[Tree, ImageRecipe], Iterator[str]], ...] = (
    _service,
    _network,
    _permissions,
    _subordinate_ids,
    _configuration,
    _user_data,
    _programs,
    _identity,
    _left_by_apt,
    _left_by_others,
    _secrets,
)


def _ids_of_worker(tree: Tree) -> tuple[int, int] | None:
    for line in tree.text("/etc/passwd").splitlines():
        name, _, uid, gid, *_ = (*line.split(":"), "", "", "", "")
        if name == WORKER and uid.isdecimal() and gid.isdecimal():
            return int(uid), int(gid)
    return None


def _finds(tree: Tree, program: str) -> bool:
    """Say whether the worker would find a program on its PATH."""
    for folder in _PATH:
        found = _node(tree, f"{folder}/{program}")
        if found and stat.S_ISREG(found.mode) and found.mode & stat.S_IXOTH:
            return True
    return False


def _node(tree: Tree, path: str) -> Node | None:
    """Return what a path leads to, links followed; a link to /dev/null is told as itself."""
    for _ in range(_LINKS):
        found = tree.node(path)
        if found is None or not found.target or found.target == "/dev/null":
            return found
        path = normpath(join(dirname(path), found.target))
    return None


def _statements(text: str) -> str:
    """Return a configuration without its comments and blank lines."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("#", "//", ";")))


def _and_more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if names[1:] else ""
