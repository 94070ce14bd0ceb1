"""Baking for real: `fleet image build` of the example fleet.yaml, what it leaves, how it fails.

The program of the wheel bakes, with the extra `images` alone; that of the checkout fails and dies.
The base is kept in this machine's cache folder, so that only the first session makes it.
"""

import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.images import disk
from fleet.images.checks import open_disk, workplace
from fleet.images.folder import QCOW2, measure, read_manifest, verify
from fleet.images.programs import explain_no_namespaces
from fleet.model.images import Manifest
from tests.builders.sentences import tells
from tests.images.mirrors import mirror_options
from tests.images.ordinary import as_user, somebody
from tests.rigs.installed import build_wheel, install
from tests.rigs.loopback import Answer, Loopback, html
from tests.rigs.process import ROOT, Completed

LACKING = explain_no_namespaces() or disk.explain_no_disk("amd64")
needs_disks = pytest.mark.skipif(bool(LACKING), reason=LACKING)
pytestmark = [pytest.mark.images, needs_disks]
FLEET = Path(sys.executable).with_name("fleet")
IMAGE = "trixie-amd64"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleet/images"
SECRET = "glpat-must-not-leak"


@dataclass
class Site:
    """A folder with the example fleet.yaml and its store."""

    folder: Path
    prefix: Sequence[str] = ()
    cache: Path | None = None
    program: Path = FLEET

    def __post_init__(self) -> None:
        if not (self.folder / "fleet.yaml").exists():
            for name in ("fleet.yaml", "world.json"):
                shutil.copy(ROOT / "examples/tutorial" / name, self.folder)
        self.temporary.mkdir()
        self.temporary.chmod(0o1777)
        assert self.do("state", "init").returncode == 0

    @property
    def temporary(self) -> Path:
        """Return where its programs put what is not to stay."""
        return self.folder / "tmp"

    @property
    def builds(self) -> Path:
        return self.folder / ".fleet/images" / IMAGE

    def recipe(self, more: str) -> None:
        """Have the recipe say more."""
        path = self.folder / "fleet.yaml"
        text = path.read_text(encoding="utf-8")
        assert "    architecture: amd64\n" in text
        path.write_text(
            text.replace("    architecture: amd64\n", f"    architecture: amd64\n    {more}\n"),
            encoding="utf-8",
        )

    def environment(self) -> dict[str, str]:
        cache = {"XDG_CACHE_HOME": str(self.cache)} if self.cache else {}
        ours = {"CI": "true", "FLEET_TEST_SECRET": SECRET, "TMPDIR": str(self.temporary)}
        return {**os.environ, **cache, **ours}

    def do(self, *words: str) -> Completed:
        return subprocess.run(
            [*self.prefix, str(self.program), *words],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,
        )

    def build(self, *words: str) -> Completed:
        return self.do("image", "build", IMAGE, *mirror_options(), *words)

    def begin(self, until: str) -> "subprocess.Popen[str]":
        """Begin a build, and return when it says so."""
        build = subprocess.Popen(
            [self.program, "image", "build", IMAGE, *mirror_options()],
            cwd=self.folder,
            env=self.environment(),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert build.stderr is not None
        for line in build.stderr:
            if until in line:
                break
        return build

    def states(self) -> list[str]:
        told = self.do("image", "show", IMAGE, "--json")
        return [version["state"] for version in json.loads(told.stdout)["versions"]]

    def left(self) -> list[str]:
        """Return the folders of builds: all files there except locks and logs."""
        names = sorted(path.name for path in self.builds.iterdir())
        return [name for name in names if not name.endswith((".lock", ".log"))]

    def leavings(self) -> list[str]:
        """Return mounts, processes and temporary files that have to do with builds here."""
        wait_for_end_of(self)
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        loops = Path("/sys/block").glob("loop*/loop/backing_file")
        files = [path.read_text(encoding="utf-8") for path in loops]
        processes = [f"process {pid}" for pid in processes_in(self.folder)]
        places = [each for each in (*mounts, *files) if str(self.folder) in each]
        return [*processes, *places, *map(str, self.temporary.iterdir())]


@dataclass
class Built:
    """A site where the example was built."""

    site: Site
    done: Completed
    folder: Path
    manifest: Manifest
    states: list[str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("installed")
    installed = install(build_wheel(folder), folder, ("images",))
    site = Site(tmp_path_factory.mktemp("site"), program=installed.program)
    done = site.build("--raw")
    assert (done.returncode, done.stderr[-2000:]) == (0, done.stderr[-2000:])
    (name,) = site.left()
    folder = site.builds / name
    return Built(site, done, folder, read_manifest(folder), site.states())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_build_of_example_has_files_of_its_manifest(built: Built) -> None:
    verify(built.folder, built.manifest)

    files = ["build.log", "disk.qcow2", "disk.raw", "sbom.spdx.json"]
    assert sorted(built.manifest.files) == files
    assert built.states == ["built"]
    assert "fleet image test trixie-amd64" in built.done.stdout


def test_build_prints_phases_and_tasks_line_by_line(built: Built) -> None:
    told = [line.partition(": ")[2].partition(" ")[2] for line in built.done.stderr.splitlines()]

    assert {"sources", "disk", "compress"} <= set(told)
    assert ("role" in told) == ("role · Enable the worker's service" in told)


@pytest.mark.long
def test_next_build_uses_cached_root(built: Built, site: Site) -> None:
    done = site.build("--json")

    assert (built.done.returncode, done.returncode) == (0, 0), done.stderr
    (name,) = site.left()
    assert not {"base", "role"} & read_manifest(site.builds / name).seconds.keys()


def test_manifest_has_origin_and_checksum_of_each_package(built: Built) -> None:
    packages = {package.name: package for package in built.manifest.packages}

    assert {"debusine-worker", "sbuild", "autopkgtest", "cloud-init"} <= set(packages)
    assert all(len(package.sha256) == 64 for package in packages.values())
    assert "/main at http" in packages["debusine-worker"].origin


def test_disk_boots_by_uefi_and_by_bios(built: Built) -> None:
    raw = next(built.site.builds.glob("*/disk.raw"))
    told = subprocess.run(["/sbin/sfdisk", "--json", raw], capture_output=True, check=True)
    boot, root = json.loads(told.stdout)["partitiontable"]["partitions"]

    assert (boot["name"], boot["attrs"], root["name"]) == ("boot", "LegacyBIOSBootable", "root")
    offset = boot["start"] * 512
    files = subprocess.run(
        ["mdir", "-a", "-b", "-/", "-i", f"{raw}@@{offset}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {"::/EFI/BOOT/BOOTX64.EFI", "::/vmlinuz", "::/initrd.img"} <= set(files)
    assert "::/syslinux/ldlinux.sys" in files
    assert raw.read_bytes()[:440] == disk.BOOT_CODE.read_bytes()[:440]


def test_image_passes_its_test(built: Built) -> None:
    tested = built.site.do("image", "test", IMAGE)

    assert (tested.returncode, tested.stderr) == (0, tested.stderr), tested.stdout


def test_no_secret_of_the_environment_is_in_any_artifact(built: Built) -> None:
    for name in ("build.log", "manifest.json", "sbom.spdx.json"):
        assert SECRET not in (built.folder / name).read_text(encoding="utf-8")
    raw = next(built.site.builds.glob("*/disk.raw"))
    assert subprocess.run(["grep", "-qaF", SECRET, raw], check=False).returncode == 1


def test_build_leaves_only_its_folder(built: Built) -> None:
    assert built.site.leavings() == []
    assert len(built.site.left()) == 1


def test_next_build_cleans_up_after_a_killed_one(site: Site) -> None:
    build = site.begin(until=" disk")
    build.send_signal(signal.SIGKILL)
    build.communicate()
    wait_for_end_of(site)

    assert site.leavings() == []
    with Loopback(lambda _: html()) as garbage:
        failed = site.do("image", "build", IMAGE, "--mirror", f"{garbage.url}/debian")
    assert failed.returncode == 1
    assert site.left() == []
    assert site.states() == ["failed", "failed"]


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_build_leaves_no_files(site: Site, asked: signal.Signals) -> None:
    build = site.begin(until=" disk")
    build.send_signal(asked)
    _, said = build.communicate()

    assert (build.returncode, said.splitlines()[-1]) == (130, "fleet: interrupted")
    assert (site.left(), site.leavings(), site.states()) == ([], [], ["failed"])


def test_second_concurrent_build_of_an_image_is_refused(site: Site) -> None:
    build = site.begin(until=" disk")
    second = site.build()
    build.terminate()
    build.communicate()

    assert second.returncode == 1
    assert tells(second.stderr, f"image {IMAGE}", f"{build.pid}", "wait")


def test_unknown_package_error_names_failed_task(site: Site) -> None:
    site.recipe("packages: [no-such-package-anywhere]")

    failed = site.build()

    assert failed.returncode == 1
    assert tells(failed.stderr, "failed", "Install the worker")
    assert "no-such-package-anywhere" in failed.stderr
    assert (site.left(), site.leavings(), site.states()) == ([], [], ["failed"])


def test_image_build_reports_unknown_suite_and_unreachable_mirror(site: Site) -> None:
    with Loopback(lambda _: Answer(404, b"")) as empty:
        unknown = site.do("image", "build", IMAGE, "--mirror", f"{empty.url}/debian")
    dead = site.do("image", "build", IMAGE, "--mirror", f"{empty.url}/debian")

    assert tells(unknown.stderr, "trixie", "dists/trixie/InRelease")
    assert tells(dead.stderr, "/debian", "answer")
    assert (unknown.returncode, dead.returncode, site.left()) == (1, 1, [])


def test_invalid_mirror_error_quotes_apt(site: Site) -> None:
    release = b"-----BEGIN PGP SIGNED MESSAGE-----\n\nDate: Sat, 21 Nov 2026 08:11:10 UTC\n"
    with Loopback(lambda _: Answer(200, release)) as lying:
        failed = site.do("image", "build", IMAGE, "--mirror", f"{lying.url}/debian")

    assert failed.returncode == 1
    assert tells(failed.stderr, "mmdebstrap", "failed")
    assert "E: " in failed.stderr
    assert (site.left(), site.leavings()) == ([], [])


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
def test_full_disk_error_names_remedy(built: Built, small: Path) -> None:
    site = Site(small)

    failed = site.build()

    assert built.done.returncode == 0  # so that the root is kept, and unpacking it fails
    assert failed.returncode == 1
    assert "No space left on device" in failed.stderr
    assert tells(failed.stderr, "state.images", "XDG_CACHE_HOME")
    assert (site.left(), site.states()) == ([], ["failed"])
    assert [each for each in site.leavings() if f" {small} " not in each] == []


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="the tests run as an ordinary user already")
def test_ordinary_user_builds_equal_image_without_cache(built: Built) -> None:
    # Not where pytest has its own: that is root's alone.
    folder = Path(tempfile.mkdtemp(prefix="fleet-bake-", dir="/var/tmp"))
    try:
        with somebody() as user:
            shutil.chown(folder, user, user)
            site = Site(folder, as_user(user, folder), folder / "cache")

            done = site.build()

            assert done.returncode == 0, done.stderr
            assert site.leavings() == []
        manifest = read_manifest(site.builds / site.left()[-1])
        assert manifest.packages == built.manifest.packages
        with (
            open_disk(site.builds / manifest.version / QCOW2) as disk,
            workplace(folder) as root,
        ):
            disk.copy(root)
            assert stat.S_IMODE((root / "etc/fstab").stat().st_mode) == 0o644
        (base,) = (folder / "cache/fleet/images").glob("base-*.tar")
        assert measure(base) == measure(CACHE / base.name)
    finally:
        shutil.rmtree(folder)


@pytest.mark.long
def test_second_build_without_cache_has_equal_base(
    site: Site,
) -> None:
    site.recipe("packages: [fuse3]")  # its hook makes the initrd of the base again

    done = site.build("--check-reproducible", "--json")

    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert told["same_base"] is True, told["differences"]
    assert done.returncode == 0
    assert [row for row in told["differences"] if row[2].startswith("unknown: ")] == []
    assert [row for row in told["differences"] if row[0].startswith("/boot/")] == []


def processes_in(folder: Path) -> list[int]:
    """Return the processes that work in a folder, or in a root that lies there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            places = [str((process / link).readlink()) for link in ("cwd", "root")]
        except OSError:
            continue  # it ended meanwhile
        if any(Path(place).is_relative_to(folder) for place in places):
            found.append(int(process.name))
    return found


def wait_for_end_of(site: Site) -> None:
    """Wait until the kernel has taken the processes of a killed build away."""
    for pid in processes_in(site.folder):
        with suppress(ProcessLookupError):
            ended = os.pidfd_open(pid)
            select.select([ended], [], [], 10)
            os.close(ended)
