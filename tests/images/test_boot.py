"""An image is booted until its worker has come so far, and nothing of the machine is left."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.images.boot import Trial, boot_image, choose_accelerator
from fleet.images.fake_debusine import Stage, WorkerServer
from fleet.model.images import Test as Result
from tests.builders.sentences import tells
from tests.fakes.qemu import install_qemu, pid_of
from tests.rigs.image_disks import needs_firmware, needs_programs
from tests.rigs.process import ROOT, clean_environment
from tests.rigs.repeats import slow_but
from tests.rigs.worker_client import TAGS

pytestmark = [needs_programs, needs_firmware]
TOKEN = "a" * 64


class Bench:
    """A folder with a disk and a QEMU that does as told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.console = folder / "console.log"
        self.told: list[str] = []
        self._monkeypatch = monkeypatch
        (folder / "disk.qcow2").write_bytes(b"")

    def has_qemu(self, *told: str) -> None:
        """Put the QEMU before any other."""
        for name, value in install_qemu(self.folder / "bin", *told).items():
            self._monkeypatch.setenv(name, value)

    def boot(
        self,
        *,
        limit: float = 30,
        server: WorkerServer | None = None,
        watch: Callable[[str], None] | None = None,
    ) -> Result:
        """Boot a machine, for a server that waits for TOKEN if it is not another."""
        trial = Trial(
            disk=self.folder / "disk.qcow2",
            console=self.console,
            server=server or WorkerServer(TOKEN),
            goal=Stage.ASKED,
            accelerator="tcg",
            limit=limit,
        )
        return boot_image(trial, self.told.append, watch or self.told.append)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path, monkeypatch)
    yield made
    if (tmp_path / "bin/orders.pid").exists():
        assert not is_running(pid_of(tmp_path / "bin"))


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that ended and was not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_boot_test_passes_when_worker_requests_work(bench: Bench) -> None:
    bench.has_qemu("register")

    server = WorkerServer(TOKEN)
    booted = bench.boot(server=server)

    assert booted.problems == ()
    assert booted.provides == tuple(sorted(TAGS))
    assert list(server.reached()) == [
        Stage.REGISTERED,
        Stage.CONNECTED,
        Stage.REPORTED,
        Stage.ASKED,
    ]
    stages = [said for said in bench.told if " after " in said]
    names = ("registered", "connected", "tags", "work")
    assert [tells(*each) for each in zip(stages, names, strict=True)] == [True] * 4
    assert bench.console.read_text() == "Linux boots and shows nothing\n"
    files = [path for path in bench.folder.rglob("*") if path.is_file()]
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


def test_boot_test_fails_at_its_limit_when_worker_is_absent(bench: Bench) -> None:
    bench.has_qemu()

    booted = bench.boot(limit=0.5)

    (problem,) = booted.problems
    assert tells(problem, bench.console, "0 s", "registered")
    told = r"booting under TCG, \d+ s: not yet: its worker registered"
    assert re.match(told, bench.told[0])


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ("off", ("console.log", "off")),
        ("fail", ("disk.qcow2", "QEMU", "1", "could not open the disk")),
    ],
)
def test_boot_test_fails_when_the_machine_ends(
    bench: Bench, order: str, told: tuple[str, ...]
) -> None:
    bench.has_qemu(order)

    (problem,) = bench.boot(limit=60).problems

    assert tells(problem, bench.folder / told[0], *told[1:])


def test_boot_test_reports_refused_registration(bench: Bench) -> None:
    bench.has_qemu("register", "off")

    with WorkerServer(TOKEN) as real:
        server = WorkerServer("b" * 64, f"http://127.0.0.1:{real.port}")
        problems = bench.boot(limit=60, server=server).problems

    assert tells(problems[-1], "POST", "/api/1.0/worker/register/", "400")


def test_token_on_console_is_a_problem_and_is_not_stored(bench: Bench) -> None:
    bench.has_qemu("register", "print")

    (problem,) = bench.boot().problems

    assert tells(problem, bench.console, "token")
    assert bench.console.read_text() == "Linux boots and shows ***\n"


def test_token_on_console_is_not_stored_after_interrupt(bench: Bench) -> None:
    bench.has_qemu("print")

    def interrupt(_: str) -> None:
        if bench.console.exists() and TOKEN in bench.console.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.boot(watch=interrupt)

    assert bench.console.read_text() == "Linux boots and shows ***\n"


@pytest.mark.parametrize(("told", "found"), [(["kvm"], "kvm"), ([], "tcg")])
def test_kvm_is_used_only_when_a_machine_runs_under_it(
    bench: Bench, told: list[str], found: str
) -> None:
    bench.has_qemu(*told)

    assert choose_accelerator() == found


_BOOT = """
import sys
from pathlib import Path
from fleet.images.boot import Trial, boot_image
from fleet.images.fake_debusine import Stage, WorkerServer
disk = Path(sys.argv[1])
server = WorkerServer("a" * 64)
trial = Trial(disk, disk.parent / "console.log", server, Stage.ASKED, "tcg", 60)
boot_image(trial, print, print)
"""


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("how", slow_but(SIGNALS[:1], SIGNALS))
def test_virtual_machine_ends_with_its_boot_test(tmp_path: Path, how: signal.Signals) -> None:
    folder = tmp_path / "bin"
    environment = clean_environment(tmp_path, install_qemu(folder))
    (tmp_path / "disk.qcow2").write_bytes(b"")

    with subprocess.Popen(
        [sys.executable, "-c", _BOOT, str(tmp_path / "disk.qcow2")],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        wait_until((folder / "orders.pid").exists)
        was_running = is_running(pid_of(folder))
        os.kill(process.pid, how)
        process.wait(30)

    assert was_running
    wait_until(lambda: not is_running(pid_of(folder)))


def wait_until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something is so; fails where it does not come to it."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)
