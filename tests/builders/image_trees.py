"""An image's files in memory, for tests: fit for use until something is changed."""

import stat

from fleet.images.checks import FileNode
from fleet.schema.model import ImageRecipe

WORKER = 998
_FILES = {
    "/etc/hostname": "localhost\n",
    "/etc/machine-id": "",
    "/etc/passwd": "root:x:0:0:root:/root:/bin/bash\n"
    f"debusine-worker:x:{WORKER}:{WORKER}::/var/lib/debusine/worker:/bin/sh\n",
    "/etc/shadow": "root:*:20000:0:99999:7:::\ndebusine-worker:!:20000::::::\n",
    "/etc/subuid": "debusine-worker:100000:65536\n",
    "/etc/subgid": "debusine-worker:100000:65536\n",
    "/etc/apt/apt.conf.d/01autoremove": "APT { NeverAutoRemove { }; };\n// Acquire::http::Proxy\n",
    "/usr/lib/systemd/system/debusine-worker.service": "[Unit]\n",
    "/var/lib/apt/lists/lock": "",
    "/var/cache/apt/archives/lock": "",
}
_LINKS = {
    "/etc/resolv.conf": "../run/systemd/resolve/stub-resolv.conf",
    "/etc/systemd/system/multi-user.target.wants/debusine-worker.service": (
        "/usr/lib/systemd/system/debusine-worker.service"
    ),
    "/etc/systemd/system/multi-user.target.wants/systemd-networkd.service": (
        "/usr/lib/systemd/system/systemd-networkd.service"
    ),
    "/bin": "usr/bin",
    "/usr/bin/arch-test": "../lib/arch-test",
}
_PROGRAMS = (
    *("cloud-init", "unshare", "newuidmap", "newgidmap", "ip", "autopkgtest", "sbuild"),
    *("mmdebstrap", "debefivm-create", "mcopy", "sfdisk", "qemu-img", "autopkgtest-virt-qemu"),
    *("qemu-system-x86_64", "incus", "autopkgtest-virt-incus", "dnsmasq"),
)


class ImageTree:
    """The files of an image: text and node by path."""

    def __init__(self) -> None:
        self._nodes: dict[str, FileNode] = {}
        self._texts: dict[str, str] = {}
        for path, text in _FILES.items():
            self.put(path, text)
        for path, target in _LINKS.items():
            self.link(path, target)
        for program in _PROGRAMS:
            self.put(f"/usr/bin/{program}", "#!", mode=0o755)
        self.put("/usr/lib/arch-test", "#!", mode=0o755)
        for path in ("/etc/debusine/worker", "/var/lib/debusine/worker"):
            self.folder(path, owner=WORKER)

    def put(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file."""
        self._nodes[path] = FileNode(stat.S_IFREG | mode, 0, 0, len(text))
        self._texts[path] = text

    def folder(self, path: str, *, owner: int = 0, mode: int = 0o755) -> None:
        """Make a folder."""
        self._nodes[path] = FileNode(stat.S_IFDIR | mode, owner, owner, 4096)

    def link(self, path: str, target: str) -> None:
        """Make a link."""
        self._nodes[path] = FileNode(stat.S_IFLNK | 0o777, 0, 0, len(target), target)
        self._texts.pop(path, None)

    def remove(self, path: str) -> None:
        """Remove a file, a folder or a link."""
        del self._nodes[path]
        self._texts.pop(path, None)

    def node(self, path: str) -> FileNode | None:
        """Return what lies there."""
        return self._nodes.get(path)

    def names(self, path: str) -> tuple[str, ...]:
        """Return what a folder holds, sorted."""
        below = (each[len(path) + 1 :] for each in self._nodes if each.startswith(f"{path}/"))
        return tuple(sorted({each.split("/")[0] for each in below}))

    def text(self, path: str) -> str:
        """Return what a file holds."""
        return self._texts.get(path, "")


def a_recipe(**overrides: object) -> ImageRecipe:
    """Return the recipe of an image for amd64."""
    return ImageRecipe.model_validate({"suite": "trixie", "architecture": "amd64", **overrides})
