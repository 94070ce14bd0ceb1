"""Each call of a person's own command is logged: bounded, private, without what is secret."""

import os
import stat
import time
from pathlib import Path

import pytest

from fleet.clouds.hooks.interface import MOST_BYTES, MOST_MACHINES, HookLog, tidy
from fleet.errors import CreationRefused
from fleet.model.facts import Listing, Unknown
from tests.builders import NOW
from tests.ports.engines import a_sim_worker
from tests.rigs.hook_machines import a_hook_cloud, hooks_among, write_hooks

NAME = "debian-builders-0001"
ONE = a_sim_worker(NAME)
TOKEN = "5ec4e7" * 10


def test_hook_log_contains_output_of_each_command(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path, new="echo asks the cloud >&2; echo i-1", delete="echo goes >&2")

    cloud.create(ONE)

    log = tmp_path / f"hooks/{NAME}/new.log"
    begun, *said, ended = log.read_text().splitlines()
    assert begun.endswith(" new begins")
    assert sorted(said) == ["asks the cloud", "i-1"]
    assert ended.endswith(" new succeeded")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_hook_log_is_readable_while_its_command_runs(tmp_path: Path) -> None:
    new = f"echo half done >&2; until grep -q half hooks/{NAME}/new.log; do :; done; echo i-1"
    cloud = a_hook_cloud(tmp_path, new=new)

    assert cloud.create(ONE) == "i-1"


def test_hook_log_hides_secret_written_in_parts(tmp_path: Path) -> None:
    write_hooks(tmp_path, new="printf 5ec4e7 >&2; echo $RACK_KEY | cut -c7- >&2; exit 1")
    cloud = hooks_among({"RACK_KEY": TOKEN}, tmp_path, NOW, {"environment": ["RACK_KEY"]})

    with pytest.raises(CreationRefused):
        cloud.create(ONE)

    text = (tmp_path / f"hooks/{NAME}/new.log").read_text()
    assert "***" in text
    assert "5ec4e7" not in text


def test_failed_list_command_is_logged_and_error_names_log(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path, list="echo no route >&2; exit 3")

    listing = cloud.list("debian")

    assert isinstance(listing, Unknown)
    assert listing.unknown.endswith("; log: hooks/desk/list.log")
    assert "no route" in (tmp_path / "hooks/desk/list.log").read_text()
    assert isinstance(a_hook_cloud(tmp_path / "b").list("debian"), Listing)
    assert not (tmp_path / "b/hooks").exists()


def test_hook_runs_when_its_log_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / "hooks").write_text("no folder")

    assert a_hook_cloud(tmp_path, new="echo i-1").create(ONE) == "i-1"


def test_hook_log_has_bounded_size(tmp_path: Path) -> None:
    path = tmp_path / "m1/new.log"
    for number in range(4):
        log = HookLog(path, "new", ())
        for _ in range(100):
            log.hear("stderr", b"x" * 64 * 1024 * number)
            log.hear("stderr", b"\n" + b"line\n" * 10_000)
        log.end("succeeded", failed=False)

    sizes = [each.stat().st_size for each in sorted(path.parent.iterdir())]
    assert len(sizes) == 2
    assert all(MOST_BYTES < size < 1_200_000 for size in sizes)


def test_logs_of_old_machines_are_deleted(tmp_path: Path) -> None:
    now = time.time()
    for number in range(MOST_MACHINES + 20):
        log = tmp_path / f"m{number}" / "new.log"
        log.parent.mkdir()
        log.touch()
        age = 15 * 86400 if number < 10 else 600 - number
        os.utime(log, (now - age, now - age))

    tidy(tmp_path)

    left = {each.name for each in tmp_path.iterdir()}
    assert left == {f"m{number}" for number in range(20, MOST_MACHINES + 20)}
