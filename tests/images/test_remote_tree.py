"""The files of a machine are read over ssh as they are, through a real sshd."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.images.ssh import RemoteTree, Ssh, new_key, open_tree
from tests.rigs.sshd import Sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd") / "server") as server:
        yield server


@pytest.fixture(scope="module")
def ssh(sshd: Sshd) -> Iterator[Ssh]:
    with new_key("test") as pair:
        sshd.let_in([pair.public])
        yield Ssh("127.0.0.1", pair, sshd.door)


@pytest.fixture(scope="module")
def tree(ssh: Ssh) -> Iterator[RemoteTree]:
    with open_tree(ssh) as opened:
        yield opened


def test_files_folders_and_links_are_told_as_they_are(tree: RemoteTree, tmp_path: Path) -> None:
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


def test_what_is_not_there_is_told_as_nothing(tree: RemoteTree, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")

    assert tree.node(f"{tmp_path}/nothing") is tree.node(f"{file}/below") is None
    assert tree.names(f"{tmp_path}/nothing") == tree.names(str(file)) == ()
    assert tree.text(f"{tmp_path}/nothing") == tree.text(str(tmp_path)) == ""


def test_it_is_read_on_when_nobody_may_enter_any_more(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("still here", encoding="utf-8")
    with new_key("test") as pair:
        with sshd.keys.open("a", encoding="utf-8") as keys:
            keys.write(f"{pair.public}\n")
        ssh = Ssh("127.0.0.1", pair, sshd.door)
        before = sshd.keys.read_text(encoding="utf-8")

        with open_tree(ssh) as opened:
            sshd.let_in(line for line in before.splitlines() if line != pair.public)

            with pytest.raises(SourceUnreachable, match="Permission denied"):
                ssh.run("true")
            assert opened.text(f"{tmp_path}/file") == "still here"


def test_a_program_that_is_missing_is_told_as_such(ssh: Ssh) -> None:
    with (
        pytest.raises(PublicationRefused, match=r"127\.0\.0\.1 .*\(127\): .*no-such-program"),
        ssh.conversation("exec no-such-program") as ask,
    ):
        ask("anything")


def test_one_that_ends_before_it_is_told_to_is_unreachable(ssh: Ssh) -> None:
    with (
        pytest.raises(SourceUnreachable, match=r"127\.0\.0\.1.* early"),
        ssh.conversation("true") as ask,
    ):
        ask("anything")


def test_an_answer_that_is_none_is_told_as_it_came() -> None:
    with pytest.raises(SourceUnreachable, match="answers 'Welcome!"):
        RemoteTree(lambda _: "Welcome!\n").names("/etc")


@pytest.mark.slow
def test_a_machine_that_answers_before_it_has_read_all_is_heard(ssh: Ssh) -> None:
    piece = b"x" * 1023 + b"\n"

    said = ssh.run("cat", (piece for _ in range(4096)))

    assert len(said) == 4096 * 1024


def test_what_cannot_be_read_here_ends_the_script_there(ssh: Ssh) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        ssh.run("cat; sleep 600", broken())


def test_a_script_that_says_nothing_is_given_up(ssh: Ssh) -> None:
    hasty = Ssh(ssh.host, ssh.pair, ssh.door, silence=1)

    with pytest.raises(SourceUnreachable, match="1 s"):
        hasty.run("sleep 600")


def test_who_stops_listening_ends_the_script(ssh: Ssh) -> None:
    lines = ssh.lines("yes", (b"x" * 65536 for _ in range(64)))

    assert next(lines) == "y\n"
    lines.close()  # type: ignore[attr-defined] # it is a generator
