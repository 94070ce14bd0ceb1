"""The page about baking, followed as it stands; and its image at a real server.

`nox -s images-boot` runs this. The worker of the booted image registers at a real Debusine and
does a piece of its work: that takes minutes without the processor of a real machine.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from fleet.images.folder import list_builds, read_manifest
from fleet.store.database import DatabaseStore
from tests.baking import newest_worker, obstacle
from tests.docs.test_documents import Shell, replayed
from tests.live.chroot import archive
from tests.live.debusine import Server
from tests.live.project import Project
from tests.live.workspace import Workspace
from tests.process import ROOT, fleet_command
from tests.versioning import a_version

pytestmark = pytest.mark.images_boot
PAGE = ROOT / "docs" / "how-to" / "bake-an-image.md"
NOOP = "worker:task:worker:noop:version:1"
IMAGE = "trixie"
SECONDS = 1500


@dataclass(frozen=True)
class Followed:
    """The page as it is, as it would be written now, and the folder it was followed in."""

    text: str
    now: str
    folder: Path

    @property
    def images(self) -> Path:
        """Return where its image was baked."""
        return self.folder / ".fleet/images"


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """Do what the page says, with this machine's archive and what that holds today."""
    if reason := obstacle():
        pytest.skip(reason)
    program = ("env", f"FLEET_MIRROR={archive()}", *fleet_command())
    shell = Shell(tmp_path_factory.mktemp("followed"), program)
    text = PAGE.read_text(encoding="utf-8")
    here = {
        "http://deb.debian.org/debian": archive().rstrip("/"),
        re.findall(r'worker_version: "(.+)"', text)[0]: newest_worker(),
    }
    now = replayed(_changed(text, here), shell)
    return Followed(
        text, _changed(now, {there: named for named, there in here.items()}), shell.project
    )


def test_the_page_shows_what_was_run(followed: Followed, request: pytest.FixtureRequest) -> None:
    text = followed.text
    if request.config.getoption("--update-docs") and _steady(followed.now) != _steady(text):
        PAGE.write_text(followed.now, encoding="utf-8")
        text = followed.now

    assert _steady(followed.now) == _steady(text)


def test_the_worker_of_the_image_does_a_piece_of_a_real_servers_work(
    followed: Followed, project: Project, workspace: Workspace, server: Server
) -> None:
    version = list_builds(followed.images, IMAGE)[0].version
    recipe = yaml.safe_load((followed.folder / "fleet.yaml").read_text())["images"][IMAGE]
    recipe.pop("publish")
    project.write(
        name="baked", pools={}, images={IMAGE: recipe}, state={"images": str(followed.images)}
    )
    store = DatabaseStore(f"sqlite:///{project.folder}/.fleet/store.db", "baked")
    store.save_image_version(a_version(image=IMAGE, version=version, state="built"), was=None)
    number = workspace.post("noop")

    said = project.fleet(
        *("image", "test", IMAGE, version, "--boot", "--queue", "debian", "--limit", "20m"),
        timeout=SECONDS,
    )

    assert f"image {IMAGE} {version}: tested" in said
    assert NOOP in read_manifest(followed.images / IMAGE / version).provides
    assert server.sql("SELECT status, result FROM db_workrequest WHERE id = %s", (number,)) == [
        ("completed", "success")
    ]
    assert server.sql(
        "SELECT t.enabled FROM db_worker w JOIN db_token t ON t.id = w.token_id WHERE w.name = %s",
        ("baked-image-test",),
    ) == [(False,)]


def _changed(text: str, words: dict[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def _steady(text: str) -> str:
    """Return what is the same in each run: no figure, no digest, however wide they are."""
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "DIGEST", text)
    return re.sub(r"[ -]+", " ", re.sub(r"\d+(\.\d+)?", "N", text))
