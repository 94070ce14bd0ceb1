"""`fleet image test`: looks into a built image, offline, and says what is wrong with it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.images import jobs as image_jobs
from fleet.images.folder import finish_build, read_manifest, verify
from fleet.model.images import ImageTestJob, Manifest, Version, recipe_digest
from fleet.model.images import Test as Found
from tests.builders import NOW
from tests.builders.image_trees import a_recipe
from tests.builders.sentences import tells
from tests.builders.versioning import a_version, open_build
from tests.fakes.qemu import install_qemu
from tests.rigs.image_disks import a_disk, a_root, needs_firmware, needs_programs
from tests.rigs.trial import Trial
from tests.rigs.worker_client import TAGS

VERSION = "20261121T060000Z"


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the disk of an image that is fit for use."""
    folder = tmp_path_factory.mktemp("fit")
    return a_disk(folder / "disk.qcow2", a_root(folder / "root"))


@pytest.fixture(scope="module")
def unfit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the disk of an image with two problems."""
    folder = tmp_path_factory.mktemp("unfit")
    root = a_root(folder / "root")
    (root / "etc/machine-id").write_text("0123456789abcdef\n", encoding="utf-8")
    (root / "etc/hostname").write_text("builder-7\n", encoding="utf-8")
    return a_disk(folder / "disk.qcow2", root)


def build(trial: Trial, disk: Path | None, **said: object) -> Path:
    """Put a build with this disk where fleet keeps builds, and have the store remember it."""
    images = trial.folder / ".fleet/images"
    partial = open_build(images, "trixie", VERSION)
    if disk is not None:
        shutil.copyfile(disk, partial / "disk.qcow2")
    manifest = {
        "image": "trixie",
        "version": VERSION,
        "way": "disk",
        "suite": "trixie",
        "architecture": "amd64",
        "recipe_digest": recipe_digest(a_recipe()),
        "role_digest": "a1",
        "digest": "d1",
        "built_at": NOW,
        "built_by": "ci",
        "seconds": {"base": 1.0},
    }
    folder, _ = finish_build(partial, Manifest.model_validate({**manifest, **said}))
    trial.remember(a_version(version=VERSION, state="built"))
    return folder


@needs_programs
def test_image_version_is_tested_after_successful_test(trial: Trial, fit: Path) -> None:
    folder = build(trial, fit)

    said = trial.told("image", "test", "trixie", "--offline")

    first, _ = said.splitlines()
    assert first == f"image trixie {VERSION}: tested"
    assert trial.versions() == {VERSION: "tested"}
    (test,) = read_manifest(folder).tests
    assert (test.kind, test.problems) == ("offline", ())


@needs_programs
def test_image_test_reports_and_stores_each_problem(trial: Trial, unfit: Path) -> None:
    folder = build(trial, unfit)

    said = trial.told("image", "test", "trixie", VERSION, "--offline", code=1)

    problems = [
        "/etc/machine-id has an id that all machines would share: empty it",
        (
            "/etc/hostname says builder-7, the builder's name or one that all machines would "
            "share: write localhost into it"
        ),
    ]
    assert said.splitlines()[0] == f"image trixie {VERSION}: failed"
    assert said.splitlines()[1].endswith(": 2 problems")
    assert said.splitlines()[2:] == [f"  - {problem}" for problem in problems]
    assert trial.versions() == {VERSION: "failed"}
    assert list(read_manifest(folder).tests[0].problems) == problems


@needs_programs
def test_image_test_reports_recipe_changed_since_build(trial: Trial, fit: Path) -> None:
    build(trial, fit, recipe_digest="another")

    said = trial.told("image", "test", "trixie", "--offline")

    assert tells(said.splitlines()[-1], "fleet image build trixie")


@needs_programs
@pytest.mark.parametrize(("version", "noted"), [("0.11.3+deb13u1", 1), ("0.16.2~bpo13+1", 0)])
def test_image_test_reports_worker_without_work_from_debusine(
    trial: Trial, fit: Path, version: str, noted: int
) -> None:
    worker = {"name": "debusine-worker", "version": version, "architecture": "all"}
    build(trial, fit, packages=[worker | {"source": "debusine", "source_version": version}])

    said = trial.told("image", "test", "trixie", "--offline")

    notes = said.splitlines()[2:]
    assert [tells(each, version, "worker_version") for each in notes] == [True] * noted


JOBS = (
    ImageTestJob(name="executor:unshare", seconds=8),
    ImageTestJob(name="executor:qemu", unproven="this computer has no KVM that works"),
    ImageTestJob(name="task:sbuild", seconds=40),
)
PROVEN = ("worker:executor:unshare", "worker:task:worker:sbuild:version:1")


def run_jobs(
    monkeypatch: pytest.MonkeyPatch, *jobs: ImageTestJob, provides: tuple[str, ...] = ()
) -> None:
    """Have the jobs of an image end so."""
    problems = tuple(f"{each.name} failed: {each.problem}" for each in jobs if each.problem)
    test = Found(kind="jobs", at=NOW, seconds=48, problems=problems, provides=provides, jobs=jobs)
    monkeypatch.setattr(image_jobs, "prove", lambda *_: test)


def remembered(trial: Trial) -> Version:
    (version,) = trial.store().image_versions()
    return version


@needs_programs
def test_image_test_remembers_proven_tags_and_times(
    trial: Trial, fit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build(trial, fit)
    run_jobs(monkeypatch, *JOBS, provides=PROVEN)

    said = trial.told("image", "test", "trixie")

    version = remembered(trial)
    assert (version.state, version.provides) == ("tested", PROVEN)
    assert version.unproven == ("executor:qemu",)
    assert read_manifest(folder).tests[1].jobs == JOBS
    for named in ("executor:unshare, 8 s", "task:sbuild, 40 s", "executor:qemu is unproven"):
        assert named in said


@needs_programs
def test_image_test_fails_when_a_job_fails(
    trial: Trial, fit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(trial, fit)
    run_jobs(
        monkeypatch, ImageTestJob(name="executor:incus-lxc", problem="exec: dnsmasq: not found")
    )

    trial.told("image", "test", "trixie", "--boot", code=1)

    assert (remembered(trial).state, remembered(trial).provides) == ("failed", ())
    assert tells(remembered(trial).why, "executor:incus-lxc", "dnsmasq")


@pytest.mark.parametrize(
    ("tests", "instead"),
    [
        (
            [{"kind": "offline", "at": NOW, "seconds": 2}],
            "it was tested at the end of its build",
        ),
        ([], "`fleet image build trixie --at PROVIDER` builds one and tests it there"),
    ],
)
def test_image_test_reports_version_without_disk(
    trial: Trial, tests: list[object], instead: str
) -> None:
    folder = build(trial, None, way="instance", tests=tests)

    said = trial.told("image", "test", "trixie", "--offline", code=1)

    assert str(folder) in said
    assert said.endswith(f"{instead}\n")


@pytest.fixture
def qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what has QEMU's programs do this."""

    def install(*what: str) -> None:
        for name, value in install_qemu(tmp_path / "bin", *what).items():
            monkeypatch.setenv(name, value)

    return install


TEST = ("image", "test", "trixie", "--offline")


@needs_programs
@needs_firmware
def test_booted_image_stores_tags_of_its_worker(
    trial: Trial, fit: Path, qemu: Callable[..., None]
) -> None:
    folder = build(trial, fit)
    qemu("register")

    said = trial.told(*TEST, "--boot", "--limit", "30s")

    assert said.splitlines()[-3] == f"image trixie {VERSION}: tested"
    assert tells(said.splitlines()[-1], "2 tags")
    manifest = read_manifest(folder)
    assert [test.kind for test in manifest.tests] == ["offline", "boot"]
    assert manifest.tests[-1].provides == tuple(sorted(TAGS))
    (shown,) = trial.json("image", "show", "trixie")["versions"]
    assert shown["provides"] == sorted(TAGS)
    verify(folder, manifest, ["console.log"])


@needs_programs
@needs_firmware
def test_image_version_is_failed_when_it_does_not_boot(
    trial: Trial, fit: Path, qemu: Callable[..., None]
) -> None:
    folder = build(trial, fit)
    qemu("off")

    assert trial.json(*TEST, "--boot", code=1)["state"] == "failed"
    assert trial.versions() == {VERSION: "failed"}
    (problem,) = read_manifest(folder).tests[-1].problems
    assert tells(problem, "console", "off", "ready")


@needs_programs
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--limit", "soon"], ("--limit soon", "60s", "14m")),
        (["--queue", "work"], ("--queue work", "`admin`", "none")),
    ],
)
def test_image_test_boot_error_names_next_step(
    *,
    trial: Trial,
    fit: Path,
    qemu: Callable[..., None],
    args: list[str],
    said: tuple[str, ...],
) -> None:
    build(trial, fit)
    qemu()

    assert tells(trial.told(*TEST, "--boot", *args, code=2), *said)
    assert trial.versions() == {VERSION: "built"}


@needs_programs
def test_image_test_does_not_boot_other_architecture(trial: Trial, fit: Path) -> None:
    build(trial, fit, architecture="arm64")

    said = trial.told("image", "test", "trixie", "--offline", "--boot", code=1)

    assert tells(said, "arm64", "amd64", "--boot")
