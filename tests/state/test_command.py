"""A command of a person's own costs bounded time and memory, and is believed by its status."""

import base64
import errno
import os
import signal
import threading
import tracemalloc
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from fleet.state import processes
from fleet.state.processes import CommandFailed, Invocation, run
from tests.builders.sentences import tells
from tests.rigs.local_machines import until

SECRET = "s3cr/et+of=the test"
PATH = {"PATH": os.environ["PATH"]}


def call(
    script: str,
    folder: Path,
    *,
    timeout: float = 20,
    secrets: tuple[str, ...] = (),
    stdin: str = "",
) -> str:
    return run(Invocation("new", ("sh", "-c", script), folder, PATH, timeout, secrets, stdin))


def failure(script: str, folder: Path, *, timeout: float = 20, secret: str = "") -> CommandFailed:
    with pytest.raises(CommandFailed) as failed:
        call(script, folder, timeout=timeout, secrets=(secret,) if secret else ())
    return failed.value


def is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(
    ("script", "stdin", "said"),
    [
        ("basename $(pwd)", "", "here\n"),
        ("wc -c | tr -d ' '", "x" * 300_000, "300000\n"),
        ("exec <&-; echo made", "x" * 300_000, "made\n"),
    ],
    ids=["folder", "large input", "ignored input"],
)
def test_command_returns_its_output(tmp_path: Path, script: str, stdin: str, said: str) -> None:
    (tmp_path / "here").mkdir()

    assert call(script, tmp_path / "here", stdin=stdin) == said


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo made; echo no room >&2; exit 3", ("new", "3", "no room")),
        ("kill -9 $$", ("new", "signal 9")),
        ("yes", ("new", "65536 bytes", "stopped")),
        ("yes | head -c 5000000 >&2; echo no room >&2; exit 1", ("new", "1", "y | y | no room")),
        ("yes | tr -d '\\n' | head -c 50000 >&2; exit 1", ("new", "1")),
        (r"printf '\377'", ("UTF-8",)),
    ],
    ids=["status", "signal", "endless", "last lines", "endless line", "binary"],
)
def test_failure_has_few_words_and_bounded_memory(
    tmp_path: Path, script: str, said: tuple[str, ...]
) -> None:
    tracemalloc.start()
    try:
        failed = failure(script, tmp_path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert tells(str(failed), *said)
    assert (failed.started, len(str(failed)) < 200) == (True, True)
    assert most < 2_000_000


def test_command_gets_only_the_given_environment_or_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCLOUD_TOKEN", SECRET)

    names = {line.partition("=")[0] for line in call("env", tmp_path).splitlines()}
    missing = rf"new: \./nothing .*{os.strerror(errno.ENOENT)}"
    with pytest.raises(CommandFailed, match=missing) as failed:
        run(Invocation("new", ["./nothing"], tmp_path, PATH, 20))

    assert names - {"PWD", "SHLVL", "_"} == {"PATH"}  # a shell sets some itself
    assert not failed.value.started


def test_hanging_command_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "trap '' TERM; setsid sleep 99 & echo $! > far; sleep 99 & echo $! > near; wait"

    failed = failure(script, tmp_path, timeout=2)

    assert tells(str(failed), "new", "2s", "stopped")
    assert not failed.in_time
    for name in ("far", "near"):
        assert is_gone(int((tmp_path / name).read_text()))


def test_terminated_command_may_clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "COMMAND_GRACE", 60.0)
    script = "trap 'echo cleaned > here; exit 0' TERM; while :; do sleep 99 & wait; done"

    failure(script, tmp_path, timeout=2)

    assert (tmp_path / "here").read_text() == "cleaned\n"


def test_background_process_keeps_running_and_blocks_no_command(tmp_path: Path) -> None:
    pid = int(call("sleep 99 & echo $!", tmp_path))

    assert not is_gone(pid)
    os.kill(pid, signal.SIGKILL)


def test_background_process_that_writes_on_blocks_no_command(tmp_path: Path) -> None:
    pid = int(call("yes >&2 & echo $!", tmp_path))

    until(lambda: is_gone(pid))  # nobody reads what it writes


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"x{SECRET}yz".encode()).decode(),
        base64.b64encode(f"xy{SECRET}z".encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_secret_is_masked_in_every_encoding(tmp_path: Path, form: str) -> None:
    (tmp_path / "complaint").write_text(f"cannot log in with {form}, sorry\n")

    said = str(failure("cat complaint >&2; exit 1", tmp_path, secret=SECRET))

    assert tells(said, "new", "1", "cannot log in with")
    assert said.endswith(", sorry")
    assert "***" in said
    assert form[4:-4] not in said


def test_interrupt_stops_the_command(tmp_path: Path) -> None:
    def interrupt() -> None:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        call("echo $$ > pid; exec sleep 99", tmp_path)
    thread.join()

    assert is_gone(int((tmp_path / "pid").read_text()))


def test_commands_are_stopped_at_exit_and_no_other_starts(tmp_path: Path) -> None:
    cut = threading.Event()
    os.mkfifo(tmp_path / "meeting")
    slow = "echo $$ > meeting; exec sleep infinity"
    asked = Invocation("new", ("sh", "-c", slow), tmp_path, PATH, 20, is_cut=cut.is_set)

    def cut_it() -> None:
        pids.append(int((tmp_path / "meeting").read_text()))
        cut.set()

    pids: list[int] = []
    other = threading.Thread(target=cut_it)
    other.start()
    with pytest.raises(CommandFailed, match=r"^new ") as running:
        run(asked)
    other.join()
    with pytest.raises(CommandFailed, match=r"^new ") as new:
        run(asked)

    assert is_gone(*pids)
    assert (running.value.started, running.value.in_time) == (True, False)
    assert not new.value.started


def test_interrupt_during_start_leaves_no_process(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    def call_for(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        call("exec sleep 99", tmp_path)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for step in range(1, 41):
            with pytest.raises(KeyboardInterrupt):
                call_for(step / 10_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert not [pid for pid in Path("/proc").glob("[0-9]*") if runs_in(pid, tmp_path)]


def runs_in(process: Path, folder: Path) -> bool:
    with suppress(OSError):
        return (process / "cwd").readlink() == folder
    return False
