"""When the owner of a stack's lock does nothing any more."""

import os
import socket
from pathlib import Path

import pytest

from fleet.engines.pulumi_state import has_inner_id, is_alive, is_over

NOTHING_PENDING = "Name:\tpulumi\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n"


def stat(state: str, flags: int = 0) -> list[str]:
    """Return the words of /proc/PID/stat from the state on, as far as they are looked at."""
    return [state, "1", "7", "7", "0", "-1", str(flags)]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        pytest.param(stat("Z"), NOTHING_PENDING, id="a zombie"),
        pytest.param(stat("R", 0x4), NOTHING_PENDING, id="it is exiting"),
        pytest.param(
            stat("D"), NOTHING_PENDING.replace("000\nShd", "100\nShd"), id="its thread was killed"
        ),
        pytest.param(stat("S"), "ShdPnd:\t0000000000000100\n", id="it was killed"),
    ],
)
def test_zombie_process_counts_as_ended(words: list[str], status: str) -> None:
    assert is_over(words, status)


def test_process_with_pending_signal_is_running() -> None:
    assert not is_over(stat("S"), "ShdPnd:\t0000000000000002\n")


def test_current_process_is_running() -> None:
    words = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()

    assert not is_over(words, Path("/proc/self/status").read_text(encoding="utf-8"))


def test_container_process_is_found_by_its_inner_id() -> None:
    status = "Name:\tpulumi\nNSpid:\t4393\t12\t7\nNSpgid:\t4393\t12\t7\n"

    assert has_inner_id(7, status)
    assert not has_inner_id(4393, status)


def test_process_of_this_namespace_has_no_second_id() -> None:
    status = "Name:\tplugin\nNSpid:\t4393\nNSpgid:\t4390\nNSsid:\t4390\n"

    assert not has_inner_id(4393, status)
    assert not has_inner_id(4390, status)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Return a /proc in which a shell that began a second ago has the number 312."""
    (tmp_path / "312").mkdir()
    began = ["S", "1", *["0"] * 17, "900000000"]
    (tmp_path / "312/stat").write_text(f"312 (bash) {' '.join(began)}\n", encoding="utf-8")
    (tmp_path / "312/status").write_text("Name:\tbash\nNSpid:\t312\n", encoding="utf-8")
    (tmp_path / "uptime").write_text("9000001.00 1.00\n", encoding="utf-8")
    return tmp_path


LOCK = {"hostname": socket.gethostname(), "pid": 312, "timestamp": "2020-01-01T00:00:00Z"}


def test_owner_is_dead_when_its_process_id_was_reused(proc: Path) -> None:
    assert is_alive(LOCK, proc) is False


def test_younger_container_process_leaves_owner_unknown(
    proc: Path,
) -> None:
    (proc / "4393").mkdir()
    status = "Name:\tpulumi\nNSpid:\t4393\t312\n"
    (proc / "4393/status").write_text(status, encoding="utf-8")

    assert is_alive(LOCK, proc) is None


def test_owner_is_unknown_when_program_name_is_not_text(proc: Path) -> None:
    (proc / "312/stat").write_bytes(b"312 (\xff) S 1\n")

    assert is_alive(LOCK, proc) is None


def test_hidden_running_process_is_not_dead(proc: Path) -> None:
    assert is_alive(LOCK | {"pid": os.getpid()}, proc) is None
