"""The child pipeline has a job for each image that is due, and is valid for GitLab."""

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from fleet.images.report import to_child_pipeline
from fleet.model.images import LEFT_AFTER, DueImage, DueReport
from tests.builders import NOW
from tests.rigs.process import ROOT, clean_environment, run_process
from tests.rigs.repeats import slow_but

NOT_NOW = DueImage(image="held", steps=("build", "test"), waits="it failed once")
NOTHING = DueImage(image="fresh")
BUILD = DueImage(image="trixie", steps=("build", "test", "publish"))
PUBLISH = DueImage(image="sid", steps=("publish",), version="20261121T060000Z")
WAITING = (BUILD, PUBLISH, NOT_NOW)


JOB = {"image": "bakery@sha256:00", "tags": ["bakery"], "before_script": ["make setup-images"]}


def pipeline(*images: DueImage) -> str:
    report = DueReport(fleet="debian-ci", time=NOW, images=images)
    return to_child_pipeline(report, ".fleet/images", file="ci/fleet.yaml", job=JOB)


def test_each_due_image_has_a_job_that_keeps_its_log() -> None:
    jobs = yaml.safe_load(pipeline(BUILD, PUBLISH, NOT_NOW, NOTHING))

    assert set(jobs) == {"stages", "image trixie", "image sid"}
    published = ["fleet image publish sid 20261121T060000Z --file ci/fleet.yaml"]
    assert jobs["image sid"]["script"] == published
    job = jobs["image trixie"]
    hours, unit = job["timeout"].split()
    assert unit == "hours"
    assert timedelta(hours=int(hours)) < LEFT_AFTER  # before its upload counts as abandoned
    assert job["script"] == [
        "fleet image build trixie --file ci/fleet.yaml",
        "fleet image test trixie --file ci/fleet.yaml",
        "fleet image publish trixie --file ci/fleet.yaml",
    ]
    assert {key: job[key] for key in JOB} == JOB
    assert (job["artifacts"]["when"], job["artifacts"]["access"]) == ("always", "developer")
    assert ".fleet/images/trixie/*/build.log" in job["artifacts"]["paths"]


def test_pipeline_has_one_job_when_no_image_is_due() -> None:
    jobs = yaml.safe_load(pipeline(NOTHING, NOT_NOW))

    (job,) = jobs.keys() - {"stages"}
    assert jobs[job]["tags"] == JOB["tags"]
    assert [command.split()[0] for command in jobs[job]["script"]] == ["echo"]


@pytest.mark.parametrize("images", slow_but([WAITING], [WAITING, ()]), ids=["due", "nothing"])
def test_child_pipeline_matches_schema_of_gitlab(
    images: tuple[DueImage, ...], tmp_path: Path
) -> None:
    path = tmp_path / "images.yml"
    path.write_text(pipeline(*images), encoding="utf-8")

    checked = run_process(
        *(ROOT / ".venv/bin/check-jsonschema", "--builtin-schema", "vendor.gitlab-ci"),
        *("--data-transform", "gitlab-ci", path),
        cwd=tmp_path,
        env=clean_environment(tmp_path),
    )

    assert checked.returncode == 0, checked.stdout
