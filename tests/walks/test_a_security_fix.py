"""A security fix: the archive has it, so the image is due, baked, promoted, on all machines."""

import lzma
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.loopback import Answer, Loopback, Received
from tests.walks.conftest import Play
from tests.walks.test_an_image import BAKE, settle
from tests.walks.walking import Walk

# `release SUITE PACKAGE VERSION` puts a package into the archive, in place of an older version.
RELEASE = f"""#!{sys.executable} -IS
import pathlib, sys
suite, name, version = sys.argv[1:]
(pathlib.Path(__file__).parents[1] / "archive" / suite / name).write_text(version)
"""


def served(archive: Path, request: Received) -> Answer:
    """Return the package list of a suite, as it is now."""
    suite = archive / request.path.split("/")[3]
    if not suite.is_dir() or not request.path.endswith("/main/binary-amd64/Packages.xz"):
        return Answer(404, b"")
    packages = (f"Package: {each.name}\nVersion: {each.read_text()}\n" for each in suite.iterdir())
    return Answer(200, lzma.compress("\n".join(packages).encode()))


@pytest.fixture
def archive(walk: Walk) -> Iterator[Path]:
    """Serve an archive of two suites, whose address pages write as deb.example.org."""
    folder = walk.folder / "archive"
    for suite in ("trixie", "trixie-security"):
        (folder / suite).mkdir(parents=True)
    with Loopback(lambda request: served(folder, request)) as server:
        walk.words["http://deb.example.org"] = server.url
        yield folder


@pytest.mark.slow
def test_security_fix_reaches_every_machine(walk: Walk, play: Play, archive: Path) -> None:
    walk.add("bake", BAKE)
    walk.add("release", RELEASE)

    play("a-security-fix", settle)

    (image,) = walk.json("fleet image list --json")["images"]
    newest, older = image["versions"]
    assert (newest["state"], older["state"]) == ("current", "previous")
    workers = walk.json("fleet status --json")["workers"]
    assert [newest["version"] in each["image"] for each in workers] == [True, True]
    assert (archive / "trixie-security/libssl3t64").read_text() == "3.5.4-1~deb13u2"
