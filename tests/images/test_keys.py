"""The key of a machine is gone when nobody uses it any more, also where its user was killed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.clouds.hcloud.ssh import new_key
from fleet.errors import PublicationRefused

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
KILLED = """
import os, signal
from fleet.clouds.hcloud.ssh import new_key
with new_key("word", "killed"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have temporary files in a folder of the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_ssh_key_is_deleted_afterwards(place: Path) -> None:
    with new_key("word", "test") as pair:
        assert pair.public.endswith(" test")
        assert pair.private.stat().st_mode & 0o077 == 0
        assert list(place.iterdir()) == [pair.folder]

    assert list(place.iterdir()) == []


def test_uncreated_ssh_key_leaves_no_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))

    with pytest.raises(PublicationRefused, match="install openssh-client"), new_key("word", ""):
        raise AssertionError

    assert list(place.iterdir()) == []


def test_ssh_key_of_killed_run_is_deleted_by_next_run(place: Path) -> None:
    died = subprocess.run([sys.executable, "-c", KILLED], check=False)
    (left,) = place.iterdir()
    assert (died.returncode, (left / "key").exists()) == (-signal.SIGKILL, True)

    with new_key("other", "test") as other, new_key("word", "test") as own:
        assert sorted(place.iterdir()) == sorted([other.folder, own.folder])
    assert list(place.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a folder be somebody else's")
def test_key_is_refused_when_its_folder_cannot_be_removed(place: Path) -> None:
    (place / "fleet-ssh-word").symlink_to(place.parent)

    with pytest.raises(FileExistsError), new_key("word", "test"):
        raise AssertionError
