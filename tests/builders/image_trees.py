"""An image's files, for tests: fit for use until something is changed."""

import json
import shutil
from pathlib import Path

from fleet.images.checks_inside import Checks
from fleet.schema.model import ImageRecipe, Recipe

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


class _Checks(Checks):
    """The checks, with noted owners."""

    owners: dict[Path, int]

    def owner_of(self, place: Path) -> str:
        """Return user and group of a folder."""
        return f"{self.owners[place]}:{self.owners[place]}"


class ImageTree:
    """The files of an image in a folder, with absolute paths."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self._owners: dict[Path, int] = {}
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
        """Write a file in place of what lies there."""
        self.remove(path)
        place = self._at(path)
        place.write_text(text, encoding="utf-8")
        place.chmod(mode)

    def folder(self, path: str, *, owner: int = 0, mode: int = 0o755) -> None:
        """Make a folder. Only root could give it an owner, so the owner is noted."""
        place = self._at(path)
        self._owners[place] = owner
        place.mkdir(exist_ok=True)
        place.chmod(mode)

    def link(self, path: str, target: str) -> None:
        """Make a link in place of what lies there."""
        self.remove(path)
        self._at(path).symlink_to(target)

    def remove(self, path: str) -> None:
        """Remove a file, a folder or a link."""
        place = self._at(path)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    def problems(self, recipe: Recipe) -> list[str]:
        """Return what is wrong with the image."""
        return self.check(recipe.model_dump_json())

    def check(self, recipe: str) -> list[str]:
        """Return what is wrong with the image, for a recipe as JSON."""
        checks = _Checks(str(self.top), json.loads(recipe))
        checks.owners = self._owners
        return checks.run()

    def _at(self, path: str) -> Path:
        place = self.top / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


def a_recipe(**overrides: object) -> ImageRecipe:
    """Return the recipe of an image for amd64."""
    return ImageRecipe.model_validate({"suite": "trixie", "architecture": "amd64", **overrides})
