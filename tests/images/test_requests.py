"""Builds at a Debusine server: what is posted, how it is followed, what is taken or refused."""

import hashlib
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from fleet.errors import BuildFailed
from fleet.images.debusine_build import LISTED, RequestBuilder, customization_script
from fleet.images.due import sources_of
from fleet.images.folder import find_build, list_versions, verify
from fleet.images.records import BuildOrder, BuildStep
from fleet.model.images import Manifest
from fleet.schema.model import ImageRecipe
from tests.builders.sentences import tells
from tests.rigs import image_disks
from tests.rigs.debusine_builds import DISK, DebusineBuilds
from tests.rigs.loopback import Answer, Loopback

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
LEFT = [".lock", "20261121T080000Z.log"]
"""What a build that came to nothing leaves."""
MIRROR = "http://deb.example.org/debian"


@dataclass
class Site:
    """A server, a folder for builds, and what was told of them."""

    server: Loopback
    debusine: DebusineBuilds
    images: Path
    steps: list[BuildStep] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def build(
        self,
        *,
        mirror: str | None = MIRROR,
        wait: Callable[[float], None] | None = None,
        **keys: object,
    ) -> Manifest:
        """Build the image of a recipe."""
        recipe = {"suite": "trixie", "architecture": "amd64", **keys}
        order = BuildOrder(
            image="trixie",
            version="20261121T080000Z",
            recipe=ImageRecipe.model_validate(recipe),
            built_at=NOW,
            built_by="a test",
        )
        builder = RequestBuilder(
            images=self.images,
            url=f"{self.server.url}/",
            scope="debian",
            token="secret",
            workspace="builds",
            mirror=mirror,
            wait=wait or self.waits.append,
        )
        return builder.build(order, self.steps.append)[0]

    def left(self) -> list[str]:
        """Return what lies where the versions of the image lie."""
        return sorted(path.name for path in (self.images / "trixie").iterdir())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    debusine = DebusineBuilds()
    with Loopback(debusine) as server:
        debusine.url = server.url
        yield Site(server, debusine, tmp_path)


def test_debusine_build_downloads_disk_and_log(site: Site) -> None:
    manifest = site.build()

    (version,) = list_versions(site.images, "trixie")
    folder, kept = find_build(site.images, "trixie", version)
    verify(folder, manifest)
    assert (kept, manifest.way) == (manifest, "debusine")
    assert (folder / "disk.qcow2").read_bytes() == DISK
    packages = [(each.name, each.version) for each in manifest.packages]
    assert packages == [("apt", "3.0.3"), ("sbuild", "0.89.3")]
    phases = [step.phase for step in site.steps]
    log = (folder / "build.log").read_text(encoding="utf-8")
    assert phases[:6] == ["submit", "submit", "pending", "running", "completed", "take"]
    told = [line.split() for line in log.splitlines()]
    assert [words[2].rstrip(":") for words in told if words[1:2] == ["s"]] == phases
    assert manifest.seconds.keys() == {*phases[:6], "packages"}
    assert site.waits == [10, 10]
    assert "== cmd.log\ncmd: debefivm-create\n" in log
    assert {each.headers["token"] for each in site.server.received} == {"secret"}
    written = [path.read_bytes() for path in site.images.rglob("*") if path.is_file()]
    assert [content for content in written if b"secret" in content] == []


def test_debusine_build_succeeds_without_downloadable_log(site: Site) -> None:
    site.server.faults.instead["/debian/builds/artifact/3/download/cmd.log"] = Answer(503, b"")

    site.build()

    log = (site.images / "trixie/20261121T080000Z/build.log").read_text(encoding="utf-8")
    assert f"== cmd.log\nnot taken: {site.server.url} refuses: status 503" in log


@image_disks.needs_programs
def test_manifest_has_packages_of_disk_with_origin(site: Site, tmp_path: Path) -> None:
    root = image_disks.a_root(tmp_path / "root")
    listed = root / LISTED.lstrip("/")
    listed.parent.mkdir(parents=True)
    listed.write_text(
        "sbuild\t0.89.3\tall\tsbuild\t0.89.3\ttrixie/main at http://deb.example.org/debian\tabc\n",
        encoding="utf-8",
    )
    disk = image_disks.a_disk(tmp_path / "made.qcow2", root).read_bytes()
    site.debusine.disk, site.debusine.size = disk, len(disk)
    site.debusine.sha256 = hashlib.sha256(disk).hexdigest()

    manifest = site.build()

    (package,) = manifest.packages
    assert (package.name, package.sha256) == ("sbuild", "abc")
    assert "trixie" in {source.suite for source in sources_of(manifest)}
    assert "sbom.spdx.json" in manifest.files


def test_debusine_build_retries_after_temporary_failure(site: Site) -> None:
    site.server.faults.drop = {2, 3, 5}

    site.build()

    assert len(list_versions(site.images, "trixie")) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"result": "failure"}, "work request 7 .*failure"),
        ({"statuses": ["aborted"], "result": ""}, "work request 7 .*aborted"),
        ({"category": "debian:system-tarball"}, "0 system images"),
        ({"codename": "bookworm"}, "bookworm.* amd64.* trixie.* amd64"),
        ({"architecture": "arm64"}, "trixie.* arm64.* trixie.* amd64"),
        ({"host": "http://elsewhere.example.org"}, "image.qcow2.* host"),
        ({"disk": DISK[:-1] + b"!"}, "6004"),
        ({"disk": DISK[:-1]}, "6003 bytes"),
        ({"cut": {8}}, "cut off"),
    ],
)
def test_debusine_build_leaves_no_files_when_image_is_wrong(
    site: Site, wrong: dict[str, Any], said: str
) -> None:
    site.server.faults.truncate = wrong.pop("cut", ())
    for name, value in wrong.items():
        setattr(site.debusine, name, value)

    with pytest.raises(BuildFailed, match=said):
        site.build()

    assert site.left() == LEFT


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "TASK [Install it] ***\nfatal: [localhost]: FAILED! => no package\nE: hook failed\n",
            "the role failed at task “Install it”:\n  fatal: [localhost]: FAILED! => no package",
        ),
        ("I: unpacking\nE: no such suite\n", "  E: no such suite"),
    ],
)
def test_failed_debusine_build_quotes_server_log(site: Site, log: str, said: str) -> None:
    site.debusine.log, site.debusine.result = log, "failure"

    with pytest.raises(BuildFailed) as caught:
        site.build()

    kept = site.images / "trixie/20261121T080000Z.log"
    problem = str(caught.value)
    assert tells(problem, "work request 7", site.server.url)
    assert f"\n{said}\n" in problem
    assert tells(problem, kept)
    assert kept.read_text(encoding="utf-8").endswith(f"== cmd.log\n{log}")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(403, b""), "contributor"),
        (
            Answer(400, b'{"title": "no such task"}', {"Content-Type": "application/json"}),
            "status 400: .*no such task",
        ),
        (Answer(200, b"[]"), "returned an unexpected answer"),
    ],
)
def test_refused_debusine_request_quotes_server(site: Site, answer: Answer, said: str) -> None:
    site.server.faults.instead["/api/1.0/work-request/"] = answer

    with pytest.raises(BuildFailed, match=said):
        site.build()


def interrupted(_: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("again", "number"), [(False, 7), (True, 9)])
def test_interrupt_aborts_the_request_at_the_server(
    site: Site, *, again: bool, number: int
) -> None:
    site.debusine.again = again

    with pytest.raises(KeyboardInterrupt):
        site.build(wait=interrupted)

    assert site.debusine.aborted == [number]
    assert site.left() == LEFT


def test_debusine_build_follows_retried_request_unless_aborted(site: Site) -> None:
    site.debusine.again = True

    site.build()

    phases = [step.phase for step in site.steps]
    assert phases[2:7] == ["aborted", "again", "pending", "running", "completed"]
    assert len(list_versions(site.images, "trixie")) == 1
    site.debusine.aborted_by = 3
    with pytest.raises(BuildFailed, match=r"request 7 at .*aborted"):
        site.build()


def test_debusine_build_fails_when_server_stays_silent(site: Site) -> None:
    site.server.faults.drop = range(2, 100)

    with pytest.raises(BuildFailed, match=re.escape(site.server.url)):
        site.build()

    assert len(site.waits) == 9


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"mirror": None}, "archive"),
        ({"snapshot": True}, "`snapshot`"),
    ],
)
def test_unsupported_recipe_is_refused_before_request(
    site: Site, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(BuildFailed, match=said):
        site.build(**keys)

    assert site.server.received == []


def test_script_deletes_names_refused_by_mkfs_of_task(tmp_path: Path) -> None:
    """A real worker failed on such a certificate of ca-certificates: it runs mkfs in locale C."""
    (tmp_path / "mozilla").mkdir()
    for name in ("NetLock_Főtanúsítvány.crt", "GTS_Root_R1.crt"):
        (tmp_path / "mozilla" / name).touch()
    (line,) = [
        line for line in customization_script({}, ()).splitlines() if "-print -delete" in line
    ]

    command = line.replace(" / ", f" {tmp_path} ")
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)

    assert [path.name for path in tmp_path.rglob("*.crt")] == ["GTS_Root_R1.crt"]


def test_debusine_task_has_suite_packages_role_script_and_build(site: Site) -> None:
    site.debusine.codename = "sid"
    site.build(suite="sid", swap="1GiB")

    posted: dict[str, Any] = site.debusine.posted
    task, script = posted["task_data"], posted["task_data"]["customization_script"]
    assert (posted["task_name"], posted["workspace"]) == ("simplesystemimagebuild", "builds")
    assert task["bootstrap_repositories"] == [
        {"mirror": MIRROR, "suite": "sid", "components": ["main"]}
    ]
    assert '"debusine_worker_swap_mebibytes": 1024' in script
    assert " systemd-sysv " in script
    # Two builds of one recipe are told apart by it, where both are tried again.
    assert "trixie, version 20261121T080000Z" in script
    # A server that could not record its end, as the name is too long, retried what had succeeded.
    options = task["bootstrap_options"]
    packages = ",".join(sorted(options["extra_packages"]))
    context = quote(f"{options['architecture']}:{options['variant']}:{packages}")
    assert len(f"Worker:simplesystemimagebuild:bookworm:{context}:{10**9}") <= 255
