"""An image baked for real, twice: tested, published, promoted, rolled back; its disk elsewhere."""

import re
from pathlib import Path

import pytest

from fleet.clouds.aws.images import AwsPublisher
from fleet.images.folder import read_manifest
from simulators.hetzner.server import SimulatedHetzner
from tests.fakes.aws import Amazon
from tests.fakes.ebs import REGION, Registrar, StrictAccount
from tests.images.mirrors import mirror_options
from tests.images.test_bake import CACHE, needs_disks
from tests.rigs.publishing import Watcher
from tests.rigs.rescue import RescueRig
from tests.rigs.sshd import Sshd
from tests.walks.conftest import Play
from tests.walks.test_an_image import settle
from tests.walks.walking import Walk

pytestmark = [pytest.mark.images, pytest.mark.long, needs_disks]
# What each build measures anew, and which phases it has: a kept base is not made again.
MEASURED = re.compile(
    r"^ *phases .*$|\b[0-9a-f]{64}\b|\b\d+(\.\d+)?(?= MB\b|$)|(?<=last build took )[^(]+",
    re.MULTILINE,
)


def measured(text: str) -> str:
    """Return what is the same in each run, whatever a build took and weighs."""
    return MEASURED.sub("N", settle(text))


def test_an_image_is_baked_and_reaches_all_machines(
    walk: Walk, play: Play, tmp_path: Path
) -> None:
    _, mirror, *_ = mirror_options()
    walk.words["http://deb.example.org/debian"] = mirror
    walk.words["/srv/images"] = str(tmp_path / "published")
    walk.environment["XDG_CACHE_HOME"] = str(CACHE.parents[1])

    play("an-image-baked", measured)

    (image,) = walk.json("fleet image list --json")["images"]
    newest, oldest = image["versions"]
    assert (newest["state"], oldest["state"]) == ("retired", "current")
    assert (tmp_path / "published/trixie" / newest["version"] / "SHA256SUMS").exists()
    folder = walk.project / ".fleet/images/trixie" / newest["version"]
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
        publisher = AwsPublisher("debian-ci", REGION, account=account, pause=lambda _: None)

        published = publisher.publish(read_manifest(folder), str(folder), Watcher())

    assert published.verified
    assert there.images[published.id]["BootMode"] == "uefi-preferred"
