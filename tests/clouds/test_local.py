"""A machine on this computer is a process: it outlives its maker, ends, and leaves nothing."""

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from fleet.clouds.local.cloud import LocalMachines
from fleet.errors import CreationRefused, SourceUnreachable
from fleet.model.facts import MachineState, Unknown
from fleet.model.user_data import write_user_data
from fleet.schema.model import Faults
from fleet.state.processes import end, is_alive
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.fakes.engine import FixedClock
from tests.rigs.local_machines import (
    NAME,
    a_local_cloud,
    a_worker,
    cloud,
    folder,
    listed,
    process_of,
    said,
    states,
    until,
)

__all__ = ["cloud", "folder"]

TOKEN = "5ec4e7" * 10 + "abcd"
URL = "https://debusine.example.org"


def test_machine_runs_its_command_in_its_home_folder(folder: Path, cloud: LocalMachines) -> None:
    script = 'echo "$0 $1 $HOME"; pwd; echo ready'
    cloud.create(a_worker("sh", "-c", script, "{name}", "{home}/here"))

    home = folder / NAME / "home"
    assert said(folder) == f"{NAME} {home}/here {home}\n{home}\n"


def test_process_gets_no_variables_of_fleet(
    folder: Path, cloud: LocalMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCLOUD_TOKEN", TOKEN)

    cloud.create(a_worker("sh", "-c", "env; echo ready"))

    names = {line.partition("=")[0] for line in said(folder).splitlines()}
    assert names - {"PWD", "SHLVL", "_"} == {"HOME", "PATH"}  # a shell sets some itself


def test_user_data_is_in_file_that_worker_reads(folder: Path, cloud: LocalMachines) -> None:
    cloud.create(a_worker(), write_user_data(URL, TOKEN))

    home = folder / NAME / "home"
    given = home / ".config/debusine/worker"
    assert (given / "activation-token").read_text() == TOKEN
    assert (given / "config.ini").read_text() == f"[General]\napi-url = {URL}/api\n"
    modes = [path.stat().st_mode & 0o777 for path in (home, given / "activation-token")]
    assert modes == [0o700, 0o600]


def test_token_is_in_only_one_file(folder: Path, cloud: LocalMachines) -> None:
    cloud.create(a_worker("sh", "-c", "echo ready; exec sleep 99"), write_user_data(URL, TOKEN))

    assert said(folder) == ""
    own = Path(f"/proc/{process_of(folder).pid}")
    files = [path for path in folder.rglob("*") if path.is_file()]
    told = {
        path.name
        for path in (*files, own / "cmdline", own / "environ")
        if TOKEN.encode() in path.read_bytes()
    }
    assert told == {"activation-token"}


def test_files_of_machine_are_private(folder: Path, cloud: LocalMachines) -> None:
    cloud.create(a_worker(), write_user_data(URL, TOKEN))

    open_to_others = [p.name for p in (folder / NAME).iterdir() if p.stat().st_mode & 0o077]
    assert open_to_others == []


def test_user_data_can_delay_its_command(folder: Path, cloud: LocalMachines) -> None:
    cloud.create(a_worker("touch", "{home}/begun"), write_user_data(URL, TOKEN, delay=3600))

    assert states(cloud) == [MachineState.RUNNING]
    assert not (folder / NAME / "home/begun").exists()


def test_user_data_of_other_format_is_refused_and_not_shown(
    folder: Path, cloud: LocalMachines
) -> None:
    with pytest.raises(CreationRefused) as refusal:
        cloud.create(a_worker(), f"#!/bin/sh\necho {TOKEN}\n")

    assert TOKEN not in str(refusal.value)
    assert not folder.exists()


def test_delete_of_missing_machine_succeeds(cloud: LocalMachines) -> None:
    machine_id = cloud.create(a_worker())

    cloud.delete(machine_id)
    cloud.delete(machine_id)

    assert listed(cloud) == ()


def test_concurrent_deletions_of_one_machine_succeed(folder: Path, cloud: LocalMachines) -> None:
    machine_id = cloud.create(a_worker())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(cloud.delete, [machine_id] * 4))

    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_reused_name_is_a_new_machine(cloud: LocalMachines) -> None:
    first = cloud.create(a_worker())
    cloud.delete(first)

    second = cloud.create(a_worker())

    assert first != second


def test_creation_is_refused_when_name_is_in_use(folder: Path, cloud: LocalMachines) -> None:
    cloud.create(a_worker())

    with pytest.raises(CreationRefused, match="uniqueness_error"):
        cloud.create(a_worker())

    assert is_alive(process_of(folder))


@pytest.mark.parametrize("name", ["../away", ".hidden", "a/b", "", "-x", "x" * 64, "a\nb"])
def test_creation_is_refused_when_name_is_not_a_folder(cloud: LocalMachines, name: str) -> None:
    with pytest.raises(CreationRefused, match="invalid_input"):
        cloud.create(a_worker(name=name))


def test_only_one_of_concurrent_creations_gets_the_name(cloud: LocalMachines) -> None:
    def made(_: int) -> bool:
        try:
            return bool(cloud.create(a_worker()))
        except CreationRefused:
            return False

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(made, range(4))) == 1

    assert states(cloud) == [MachineState.RUNNING]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("error", "server_error"),
        ("quota", "resource_limit_exceeded"),
        ("out-of-stock", "resource_unavailable"),
    ],
)
def test_creations_fail_when_configured(folder: Path, fault: str, says: str) -> None:
    with pytest.raises(CreationRefused, match=rf"^{NAME}: {says}"):
        a_local_cloud(folder, create=fault).create(a_worker())

    assert not folder.exists()


def test_machine_that_never_boots_does_not_run_its_command(folder: Path) -> None:
    cloud = a_local_cloud(folder, never_boots=["small"])

    machine_id = cloud.create(a_worker("touch", "{home}/begun"))
    starting = states(cloud)
    until(lambda: b"infinity" in Path(f"/proc/{process_of(folder).pid}/cmdline").read_bytes())
    cloud.delete(machine_id)

    assert starting == [MachineState.STARTING]
    assert listed(cloud) == ()


def test_missing_program_is_refused(cloud: LocalMachines) -> None:
    with pytest.raises(CreationRefused, match="debusine-wrocker"):
        cloud.create(a_worker("debusine-wrocker"))


def test_interrupted_creation_is_removed_by_the_next(folder: Path, cloud: LocalMachines) -> None:
    one = cloud.create(a_worker())
    end(process_of(folder), 1)
    (folder / NAME / "process").unlink()
    (folder / ".partial-local-0badcafe").mkdir()

    none = listed(cloud)
    another = cloud.create(a_worker())

    assert none == ()
    assert [machine.id for machine in listed(cloud)] == [another] != [one]
    assert sorted(path.name for path in folder.iterdir()) == [".lock", NAME]


def test_failed_start_leaves_no_files(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/setsid").write_text("#!/bin/sh\necho no more processes >&2\n")
    (tmp_path / "bin/setsid").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    cloud = LocalMachines(folder, FixedClock(NOW), Faults(), {"PATH": path})

    with pytest.raises(CreationRefused, match="no more processes"):
        cloud.create(a_worker())

    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_list_waits_for_a_running_creation(folder: Path, cloud: LocalMachines) -> None:
    cloud.create(a_worker())
    with (folder / ".lock").open("a") as lock, ThreadPoolExecutor() as threads:
        fcntl.flock(lock, fcntl.LOCK_EX)
        looked = threads.submit(states, cloud)
        waited = wait([looked], timeout=0.05).done == set()
        fcntl.flock(lock, fcntl.LOCK_UN)

        assert looked.result() == [MachineState.RUNNING]
    assert waited


def test_other_files_in_folder_are_kept(folder: Path, cloud: LocalMachines) -> None:
    (folder / "letters").mkdir(parents=True)
    (folder / "letters/dear.txt").write_text("Dear")

    cloud.create(a_worker())

    assert (folder / "letters/dear.txt").read_text() == "Dear"
    assert [machine.name for machine in listed(cloud)] == [NAME]


def test_list_creates_no_folder(folder: Path, cloud: LocalMachines) -> None:
    assert listed(cloud) == ()
    assert not folder.exists()


def test_listing_is_unknown_when_a_record_is_damaged(folder: Path, cloud: LocalMachines) -> None:
    machine_id = cloud.create(a_worker())
    (folder / NAME / "machine.json").write_text("{}")

    unknown = cloud.list("debian")
    with pytest.raises(SourceUnreachable, match=f"{machine_id} is unreachable: "):
        cloud.delete(machine_id)

    assert isinstance(unknown, Unknown)
    assert tells(unknown.unknown, f"{NAME}/machine.json", "record")
    assert is_alive(process_of(folder))


def test_creation_is_refused_when_folder_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(CreationRefused, match="local_fault"):
        a_local_cloud(tmp_path / "file/machines").create(a_worker())
