"""The shipped pipeline, run job by job on this machine by gitlab-ci-local."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.images import mirrors
from tests.live import chroot
from tests.rigs.gitlab_ci import ARTIFACT, MERGE_REQUEST, SCHEDULE, TOKEN, Checkout, Gitlab, jobs
from tests.rigs.process import ROOT, Completed, clean_environment, run_process

pytestmark = pytest.mark.gitlab

SMALL = """\
fleet: ci
state: {{backend: "{backend}"}}
providers:
  desk: {{kind: sim}}
queues:
  trial: {{kind: world, path: world.json}}
images:
  trixie: {{existing: {{desk: trixie}}}}
pools:
  builders: {{provider: desk, machine: ccx33, image: trixie, workers: {{max: 2, min: 1}}}}
"""
RECIPE = "{suite: trixie, architecture: amd64, publish: [desk]"
WORLD = {
    "format": "fleet-world-1",
    "fleet": "ci",
    "time": "2026-11-21T08:00:00Z",
    "queues": {"trial": {"demand": {"read_at": "2026-11-21T08:00:00Z"}}},
}
ORIGIN = "git@gitlab.example.org:debian/fleet.git"


class Pipeline(Checkout):
    """A checkout with a small fleet."""

    def keep_state_in(self, backend: str) -> None:
        (self.folder / "ci" / "fleet.yaml").write_text(
            SMALL.format(backend=backend), encoding="utf-8"
        )

    def fleet(self, *arguments: str) -> Completed:
        return run_process(
            self.folder / ".venv" / "bin" / "fleet",
            *(*arguments, "--file", "ci/fleet.yaml"),
            cwd=self.folder,
            env=self.environment(),
        )

    def change(self, old: str, new: str) -> None:
        """Edit fleet.yaml without committing it, as a merge request would have it."""
        path = self.folder / "ci" / "fleet.yaml"
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def run(self, *arguments: str) -> Completed:
        return super().run(*arguments, "--variable", "FLEET_FILE=ci/fleet.yaml")


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Return a fresh checkout of what is being developed, with a history of one commit."""
    checkout = tmp_path_factory.mktemp("pipeline") / "checkout"
    home = tmp_path_factory.mktemp("home")
    listed = run_process(
        *("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        cwd=ROOT,
        env=clean_environment(home),
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
    (checkout / "ci").mkdir()
    (checkout / "ci" / "world.json").write_text(json.dumps(WORLD), encoding="utf-8")
    made = Pipeline(checkout, home, ORIGIN)
    made.keep_state_in("file")
    made.commit()
    return made


@pytest.fixture(scope="module")
def validated(pipeline: Pipeline) -> Pipeline:
    """Return the checkout after its first job, which has installed its .venv."""
    made = pipeline.run("validate", *MERGE_REQUEST)
    assert made.returncode == 0, made.stdout + made.stderr
    return pipeline


@pytest.fixture
def kept(validated: Pipeline, tmp_path: Path) -> Pipeline:
    """Return the checkout with state that outlives its jobs."""
    pipeline = validated
    pipeline.keep_state_in(f"file://{tmp_path}/state")
    initialised = pipeline.fleet("state", "init")
    assert initialised.returncode == 0, initialised.stderr
    return pipeline


PUBLISHED = {"observe", "history", "apply", "documentation", "pages"}


def test_merge_request_is_checked_and_changes_no_machine(pipeline: Pipeline) -> None:
    listed = pipeline.run("--list-csv", *MERGE_REQUEST)

    judging = {"validate", "plan", "policies", "simulate"}
    assert jobs(listed) == judging | {"lint", "tests", "documentation"}, listed.stderr


def test_default_branch_is_checked_applied_and_published(pipeline: Pipeline) -> None:
    listed = pipeline.run("--list-csv", "--variable", "CI_PIPELINE_SOURCE=push")

    assert jobs(listed) == {"lint", "validate", "tests"} | PUBLISHED, listed.stderr


def test_schedule_only_applies_and_publishes(pipeline: Pipeline) -> None:
    listed = pipeline.run("--list-csv", *SCHEDULE)

    assert jobs(listed) == PUBLISHED, listed.stderr


def test_image_schedule_also_lists_due_images(pipeline: Pipeline) -> None:
    listed = pipeline.run("--list-csv", *SCHEDULE, "--variable", "FLEET_IMAGES=due")

    assert jobs(listed) == PUBLISHED | {"images due", "images"}, listed.stderr


def test_tag_builds_tests_signs_and_publishes_a_release(pipeline: Pipeline) -> None:
    tag = ("--variable", "CI_PIPELINE_SOURCE=push", "--variable", "CI_COMMIT_TAG=0.2.0")

    listed = pipeline.run("--list-csv", *tag, "--variable", "CI_COMMIT_BRANCH=")

    assert {name for name in jobs(listed) if name.startswith("release")} == {
        f"release {step}" for step in ("build", "test", "sign", "publish")
    }
    assert not jobs(listed) & {"apply", "observe", "pages", "plan"}


RELEASE = {
    "CI_COMMIT_TAG": "0.2.0",
    "CI_PROJECT_URL": "https://gitlab.example.org/debian/fleet",
    "CI_RUNNER_ID": "3",
    "CI_JOB_STARTED_AT": "2026-11-21T08:00:00Z",
    "CI_JOB_TOKEN": TOKEN,
    "CI_API_V4_URL": "http://127.0.0.1:9/api/v4",
    "CI_PROJECT_ID": "7",
}


@pytest.mark.long
def test_release_is_built_tested_signed_and_ready_to_be_published(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    key = tmp_path / "key.asc"
    new_key = ("--passphrase", "", "--quick-generate-key", "release", "ed25519", "sign")
    gpg(tmp_path, *new_key)
    key.write_text(gpg(tmp_path, "--armor", "--export-secret-keys"), encoding="utf-8")
    named = [f"{name}={value}" for name, value in RELEASE.items()]
    variables = [w for each in (*named, f"FLEET_SIGNING_KEY={key}") for w in ("--variable", each)]

    for step in ("build", "test", "sign", "publish"):
        ran = pipeline.run(f"release {step}", *variables)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    dist = pipeline.folder / "dist"
    gpg(tmp_path, "--verify", str(dist / "SHA256SUMS.asc"), str(dist / "SHA256SUMS"))
    assert {path.suffix for path in dist.iterdir()} == {".whl", ".gz", ".json", "", ".asc"}
    assert "fleet_reconciler-0.2.0.tar.gz" in ran.stdout + ran.stderr


def gpg(home: Path, *arguments: str) -> str:
    command = ("gpg", "--homedir", str(home), "--batch", "--quiet", *arguments)
    done = run_process(*command, cwd=home, env=clean_environment(home))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tag_also_builds_the_image_when_its_base_is_named(pipeline: Pipeline) -> None:
    tag = ("--variable", "CI_PIPELINE_SOURCE=push", "--variable", "CI_COMMIT_TAG=0.2.0")
    base = ("--variable", f"FLEET_BASE=debian@sha256:{'b' * 64}")

    listed = pipeline.run("--list-csv", *tag, *base, "--variable", "CI_COMMIT_BRANCH=")

    assert {name for name in jobs(listed) if "image" in name} == {
        "release image",
        "release publish image",
    }


def test_long_schedule_also_runs_the_long_tests(pipeline: Pipeline) -> None:
    listed = pipeline.run("--list-csv", *SCHEDULE, "--variable", "FLEET_TESTS=long")

    assert {
        f"long tests: [{session}]"
        for session in (
            "laws",
            "long",
            "kills",
            "crowd",
            "fuzz",
            "surroundings",
            "every-suite",
            "images-boot",
            "vulnerabilities",
            "debian",
            "container",
        )
    } | PUBLISHED == jobs(listed), listed.stderr


def test_validate_job_has_code_quality_report(validated: Pipeline) -> None:
    report = validated.folder / "code-quality.json"

    assert json.loads(report.read_text(encoding="utf-8")) == []


@pytest.fixture(scope="module")
def observed(validated: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return what the default branch observes: an empty store."""
    validated.keep_state_in(f"file://{tmp_path_factory.mktemp('state')}")
    assert validated.fleet("state", "init").returncode == 0
    ran = validated.run("observe", *SCHEDULE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    made = validated.folder / "world.json.zst"
    content = made.read_bytes()
    made.unlink()
    return content


@pytest.fixture
def gitlab(observed: bytes) -> Iterator[Gitlab]:
    """Return a GitLab that has what the default branch observed."""
    with Gitlab(observed) as server:
        yield server


def test_plan_job_shows_effect_of_the_change(gitlab: Gitlab, kept: Pipeline) -> None:
    kept.change("max: 2, min: 1", "max: 2, min: 2")
    left = ("--variable", f"CI_MERGE_REQUEST_DIFF_BASE_SHA={kept.git('rev-parse', 'main')}")
    target = kept.target_branch(f"file://{kept.folder}")

    ran = kept.run("plan", *MERGE_REQUEST, *gitlab.variables, *left, *target)

    assert gitlab.asked == [(f"{ARTIFACT}?job=observe", TOKEN)]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    plan = (kept.folder / "plan.md").read_text(encoding="utf-8")
    assert re.search("^Observed .* ago$", plan, re.MULTILINE)
    assert "EUR/h" in plan.splitlines()[0]
    assert tells(plan, "| pool `builders` |", "1", "2", "1", "ccx33")


def test_plan_job_succeeds_without_target_branch(gitlab: Gitlab, kept: Pipeline) -> None:
    nowhere = f"file://{kept.folder}/nowhere"

    ran = kept.run("plan", *MERGE_REQUEST, *gitlab.variables, *kept.target_branch(nowhere))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    plan = (kept.folder / "plan.md").read_text(encoding="utf-8")
    assert tells(plan, "#### ", "unknown")


def test_plan_job_has_markdown_and_terraform_report(gitlab: Gitlab, kept: Pipeline) -> None:
    target = kept.target_branch(f"file://{kept.folder}")

    ran = kept.run("plan", *MERGE_REQUEST, *gitlab.variables, *target)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    plan = (kept.folder / "plan.md").read_text(encoding="utf-8")
    assert "ci-builders-0001" in plan
    # The store of the test's state is an edit that the target branch does not have.
    assert "EUR/h" not in plan.splitlines()[0]
    report = json.loads((kept.folder / "terraform.json").read_text(encoding="utf-8"))
    assert report == {"create": 1, "update": 0, "delete": 0}


def test_plan_job_runs_no_command_of_the_merge_request(
    gitlab: Gitlab, kept: Pipeline, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    token = f"{{command: [touch, {canary}]}}"
    cloud = f"cloud: {{kind: hcloud, location: fsn1, token: {token}}}"
    kept.change("desk: {kind: sim}", f"desk: {{kind: sim}}\n  {cloud}")
    target = kept.target_branch(f"file://{kept.folder}")

    ran = kept.run("plan", *MERGE_REQUEST, *gitlab.variables, *target)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not canary.exists()


def test_plan_job_fails_without_observation(kept: Pipeline) -> None:
    with Gitlab(None) as gitlab:
        ran = kept.run("plan", *MERGE_REQUEST, *gitlab.variables)

    assert ran.returncode != 0
    assert gitlab.asked == [(f"{ARTIFACT}?job=observe", TOKEN)]


def test_apply_job_creates_machines_and_pages_job_shows_them(kept: Pipeline) -> None:
    applied = kept.run("apply", *SCHEDULE)
    shown = kept.run("pages", *SCHEDULE)

    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert shown.returncode == 0, shown.stdout + shown.stderr
    page = kept.folder / "public" / "-" / "status" / "workers" / "index.html"
    assert "ci-builders-0001" in page.read_text(encoding="utf-8")


def test_apply_job_refuses_state_inside_checkout(kept: Pipeline) -> None:
    kept.keep_state_in("file")

    ran = kept.run("apply", *SCHEDULE)

    assert ran.returncode != 0
    assert tells(ran.stdout + ran.stderr, "refused: ", ".fleet")
    assert not (kept.folder / "ci" / ".fleet").exists()


@pytest.fixture
def baking(kept: Pipeline) -> Iterator[Pipeline]:
    """Return the checkout with a recipe, baked from the archive of this machine's apt."""
    # In a process of its own, for it asks the archive, and tests reach this computer only.
    asked = run_process(sys.executable, "-m", "tests.images.mirrors", cwd=ROOT, env=os.environ)
    if asked.returncode == chroot.ABSENT:
        pytest.skip(f"no image can be baked here: {asked.stdout}")
    options = mirrors.mirror_options()
    mirror = options[options.index("--mirror") + 1]
    old = ", snapshot: true" if "--snapshot" in options else ""
    kept.change("{existing: {desk: trixie}}", f"{RECIPE}, mirror: '{mirror}'{old}}}")
    yield kept
    (kept.folder / "images.yml").unlink(missing_ok=True)
    shutil.rmtree(kept.folder / "ci/.fleet", ignore_errors=True)


@pytest.mark.long
def test_child_pipeline_builds_tests_and_publishes_due_image(baking: Pipeline) -> None:
    asked = baking.run("images due", *SCHEDULE, "--variable", "FLEET_IMAGES=due")
    # GitLab starts this file as a pipeline; nothing here does, so its one job is named.
    baked = baking.run("--file", "images.yml", "image trixie")

    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert baked.returncode == 0, baked.stdout + baked.stderr
    shown = baking.fleet("image", "show", "trixie", "--json")
    (version,) = json.loads(shown.stdout)["versions"]
    assert (version["state"], list(version["publications"])) == ("tested", ["desk"])
