"""The key of a machine is gone when nobody uses it any more, also where its user was killed."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fleet.errors import PublicationRefused
from fleet.images.ssh import new_key

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
KILLED = """
import os, signal
from fleet.images.ssh import new_key
with new_key("killed"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files in a folder of the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_a_key_is_gone_afterwards(place: Path) -> None:
    with new_key("test") as pair:
        assert pair.public.endswith(" test")
        assert pair.private.stat().st_mode & 0o077 == 0
        assert list(place.iterdir()) == [pair.folder]

    assert list(place.iterdir()) == []


def test_a_key_that_was_never_made_leaves_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(place))

    with pytest.raises(PublicationRefused, match="install openssh-client"), new_key("test"):
        raise AssertionError

    assert list(place.iterdir()) == []


def test_the_key_of_a_killed_run_goes_with_the_next_and_one_in_use_stays(place: Path) -> None:
    died = subprocess.run([sys.executable, "-c", KILLED], check=False)
    (left,) = place.iterdir()
    assert (died.returncode, (left / "key").exists()) == (-signal.SIGKILL, True)

    with new_key("first") as first, new_key("second") as second:
        assert sorted(place.iterdir()) == sorted([first.folder, second.folder])


def test_a_folder_that_another_run_removes_at_once_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = tempfile.mkdtemp, list[Path]()

    def make_one(*, prefix: str) -> str:
        made.append(Path(make(prefix=prefix)))
        if len(made) == 1:
            made[0].rmdir()
        return str(made[-1])

    monkeypatch.setattr("tempfile.mkdtemp", make_one)

    with new_key("test") as pair:
        assert list(place.iterdir()) == [pair.folder]
    assert len(made) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a folder be somebody else's")
def test_what_is_somebody_elses_stays(place: Path) -> None:
    theirs = place / "fleet-ssh-theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)

    with new_key("test"):
        assert theirs.exists()
