"""The page about baking, followed as it stands; and its image at a real server.

`nox -s images-boot` runs this. The worker of the booted image registers at a real Debusine and
does a piece of its work: that takes minutes without the processor of a real machine.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from fleet.images.folder import list_versions, read_manifest
from fleet.state.store import Store
from tests.builders.versioning import a_version
from tests.docs.test_documents import Shell, changed, replayed, wording
from tests.live.chroot import archive
from tests.live.debusine import Server
from tests.live.project import Project
from tests.live.workspace import Workspace
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT, fleet_command

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
    asked = subprocess.run(
        [sys.executable, "-m", "tests.rigs.baking"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        pytest.skip(asked.stdout.strip() or asked.stderr)
    program = ("env", f"FLEET_MIRROR={archive()}", *fleet_command())
    shell = Shell(tmp_path_factory.mktemp("followed"), program)
    text = PAGE.read_text(encoding="utf-8")
    here = {
        "http://deb.debian.org/debian": archive().rstrip("/"),
        re.findall(r'worker_version: "(.+)"', text)[0]: asked.stdout.strip(),
    }
    now = replayed(changed(text, here), shell)
    return Followed(
        text, changed(now, {there: named for named, there in here.items()}), shell.project
    )


def test_page_shows_current_output(followed: Followed, golden: Golden) -> None:
    golden.compare(PAGE, followed.now, wording)


def test_worker_of_image_runs_work_of_a_real_server(
    followed: Followed, project: Project, workspace: Workspace, server: Server
) -> None:
    version = list_versions(followed.images, IMAGE)[0]
    recipe = yaml.safe_load((followed.folder / "fleet.yaml").read_text())["images"][IMAGE]
    recipe.pop("publish")
    project.write(
        name="baked", pools={}, images={IMAGE: recipe}, state={"images": str(followed.images)}
    )
    store = Store(f"sqlite:///{project.folder}/.fleet/store.db", "baked")
    store.save_image_version(a_version(image=IMAGE, version=version, state="built"), was=None)
    number = workspace.post("noop")

    said = project.fleet(
        *("image", "test", IMAGE, version, "--boot", "--queue", "debian", "--limit", "20m"),
        timeout=SECONDS,
    )

    assert f"image {IMAGE} {version}: tested" in said
    assert NOOP in read_manifest(followed.images / IMAGE / version).tests[-1].provides
    assert server.sql("SELECT status, result FROM db_workrequest WHERE id = %s", (number,)) == [
        ("completed", "success")
    ]
    assert server.sql(
        "SELECT t.enabled FROM db_worker w JOIN db_token t ON t.id = w.token_id WHERE w.name = %s",
        ("baked-image-test",),
    ) == [(False,)]
