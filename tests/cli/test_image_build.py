"""`fleet image build`: what is refused before anything is built."""

import pytest

from fleet.images.report import BuildResult, built_to_lines
from fleet.model import images
from tests.builders import NOW
from tests.builders.versioning import a_manifest
from tests.rigs.trial import Trial


def test_refused_image_build_records_no_version(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.images.role.shutil.which", lambda *_, **__: None)

    code, said = trial.do("image", "build", "trixie")

    assert (code, "fleet-reconciler[images]" in said) == (1, True)
    assert trial.versions() == {}


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

    said = built_to_lines(BuildResult(folder="images/trixie", manifest=made))

    assert ["".join(part.text for part in each) for each in said][4:] == end
