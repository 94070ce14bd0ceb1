"""The life of an image for real: baked twice, tested, published, promoted and rolled back."""

import json
from pathlib import Path

import pytest

from fleet.images.aws import AwsPublisher
from fleet.images.folder import read_manifest
from fleet.service.hetzner import SimulatedHetzner
from tests.fakes.aws import Amazon
from tests.fakes.ebs import REGION, Registrar, StrictAccount
from tests.images.test_bake import IMAGE, Site
from tests.images.test_bake import pytestmark as of_baking
from tests.rigs.publishing import Watcher
from tests.rigs.rescue import RescueRig
from tests.rigs.sshd import Sshd

pytestmark = of_baking


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Return a site with two tested versions."""
    site = Site(tmp_path_factory.mktemp("life"))
    for _ in range(2):
        built = site.build()
        assert built.returncode == 0, built.stderr[-2000:]
        tested = site.do("image", "test", IMAGE)
        assert tested.returncode == 0, tested.stdout
    return site


def versions(site: Site) -> dict[str, dict[str, object]]:
    told = json.loads(site.do("image", "show", IMAGE, "--json").stdout)["versions"]
    return {each["version"]: each for each in sorted(told, key=lambda it: str(it["version"]))}


def newest(site: Site) -> Path:
    return site.builds / max(versions(site))


def test_a_version_is_published_promoted_and_rolled_back(site: Site) -> None:
    old, new = versions(site)
    place = f"file://{site.folder}/published"

    for version in (old, new):
        published = site.do("image", "publish", IMAGE, version, "--to", place, "--to", "desk")
        assert published.returncode == 0, published.stderr
        promoted = site.do("image", "promote", IMAGE, version)
        assert promoted.returncode == 0, promoted.stderr
    after = {version: each["state"] for version, each in versions(site).items()}
    rolled = site.do("image", "rollback", IMAGE)

    assert rolled.returncode == 0, rolled.stderr
    assert after == {old: "previous", new: "current"}
    assert versions(site)[old]["state"] == "current"
    assert (site.folder / "published" / IMAGE / new / "SHA256SUMS").exists()


def test_the_disk_reaches_hetzner_over_ssh_byte_for_byte(site: Site, tmp_path: Path) -> None:
    folder = newest(site)
    with SimulatedHetzner() as api, Sshd(tmp_path / "sshd") as sshd:
        rig = RescueRig(tmp_path / "hetzner", api, sshd)
        watcher = Watcher()

        published = rig.publisher().publish(read_manifest(folder), str(folder), watcher)

        assert published.verified
        assert rig.left() == []
        assert watcher.last("read back").done == rig.disk.stat().st_size > 1 << 30


def test_the_disk_reaches_aws_as_an_image_that_machines_boot(site: Site) -> None:
    folder, there = newest(site), Registrar()
    with Amazon():
        account = StrictAccount(REGION, there)
        publisher = AwsPublisher("debian-ci", REGION, account=account, pause=lambda _: None)

        published = publisher.publish(read_manifest(folder), str(folder), Watcher())

    assert published.verified
    assert there.images[published.id]["BootMode"] == "uefi-preferred"
