"""Publishing to Hetzner: rescue system, ssh, snapshot, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from fleet.clouds.hcloud.images import HcloudPublisher, HcloudSite, Hetzner
from fleet.clouds.hcloud.machines import HcloudMachines
from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.images.publish import Pipeline
from fleet.model.facts import Listing
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW
from tests.rigs.loopback import Answer, Loopback
from tests.rigs.publishing import MIB, VERSION, Watcher, a_build, some_disk
from tests.rigs.rescue import RescueRig
from tests.rigs.sshd import Sshd

MARK = {"fleet": "debian-ci", "image": "trixie", "version": VERSION}
BIG = some_disk(size=4 * MIB + 512)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RescueRig]:
    with SimulatedHetzner(now=lambda: NOW) as api:
        yield RescueRig(tmp_path / "hetzner", api)


@pytest.fixture
def ssh_rig(tmp_path: Path) -> Iterator[RescueRig]:
    with SimulatedHetzner(now=lambda: NOW) as api, Sshd(tmp_path / "sshd") as sshd:
        yield RescueRig(tmp_path / "hetzner", api, sshd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images" / "trixie" / VERSION


def snapshots(rig: RescueRig) -> list[dict[str, object]]:
    images = rig.api.state.resources["images"].values()
    return [each["labels"] for each in images if each["type"] == "snapshot"]


def killed_publishing(rig: RescueRig, folder: Path) -> int:
    """Let a process publish and be killed in the middle; return its status.

    What it had in temporary files stays beside the disk.
    """
    arguments = [rig.api.endpoint, str(folder), str(rig.disk)]
    command = [sys.executable, "-m", "tests.images.killed", "publish", *arguments]
    environment = {**os.environ, "TMPDIR": str(rig.disk.parent)}
    return subprocess.run(command, check=False, env=environment).returncode


class Dropping(Watcher):
    """Drops the connection once, after some bytes."""

    def __call__(self, transfer: object) -> None:
        try:
            super().__call__(transfer)  # type: ignore[arg-type] # as the port says it
        except SourceUnreachable:
            self.breaks_at = 2
            raise


def test_snapshot_is_bootable_with_mark_and_nothing_else_left(
    rig: RescueRig, folder: Path
) -> None:
    manifest = a_build(folder)

    published = rig.publisher().publish(manifest, str(folder), Watcher())

    digest = manifest.files["disk.raw"].sha256
    assert snapshots(rig) == [MARK | {"sha256": digest[:32], "state": "whole"}]
    image = rig.api.state.resources["images"][int(published.id)]
    assert (image["status"], image["architecture"]) == ("available", "x86")
    assert image["disk_size"] == min(
        each["disk"]
        for each in rig.api.state.resources["server_types"].values()
        if each["architecture"] == "x86"
    )
    assert rig.left() == []


@pytest.mark.slow
def test_upload_resumes_after_ssh_connection_drops(ssh_rig: RescueRig, folder: Path) -> None:
    rig = ssh_rig
    manifest, watcher = a_build(folder, disk=BIG), Dropping(breaks_at=0.6)

    published = rig.publisher().publish(manifest, str(folder), watcher)

    sent = [each.done for each in watcher.heard if each.phase == "upload"]
    dropped = next(each for each in sent if each >= 0.6 * len(BIG))
    again = sent[sent.index(dropped) + 1]
    assert MIB <= again < len(BIG)
    assert rig.snapshots[int(published.id)][: len(BIG)] == BIG
    assert rig.left() == []


def test_temporary_server_is_deleted_when_upload_fails(rig: RescueRig, folder: Path) -> None:
    with pytest.raises(SourceUnreachable, match="5 tries"):
        rig.publisher().publish(a_build(folder), str(folder), Watcher(breaks_at=0))

    assert rig.left() == []
    assert snapshots(rig) == []


def test_upload_error_quotes_the_machine_when_disk_is_unwritable(
    rig: RescueRig, folder: Path
) -> None:
    rig.disk.symlink_to(rig.disk.parent)

    with pytest.raises(PublicationRefused, match=r"127\.0\.0\.1 .*\(1\)"):
        rig.publisher().publish(a_build(folder), str(folder), Watcher())

    assert rig.left() == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault(method="POST", path="/servers", status=429, count=1),
        Fault(method="POST", path="/servers", status=500, done=True, count=1),
        Fault(method="POST", path="/servers", answer_lost=True, count=1),
        Fault(method="POST", path="/ssh_keys", answer_lost=True, count=1),
        Fault(method="POST", path="/servers/*/actions/enable_rescue", answer_lost=True, count=1),
        Fault(method="POST", path="/servers/*/actions/poweroff", code="locked", count=1),
        Fault(method="POST", path="/servers/*/actions/create_image", answer_lost=True, count=1),
        Fault(
            method="POST", path="/servers/*/actions/create_image", status=504, done=True, count=1
        ),
        Fault(method="PUT", path="/images/*", status=503, count=1),
        Fault(method="DELETE", path="/servers/*", answer_lost=True, count=1),
        Fault(method="DELETE", path="/ssh_keys/*", status=502, count=1),
        Fault(method="GET", path="/images*", broken_off=True, count=1),
    ],
    ids=lambda fault: f"{fault.method}-{fault.path}-{fault.status or fault.code or 'lost'}",
)
def test_failed_api_request_is_retried_once(rig: RescueRig, folder: Path, fault: Fault) -> None:
    rig.api.fail(fault)

    rig.publisher().publish(a_build(folder), str(folder), Watcher())

    assert fault.seen
    assert [each["state"] for each in snapshots(rig)] == ["whole"]
    assert rig.left() == []


PAGES = {"pagination": {"page": 1, "per_page": 50, "next_page": None, "total_entries": 1}}
INVALID = (
    {"id": 7, "labels": None, "created": "2026-11-21T06:00:00Z"},
    {"id": 7, "labels": MARK},
    {"id": 7, "labels": MARK, "created": "yesterday"},
    {"id": 7, "labels": ["fleet"]},
)


@pytest.mark.parametrize(
    "body",
    [
        *(b"[]", b"{}", b'{"images": 7}', b"\xff", b'{"images": [{}]}'),
        *(json.dumps({"images": [each], "meta": PAGES}).encode() for each in INVALID),
    ],
)
def test_uploads_are_unreachable_when_response_is_invalid(body: bytes) -> None:
    with Loopback(lambda _: Answer(200, body)) as server:
        api = Hetzner("x", base_url=server.url, pause=lambda _: None)

        with pytest.raises(SourceUnreachable, match="image"):
            Pipeline(HcloudPublisher(HcloudSite(api, "debian-ci", "fsn1"))).uploads()


def test_next_type_is_used_when_smallest_is_out_of_stock(rig: RescueRig, folder: Path) -> None:
    smallest = min(
        (each["disk"], Decimal(at["price_hourly"]["net"]), each["name"])
        for each in rig.api.state.resources["server_types"].values()
        for at in each["prices"]
        if each["architecture"] == "x86" and at["location"] == "fsn1"
    )
    rig.api.state.stock[smallest[-1]] = 0

    published = rig.publisher().publish(a_build(folder), str(folder), Watcher())

    made = [each for each in rig.api.requests if (each.method, each.path) == ("POST", "/servers")]
    asked = [each.body["server_type"] for each in made]
    assert len(asked) > 1
    assert asked[0] == smallest[-1]
    assert published.rental is not None
    assert published.rental.type == asked[-1]


def test_unsold_architecture_is_refused(rig: RescueRig, folder: Path) -> None:
    with pytest.raises(PublicationRefused, match="riscv64"):
        rig.publisher().publish(a_build(folder, architecture="riscv64"), str(folder), Watcher())

    assert rig.left() == []


def test_unlabelled_snapshot_is_completed_without_server(rig: RescueRig, folder: Path) -> None:
    manifest, publisher = a_build(folder), rig.publisher()
    published = publisher.publish(manifest, str(folder), Watcher())
    labels = rig.api.state.resources["images"][int(published.id)]["labels"]
    labels["state"] = "partial"
    rig.api.requests.clear()

    publisher.publish(manifest, str(folder), Watcher())

    assert publisher.uploads()[0].whole
    assert [each for each in rig.api.requests if each.path == "/servers"] == []


def test_temporary_server_is_not_listed_as_machine(rig: RescueRig, folder: Path) -> None:
    listings = []

    def look(_: object) -> None:
        cloud = HcloudMachines(rig.api.token, base_url=rig.api.endpoint)
        listings.append((len(rig.left()), cloud.list("debian-ci")))

    rig.publisher().publish(a_build(folder), str(folder), look)

    alive, listing = listings[0]
    assert alive == 2
    assert isinstance(listing, Listing)
    assert listing.machines == ()


@pytest.mark.slow
def test_next_publish_cleans_up_after_a_killed_one(
    rig: RescueRig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_build(folder)
    killed = killed_publishing(rig, folder)
    left = rig.left()
    private_keys = list(rig.disk.parent.glob("*/key"))

    monkeypatch.setattr("tempfile.tempdir", str(rig.disk.parent))
    rig.publisher().publish(a_build(folder), str(folder), Watcher())

    assert killed == -signal.SIGKILL
    assert (len(left), len(private_keys)) == (2, 1)
    assert rig.left() == []
    assert list(rig.disk.parent.glob("*/key")) == []
    assert [each["state"] for each in snapshots(rig)] == ["whole"]


@pytest.mark.slow
def test_clean_keeps_foreign_servers_until_their_expiry(
    rig: RescueRig, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "trixie" / VERSION
    a_build(other)
    killed_publishing(rig, other)

    with pytest.raises(SourceUnreachable, match="another run"):
        rig.publisher().publish(a_build(folder), str(folder), Watcher())
    early = rig.publisher().clean(NOW)
    late = rig.publisher().clean(NOW.replace(year=2027))

    assert early == ()
    assert [each.split()[0] for each in late] == ["server", "ssh"]
    assert rig.left() == []
