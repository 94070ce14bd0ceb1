"""An image baked for real, twice: tested, published, promoted, rolled back; its disk elsewhere."""

import os
import re
import sys
from pathlib import Path

import pytest

from fleet.clouds.aws.images import AwsPublisher
from fleet.images.folder import read_manifest
from fleet.images.publish import Pipeline
from fleet.model.images import is_open
from simulators.hetzner.server import SimulatedHetzner
from tests.fakes.aws import Amazon
from tests.fakes.ebs import REGION, Registrar, StrictAccount
from tests.images.mirrors import mirror_options
from tests.images.test_bake import CACHE, needs_disks
from tests.rigs.process import ROOT, run_process
from tests.rigs.publishing import Watcher
from tests.rigs.rescue import RescueRig
from tests.rigs.sshd import Sshd
from tests.walks.conftest import Play
from tests.walks.test_an_image import settle
from tests.walks.walking import Walk

# Beside eight other sessions on two cores, its jobs took half an hour; alone, five minutes.
pytestmark = [
    *(pytest.mark.images, pytest.mark.long, pytest.mark.timeout(5400)),
    needs_disks,
]
# What each build measures anew, and which phases it has: a kept base is not made again.
MEASURED = re.compile(
    r"^ *phases .*$|(?<=, )\d+(?= s$)|\b[0-9a-f]{64}\b|\b\d+(\.\d+)?(?= MB\b|$)"
    r"|(?<=last build took )[^(]+",
    re.MULTILINE,
)

WORKER = "0.16.2~bpo13+1"
"""The worker that the page names; the archive may have a newer one."""
PROVEN = (
    *("worker:executor:unshare", "worker:executor:incus-lxc"),
    *("worker:cap:autopkgtest", "worker:cap:mmdebstrap", "worker:cap:sbuild"),
    *(
        f"worker:task:worker:{task}:version:1"
        for task in ("autopkgtest", "mmdebstrap", "sbuild", "simplesystemimagebuild")
    ),
)


def newest_worker() -> str:
    """Return the newest worker of the archive; skips where nothing can be baked here."""
    asked = run_process(sys.executable, "-m", "tests.rigs.baking", cwd=ROOT, env=os.environ)
    if asked.returncode:
        pytest.skip(asked.stdout.strip() or asked.stderr)
    return asked.stdout.strip()


def measured(text: str) -> str:
    """Return what is the same in each run, whatever a build took and weighs."""
    return MEASURED.sub("N", settle(text))


def test_built_image_reaches_all_machines(walk: Walk, play: Play, tmp_path: Path) -> None:
    _, mirror, *_ = mirror_options()
    walk.words["http://deb.example.org/debian"] = mirror
    walk.words[WORKER] = newest_worker()
    walk.words["/srv/images"] = str(tmp_path / "published")
    walk.environment["XDG_CACHE_HOME"] = str(CACHE.parents[1])

    play("an-image-baked", measured)

    (image,) = walk.json("fleet image list --json")["images"]
    newest, oldest = image["versions"]
    assert (newest["state"], oldest["state"]) == ("retired", "current")
    assert (tmp_path / "published/trixie" / newest["version"] / "SHA256SUMS").exists()
    folder = walk.project / ".fleet/images/trixie" / newest["version"]
    assert oldest["provides"] == newest["provides"]
    refuted = {*PROVEN} - {*newest["provides"]}
    assert [tag for tag in refuted if not is_open(tag, newest["unproven"])] == []
    assert newest["worker"] == walk.words[WORKER]
    assert {"ccache", "eatmydata"} <= {each.name for each in read_manifest(folder).packages}
    reaches_hetzner(folder, tmp_path)
    reaches_aws(folder)


def reaches_hetzner(folder: Path, tmp_path: Path) -> None:
    """Write the disk at Hetzner over ssh, byte for byte."""
    with SimulatedHetzner() as api, Sshd(tmp_path / "sshd") as sshd:
        rig = RescueRig(tmp_path / "hetzner", api, sshd)
        watcher = Watcher()

        published = rig.publisher().publish(read_manifest(folder), str(folder), watcher)

        assert published.verified
        assert rig.left() == []
        assert watcher.last("read back").done == rig.disk.stat().st_size > 1 << 30


def reaches_aws(folder: Path) -> None:
    """Register the disk at AWS as an image that machines boot."""
    there = Registrar()
    with Amazon():
        account = StrictAccount(REGION, there)
        publisher = Pipeline(
            AwsPublisher("debian-ci", REGION, account=account, pause=lambda _: None)
        )

        published = publisher.publish(read_manifest(folder), str(folder), Watcher())

    assert published.verified
    assert there.images[published.id]["BootMode"] == "uefi-preferred"
