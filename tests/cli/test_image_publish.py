"""`fleet image publish`: upload a version to providers and stores, remember where it is."""

import json
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from fleet.images.report import to_child_pipeline
from fleet.model.images import DueImage, DueReport
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.versioning import a_version
from tests.rigs.process import ROOT, clean_environment, run_process
from tests.rigs.publishing import VERSION, a_build, some_disk
from tests.rigs.trial import Trial, fleet_yaml


@pytest.fixture
def built(trial: Trial) -> Trial:
    """Return a trial fleet with a tested version, to be published to a directory."""
    return publishing_to(trial, (trial.folder / "published").as_uri())


def publishing_to(trial: Trial, *places: str) -> Trial:
    listed = f"publish: [{', '.join(places)}]"
    trial.write(fleet_yaml().replace("architecture: amd64}", f"architecture: amd64, {listed}}}"))
    a_build(trial.folder / ".fleet/images/trixie" / VERSION)
    trial.remember(a_version(version=VERSION))
    return trial


def published(trial: Trial) -> dict[str, str]:
    """Return where the version is remembered to be."""
    _, said = trial.do("image", "show", "trixie", "--json")
    (version,) = json.loads(said)["versions"]
    return {place: each["id"] for place, each in version["publications"].items()}


def test_tested_version_is_published_and_recorded(built: Trial) -> None:
    code, said = built.do("image", "publish", "trixie")

    place = (built.folder / "published").as_uri()
    disk = f"{place}/trixie/{VERSION}/disk.raw"
    size = f"{len(some_disk()) + 3:,}"
    first, second, last = said.splitlines()
    assert (code, first) == (0, f"{place}: upload: {size} bytes")
    assert second.startswith(f"{place}: read back: 1,04")
    assert tells(last, place, "trixie", VERSION, disk)
    assert published(built) == {place: disk}
    assert Path(unquote(disk.removeprefix("file://"))).read_bytes() == some_disk()


@pytest.mark.slow
def test_child_pipeline_job_publishes_due_version(built: Trial) -> None:
    image = DueImage(image="trixie", steps=("publish",), version=VERSION)
    report = DueReport(fleet="trial", time=NOW, images=(image,))
    given = {"before_script": [f"PATH={ROOT / '.venv' / 'bin'}:$PATH"]}
    pipeline = to_child_pipeline(report, ".fleet/images", file="fleet.yaml", job=given)
    job = yaml.safe_load(pipeline)["image trixie"]

    done = run_process(
        *("sh", "-ec", "\n".join((*job["before_script"], *job["script"]))),
        cwd=built.folder,
        env=clean_environment(built.folder),
    )

    assert done.returncode == 0, done.stderr
    place = (built.folder / "published").as_uri()
    assert published(built) == {place: f"{place}/trixie/{VERSION}/disk.raw"}
    kept = {found.name for path in job["artifacts"]["paths"] for found in built.folder.glob(path)}
    assert "manifest.json" in kept


def test_publish_clean_uploads_nothing(built: Trial) -> None:
    code, said = built.do("image", "publish", "trixie", "--clean")

    assert (code, said.count("\n")) == (0, 1)
    assert said.startswith(f"{(built.folder / 'published').as_uri()}: ")
    assert published(built) == {}
