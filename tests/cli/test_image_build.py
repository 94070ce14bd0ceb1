"""`fleet image build`: what is refused before anything is built."""

import pytest

from fleet.images.report import BuildResult, built_to_text, step_to_text
from fleet.model import images
from fleet.model.images import BuildStep
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.versioning import a_manifest, a_version
from tests.rigs.trial import Trial, fleet_yaml


def test_unknown_image_is_refused_with_known_images(trial: Trial) -> None:
    code, said = trial.do("image", "build", "trixy")

    assert code == 1
    assert tells(said, "fleet: error: ", "trixy", "trixie")


def test_existing_image_is_not_built(trial: Trial) -> None:
    trial.write(fleet_yaml().replace("images:", "images:\n  golden: {existing: {desk: g1}}"))

    code, said = trial.do("image", "build", "golden")

    assert code == 1
    assert "image golden" in said
    assert "`existing`" in said


@pytest.mark.parametrize("url", ["ftp://x/debian", "http://user:secret@deb.example.org/debian"])
def test_mirror_with_password_is_refused(trial: Trial, url: str) -> None:
    code, said = trial.do("image", "build", "trixie", "--mirror", url)

    assert code == 2
    assert tells(said, "mirror", "http://deb.example.org/debian")
    assert "secret" not in said


def test_refused_image_build_records_no_version(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.images.role.find_spec", lambda _: None)

    code, said = trial.do("image", "build", "trixie")

    assert (code, "fleet-reconciler[images]" in said) == (1, True)
    assert trial.versions() == {}


def test_build_step_shows_elapsed_time() -> None:
    steps = (
        BuildStep(phase="base", seconds=2.9),
        BuildStep(phase="role", task="Install the worker", seconds=61.2),
    )

    assert [step_to_text(step) for step in steps] == ["0:02 base", f"1:01 role · {steps[1].task}"]


@pytest.mark.parametrize(
    ("tests", "end"),
    [
        ((), ["next: fleet image test trixie 20261121T203000Z"]),
        (
            (images.Test(kind="offline", at=NOW, seconds=2),),
            [
                "no problem found in its machine; it is tested",
                "next: fleet image publish trixie 20261121T203000Z",
            ],
        ),
    ],
)
def test_build_result_names_next_command(tests: tuple[images.Test, ...], end: list[str]) -> None:
    made = a_manifest(version="20261121T203000Z", way="instance", tests=tests)

    said = built_to_text(BuildResult(folder="images/trixie", manifest=made)).splitlines()

    assert said[4:] == end


def test_image_build_on_machine_is_refused_except_at_hetzner(trial: Trial) -> None:
    code, said = trial.do("image", "build", "trixie", "--at", "desk")

    assert code == 1
    assert tells(said, "fleet: error: ", "hcloud", "desk (sim)")


def test_image_build_accepts_a_queue_as_place(trial: Trial) -> None:
    assert trial.do("image", "build", "trixie", "--at", "work") == (
        1,
        "fleet: error: no Debusine queue work; known: none\n",
    )


def test_image_build_refuses_raw_with_at(trial: Trial) -> None:
    code, said = trial.do("image", "build", "trixie", "--at", "desk", "--raw")

    assert (code, "--at excludes " in said) == (2, True)


@pytest.mark.parametrize(
    ("built_in", "why", "command"),
    [
        (None, "http://deb.example.org/debian does not answer", "fleet image build trixie"),
        (None, "its process was killed", "fleet image build trixie"),
        (None, "it was interrupted", "fleet image build trixie"),
        (90, "task:sbuild failed", "fleet image test trixie 20261121T203000Z"),
    ],
)
def test_failed_version_shows_reason_and_command(
    trial: Trial, built_in: int | None, why: str, command: str
) -> None:
    """A build that failed leaves nothing to test."""
    failed = {"version": "20261121T203000Z", "state": "failed", "why": why, "built_in": built_in}
    trial.remember(a_version(**failed))

    _, said = trial.do("image", "show", "trixie")

    assert said.splitlines()[-1].endswith(f"; {command}")
