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


def test_user_data_can_delay_its_command(folder: Path, cloud: LocalMachines) -> None:
    cloud.create(a_worker("touch", "{home}/begun"), write_user_data(URL, TOKEN, delay=3600))

    assert states(cloud) == [MachineState.RUNNING]
    assert not (folder / NAME / "home/begun").exists()


def test_machine_that_never_boots_does_not_run_its_command(folder: Path) -> None:
    cloud = a_local_cloud(folder, never_boots=["small"])

    machine_id = cloud.create(a_worker("touch", "{home}/begun"))
    starting = states(cloud)
    until(lambda: b"infinity" in Path(f"/proc/{process_of(folder).pid}/cmdline").read_bytes())
    cloud.delete(machine_id)

    assert starting == [MachineState.STARTING]
    assert listed(cloud) == ()


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


def test_listing_is_unknown_when_a_record_is_damaged(folder: Path, cloud: LocalMachines) -> None:
    machine_id = cloud.create(a_worker())
    (folder / NAME / "machine.json").write_text("{}")

    unknown = cloud.list("debian")
    with pytest.raises(SourceUnreachable, match=f"{machine_id} is unreachable: "):
        cloud.delete(machine_id)

    assert isinstance(unknown, Unknown)
    assert tells(unknown.unknown, f"{NAME}/machine.json", "record")
    assert is_alive(process_of(folder))


def test_machine_runs_its_command_in_its_home_folder(
    folder: Path, cloud: LocalMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCLOUD_TOKEN", TOKEN)

    script = 'echo "$0 $1 $HOME"; pwd; env; echo ready'
    cloud.create(a_worker("sh", "-c", script, "{name}", "{home}/here"))

    home = folder / NAME / "home"
    first, second, *variables = said(folder).splitlines()
    assert (first, second) == (f"{NAME} {home}/here {home}", str(home))
    names = {line.partition("=")[0] for line in variables}
    assert names - {"PWD", "SHLVL", "_"} == {"HOME", "PATH"}  # a shell sets some itself


def test_token_is_only_in_the_file_that_the_worker_reads(
    folder: Path, cloud: LocalMachines
) -> None:
    cloud.create(a_worker("sh", "-c", "echo ready; exec sleep 99"), write_user_data(URL, TOKEN))

    assert said(folder) == ""
    machine, own = folder / NAME, Path(f"/proc/{process_of(folder).pid}")
    given = machine / "home/.config/debusine/worker"
    assert (given / "activation-token").read_text() == TOKEN
    assert (given / "config.ini").read_text() == f"[General]\napi-url = {URL}/api\n"
    files = [path for path in folder.rglob("*") if path.is_file()]
    told = [
        path.name
        for path in (*files, own / "cmdline", own / "environ")
        if TOKEN.encode() in path.read_bytes()
    ]
    assert told == ["activation-token"]
    private = (*machine.iterdir(), given / "activation-token")
    assert [path.name for path in private if path.stat().st_mode & 0o077] == []


def test_concurrent_creations_and_deletions_are_one(folder: Path, cloud: LocalMachines) -> None:
    (folder / "letters").mkdir(parents=True)
    (folder / "letters/dear.txt").write_text("Dear")

    def made(_: int) -> str:
        try:
            return cloud.create(a_worker())
        except CreationRefused as refused:
            assert "uniqueness_error" in str(refused)  # noqa: PT017 - three of four are refused
            return ""

    with ThreadPoolExecutor(4) as threads:
        (machine_id,) = filter(None, threads.map(made, range(4)))
        assert states(cloud) == [MachineState.RUNNING]
        list(threads.map(cloud.delete, [machine_id] * 4))

    assert listed(cloud) == ()
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "letters"]
    assert (folder / "letters/dear.txt").read_text() == "Dear"
    assert cloud.create(a_worker()) != machine_id


@pytest.mark.parametrize(
    ("name", "fault", "says"),
    [
        *(
            (name, None, "invalid_input")
            for name in ("../away", ".hidden", "a/b", "", "-x", "x" * 64, "a\nb")
        ),
        (NAME, "error", rf"^{NAME}: server_error"),
        (NAME, "quota", rf"^{NAME}: resource_limit_exceeded"),
        (NAME, "out-of-stock", rf"^{NAME}: resource_unavailable"),
    ],
)
def test_creation_is_refused_by_name_or_as_configured(
    folder: Path, name: str, fault: str | None, says: str
) -> None:
    with pytest.raises(CreationRefused, match=says):
        a_local_cloud(folder, create=fault).create(a_worker(name=name))

    assert not folder.exists()


def test_impossible_creation_is_refused(
    folder: Path, cloud: LocalMachines, tmp_path: Path
) -> None:
    assert listed(cloud) == ()
    with pytest.raises(CreationRefused) as refusal:
        cloud.create(a_worker(), f"#!/bin/sh\necho {TOKEN}\n")
    assert TOKEN not in str(refusal.value)
    assert not folder.exists()
    (tmp_path / "file").write_text("")

    with pytest.raises(CreationRefused, match="debusine-wrocker"):
        cloud.create(a_worker("debusine-wrocker"))
    with pytest.raises(CreationRefused, match="local_fault"):
        a_local_cloud(tmp_path / "file/machines").create(a_worker())
