"""`fleet image`: which versions there are of each image, and all that is remembered of one."""

import pytest

from fleet.model.images import Publication
from tests.builders import NOW
from tests.builders.versioning import a_version
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT
from tests.rigs.trial import Trial, fleet_yaml

OLD, NEW = "20261120T060000Z", "20261121T060000Z"
UPLOADED = Publication(id="4711", at=NOW, verified=True)


@pytest.fixture
def baked(trial: Trial) -> Trial:
    """Return a trial fleet with an image in use, one nobody baked, and one it no longer names."""
    trial.write(fleet_yaml().replace("images:", "images:\n  golden: {existing: {desk: g1}}"))
    trial.remember(
        a_version(version=OLD, state="failed", why="its worker never registered"),
        a_version(version=NEW, state="candidate", share=20, publications={"desk": UPLOADED}),
        a_version(image="buster", state="retired"),
    )
    return trial


def test_image_show_prints_all_recorded_fields(baked: Trial, golden: Golden) -> None:
    golden.compare(ROOT / "tests/report/golden/image.txt", baked.told("image", "show", "trixie"))
