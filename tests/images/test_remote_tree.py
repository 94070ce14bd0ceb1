"""A machine is reached over ssh, through a real sshd."""

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from fleet.clouds.hcloud.ssh import KeyPair, Ssh, new_key
from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.images.checks import check_machine
from tests.builders.image_trees import a_recipe
from tests.rigs.sshd import Sshd


def a_key(name: str) -> AbstractContextManager[KeyPair]:
    return new_key(f"{name}-{os.getpid()}", "test")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd") / "server") as server:
        yield server


@pytest.fixture(scope="module")
def ssh(sshd: Sshd) -> Iterator[Ssh]:
    with a_key("machine") as pair:
        sshd.let_in([pair.public])
        yield sshd.connect("127.0.0.1", pair)


def test_machine_is_read_when_its_logins_are_closed(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("still here", encoding="utf-8")
    with a_key("own") as pair, a_key("other") as other:
        before = sshd.keys.read_text(encoding="utf-8")
        with sshd.keys.open("a", encoding="utf-8") as keys:
            keys.write(f"{pair.public}\n{other.public}\n")
        ssh = sshd.connect("127.0.0.1", pair)
        ssh.wait(lambda _: None, 1)

        sshd.let_in(before.splitlines())

        with pytest.raises(SourceUnreachable, match="Permission denied"):
            sshd.connect("127.0.0.1", other).run("true")
        assert ssh.run(f"cat {tmp_path}/file") == "still here"


def running_in(folder: Path) -> list[str]:
    """Return the processes whose working directory is a folder, also when it is gone."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str((process / "cwd").readlink()).startswith(str(folder)):
                found.append(process.name)
    return found


def test_connection_ends_when_its_key_is_deleted(sshd: Sshd) -> None:
    before = sshd.keys.read_text(encoding="utf-8")
    with a_key("own") as pair:
        sshd.let_in([*before.splitlines(), pair.public])
        sshd.connect("127.0.0.1", pair).run("true")
        opened = [os.pidfd_open(int(number)) for number in running_in(pair.folder)]

    # ssh answers before the process of the connection ends.
    ended = [fd for fd in opened if select.select([fd], [], [], 30)[0]]
    assert opened
    assert ended == opened
    for fd in opened:
        os.close(fd)


def test_command_connects_again_when_the_shared_connection_is_lost(ssh: Ssh) -> None:
    ssh.run("true")
    end = ["ssh", "-O", "exit", "-o", "ControlPath=connection", "machine"]
    subprocess.run(end, cwd=ssh.pair.folder, check=True)

    assert ssh.run("echo here") == "here\n"


def test_invalid_remote_reply_is_quoted(sshd: Sshd, ssh: Ssh) -> None:
    class Chatty(Ssh):
        def run(self, script: str, sent: bytes = b"", log: Path | None = None) -> str:
            return f"Welcome!\n{super().run(script, sent, log)}"

    with pytest.raises(SourceUnreachable, match="answers 'Welcome!"):
        check_machine(Chatty(ssh.host, ssh.pair, **sshd.connect.keywords), a_recipe())


def test_machine_is_checked_by_its_own_python(ssh: Ssh) -> None:
    problems = check_machine(ssh, a_recipe())

    assert all(each.startswith("/") for each in problems)
    assert any("debusine-worker" in each for each in problems)


@pytest.mark.slow
def test_remote_reply_is_read_before_input_ends(ssh: Ssh) -> None:
    sent = (b"x" * 1023 + b"\n") * 4096

    assert ssh.run("cat", sent).encode() == sent


def test_output_is_logged_when_a_script_fails(ssh: Ssh, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n", encoding="utf-8")

    with pytest.raises(PublicationRefused, match=r"\(3\): why"):
        ssh.run("echo said; echo why >&2; exit 3", log=log)
    with pytest.raises(PublicationRefused, match=r"127\.0\.0\.1 .*\(127\): .*no-such-program"):
        ssh.run("exec no-such-program")

    assert ssh.run("echo done", b"x" * (1 << 22)) == "done\n"  # it reads no input
    assert log.read_text(encoding="utf-8") == "before\nsaid\n"


def test_hanging_remote_script_is_killed(sshd: Sshd, ssh: Ssh) -> None:
    hasty = sshd.connect(ssh.host, ssh.pair, limit=1)

    with pytest.raises(SourceUnreachable, match="1 s"):
        hasty.run("sleep 600")
