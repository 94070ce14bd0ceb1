"""An image whose only executor is incus, baked and tested: a package is built in its container."""

import json
from pathlib import Path

import pytest
import yaml

from tests.images.mirrors import mirror_options
from tests.images.test_bake import IMAGE, Site, needs_disks
from tests.walks.test_an_image_baked import newest_worker

# Beside eight other sessions on two cores, its jobs took half an hour; alone, five minutes.
pytestmark = [
    *(pytest.mark.images, pytest.mark.long, pytest.mark.timeout(5400)),
    needs_disks,
]
PROVEN = {
    "worker:executor:incus-lxc",
    "worker:cap:sbuild",
    "worker:task:worker:sbuild:version:1",
    "worker:cap:autopkgtest",
    "worker:task:worker:autopkgtest:version:1",
}


def test_image_of_incus_alone_builds_and_tests_a_package(tmp_path: Path) -> None:
    site = Site(tmp_path)
    file = tmp_path / "fleet.yaml"
    fleet = yaml.safe_load(file.read_text(encoding="utf-8"))
    _, mirror, *_ = mirror_options()
    fleet["images"][IMAGE] |= {
        "provides": [],
        "enable_backends": ["incus"],
        "enable_tasks": ["autopkgtest", "sbuild"],
        "worker_version": newest_worker(),
        "source": (
            f"Types: deb\nURIs: {mirror}\nSuites: trixie-backports\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        ),
    }
    file.write_text(yaml.safe_dump(fleet), encoding="utf-8")
    built = site.build()
    assert built.returncode == 0, built.stderr

    tested = site.do("image", "test", IMAGE, "--json")

    *_, jobs = json.loads(tested.stdout)["tests"]
    assert jobs["problems"] == []
    if jobs.get("nothing_run"):
        pytest.skip(jobs["nothing_run"])
    assert {*PROVEN} <= {*jobs["provides"]}
    assert not any("mmdebstrap" in tag for tag in jobs["provides"])
