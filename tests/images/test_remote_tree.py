"""The files of a machine are read over ssh as they are, through a real sshd."""

import os
import select
import stat
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from fleet.clouds.hcloud.ssh import KeyPair, Ssh, new_key
from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.images.instance import RemoteTree
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
        yield Ssh("127.0.0.1", pair, sshd.door)


@pytest.fixture(scope="module")
def tree(ssh: Ssh) -> RemoteTree:
    return RemoteTree(ssh)


def test_remote_tree_has_files_folders_and_links(tree: RemoteTree, tmp_path: Path) -> None:
    (tmp_path / "with space \n'ä").write_text("a\nb\n", encoding="utf-8")
    (tmp_path / "closed").write_bytes(b"\xff")
    (tmp_path / "closed").chmod(0o600)
    (tmp_path / "link").symlink_to("../nowhere")

    assert tree.names(str(tmp_path)) == ("closed", "link", "with space \n'ä")
    assert tree.text(f"{tmp_path}/with space \n'ä") == "a\nb\n"
    assert tree.text(f"{tmp_path}/closed") == "\N{REPLACEMENT CHARACTER}"
    closed, link = tree.node(f"{tmp_path}/closed"), tree.node(f"{tmp_path}/link")
    assert closed is not None
    assert stat.S_ISREG(closed.mode)
    assert (stat.S_IMODE(closed.mode), closed.uid, closed.size) == (0o600, os.getuid(), 1)
    assert link is not None
    assert (stat.S_ISLNK(link.mode), link.target) == (True, "../nowhere")


def test_remote_tree_is_empty_for_missing_path(tree: RemoteTree, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")

    assert tree.node(f"{tmp_path}/nothing") is tree.node(f"{file}/below") is None
    assert tree.names(f"{tmp_path}/nothing") == tree.names(str(file)) == ()
    assert tree.text(f"{tmp_path}/nothing") == tree.text(str(tmp_path)) == ""


def test_machine_is_read_when_its_logins_are_closed(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("still here", encoding="utf-8")
    with a_key("own") as pair, a_key("other") as other:
        before = sshd.keys.read_text(encoding="utf-8")
        with sshd.keys.open("a", encoding="utf-8") as keys:
            keys.write(f"{pair.public}\n{other.public}\n")
        ssh = Ssh("127.0.0.1", pair, sshd.door)
        ssh.wait(lambda _: None, 1)

        sshd.let_in(before.splitlines())

        with pytest.raises(SourceUnreachable, match="Permission denied"):
            Ssh("127.0.0.1", other, sshd.door).run("true")
        assert RemoteTree(ssh).text(f"{tmp_path}/file") == "still here"


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
        Ssh("127.0.0.1", pair, sshd.door).run("true")
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


def test_missing_remote_program_is_refused_by_name(ssh: Ssh) -> None:
    with pytest.raises(PublicationRefused, match=r"127\.0\.0\.1 .*\(127\): .*no-such-program"):
        ssh.run("exec no-such-program")


def test_invalid_remote_reply_is_quoted(ssh: Ssh) -> None:
    class Chatty(Ssh):
        def run(self, script: str, sent: bytes = b"", log: Path | None = None) -> str:
            return f"Welcome!\n{super().run(script, sent, log)}"

    with pytest.raises(SourceUnreachable, match="answers 'Welcome!"):
        RemoteTree(Chatty(ssh.host, ssh.pair, ssh.door)).node("/etc")


@pytest.mark.slow
def test_remote_reply_is_read_before_input_ends(ssh: Ssh) -> None:
    sent = (b"x" * 1023 + b"\n") * 4096

    assert ssh.run("cat", sent).encode() == sent


def test_output_is_logged_when_a_script_fails(ssh: Ssh, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n", encoding="utf-8")

    with pytest.raises(PublicationRefused, match=r"\(3\): why"):
        ssh.run("echo said; echo why >&2; exit 3", log=log)

    assert log.read_text(encoding="utf-8") == "before\nsaid\n"


def test_hanging_remote_script_is_killed(ssh: Ssh) -> None:
    hasty = Ssh(ssh.host, ssh.pair, ssh.door, limit=1)

    with pytest.raises(SourceUnreachable, match="1 s"):
        hasty.run("sleep 600")


def test_remote_run_succeeds_with_unread_input(ssh: Ssh) -> None:
    assert ssh.run("echo done", b"x" * (1 << 22)) == "done\n"
