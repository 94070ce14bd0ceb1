"""The container image, built with buildah and run with runc as a careful person runs it.

Run as a program it prints why no image can be built here, with exit code 3.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.live.chroot import (
    Impossible,
    apt_configuration,
    archive,
    dies_with_us,
    tell,
)
from tests.rigs.process import ROOT, Completed, run_process

PROGRAMS = ("buildah", "runc", "git", "mmdebstrap", "setpriv", "unshare")
USER = 1000
_BUILD_SECONDS, _RUN_SECONDS = 45 * 60, 120


def main() -> int:
    """Say why no image can be built here."""
    return tell(why_not())


def why_not() -> str:
    """Return why no image can be built or run here; empty: it can."""
    if os.geteuid() != 0:
        return "only root can make the image that the container's stands on"
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"the container image needs {', '.join(missing)} (Debian has them)"
    try:
        archive()
    except Impossible as reason:
        return str(reason)
    return ""


@dataclass(frozen=True)
class Builder:
    """Buildah, with a storage of its own."""

    storage: Path

    def base(self) -> str:
        """Return a Debian trixie of this machine's archive by digest; it is made once."""
        options = (
            *("--quiet", "--mode=root", "--format=tar", "--variant=minbase"),
            *("--include=ca-certificates", "--dpkgopt=force-unsafe-io"),
            *(f"--aptopt={line}" for line in apt_configuration()),
        )
        key = hashlib.sha256(repr((archive(), options)).encode()).hexdigest()
        kept = self.storage / "base.key"
        if not kept.exists() or kept.read_text(encoding="utf-8") != key:
            tar = self.storage / "base.tar"
            self.asks("rmi", "--all", "--force")
            _run(*dies_with_us(), "mmdebstrap", *options, "trixie", str(tar), archive())
            container = self.asks("from", "scratch")
            self.asks("add", "--quiet", container, str(tar), "/")
            self.asks("commit", "--quiet", "--rm", container, "fleet-base")
            tar.unlink()
            kept.write_text(key, encoding="utf-8")
        shown = ("--type", "image", "--format", "{{.FromImageDigest}}")
        return f"localhost/fleet-base@{self.asks('inspect', *shown, 'fleet-base')}"

    def builds(self, base: str, wheel: Path, into: Path) -> Completed:
        """Build the image with a wheel into an archive."""
        return _ask(str(ROOT / "tools/container.sh"), base, str(wheel), str(into), env=self._env())

    def asks(self, *words: str) -> str:
        """Return what buildah says; its failure is the test's."""
        return _run("buildah", *words, env=self._env()).strip()

    def clears(self) -> None:
        """Remove what no image needs, that of killed sessions too, and leave nothing mounted."""
        self.asks("rm", "--all")
        while (mounted := self.storage / "graph/overlay").is_mount():
            _run("umount", str(mounted))

    def _env(self) -> dict[str, str]:
        self.storage.mkdir(parents=True, exist_ok=True)
        settings = self.storage / "storage.conf"
        places = f'graphroot = "{self.storage}/graph"\nrunroot = "{self.storage}/run"\n'
        settings.write_text(f'[storage]\ndriver = "overlay"\n{places}', encoding="utf-8")
        return {**os.environ, "CONTAINERS_STORAGE_CONF": str(settings)}


@dataclass(frozen=True)
class Image:
    """An image that is unpacked: its root, and what it says of how it is run."""

    root: Path
    config: dict[str, Any]

    def runs(self, volume: Path, *command: str, **variables: str) -> Completed:
        """Run a command on a root that nobody can write, with a volume and a /tmp."""
        bundle = volume.with_name(f"{volume.name}.bundle")
        bundle.mkdir(exist_ok=True)
        (bundle / "config.json").unlink(missing_ok=True)
        _run("runc", "spec", "--bundle", str(bundle))
        spec = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
        user, group = map(int, self.config["User"].split(":"))
        given = [*self.config["Env"], *(f"{name}={value}" for name, value in variables.items())]
        spec["process"] |= {
            "terminal": False,
            "args": [*command],
            "cwd": "/data",
            "env": given,
            "user": {"uid": user, "gid": group},
        }
        spec["root"] = {"path": str(self.root), "readonly": True}
        spec["mounts"] += [
            _mount("/tmp", "tmpfs", "tmpfs", "noexec", "nosuid", "mode=1777"),  # noqa: S108 - its own
            _mount("/data", "none", str(volume), "bind"),
        ]
        # That of this machine: simulated clouds listen on its loopback.
        spaces = spec["linux"]["namespaces"]
        spec["linux"]["namespaces"] = [each for each in spaces if each["type"] != "network"]
        (bundle / "config.json").write_text(json.dumps(spec), encoding="utf-8")
        state = ("--root", str(bundle / "state"))
        return _ask(
            *("setpriv", "--pdeathsig=KILL", "--", "runc", *state),
            *("run", "--bundle", str(bundle), f"fleet-{os.getpid()}"),
            seconds=_RUN_SECONDS,
        )


def _mount(where: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    return {"destination": where, "type": kind, "source": source, "options": [*options]}


def _ask(
    *command: str, env: Mapping[str, str] = os.environ, seconds: float = _BUILD_SECONDS
) -> Completed:
    return run_process(*command, cwd=ROOT, env=env, timeout=seconds)


def _run(*command: str, env: Mapping[str, str] = os.environ) -> str:
    done = _ask(*command, env=env)
    assert done.returncode == 0, f"{command[:4]}: {done.stdout[-500:]}{done.stderr[-2000:]}"
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
