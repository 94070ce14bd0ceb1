"""The programs of a build: found where root has them, their failures told, their namespaces."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleet.errors import FileUnreadable, FleetError
from fleet.images.disk import explained
from fleet.images.programs import (
    ENVIRONMENT,
    ProgramFailed,
    as_root,
    explain_no_namespaces,
    held,
    isolated,
    last_of,
    missing,
    need,
    run,
)
from tests.builders.sentences import tells


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "build.log"


@contextmanager
def no_room() -> Iterator[None]:
    """Let no file grow, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_full_disk_leaves_a_lock_its_word(tmp_path: Path) -> None:
    """By this word, the next build finds the machines that a killed one left at Hetzner."""
    lock = tmp_path / ".lock"
    with held(lock) as word:
        pass

    with pytest.raises(FileUnreadable, match=str(lock)), no_room(), held(lock):
        pass

    with held(lock) as again:
        assert again == word


def test_program_environment_has_only_proxies_of_the_caller(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FLEET_TEST_SECRET", "PYTHONPATH", "LANG", "HTTPS_PROXY", "no_proxy"):
        monkeypatch.setenv(name, f"/{name}")

    told = dict(line.split("=", 1) for line in run("env", log=log).splitlines())

    proxies = {"HTTPS_PROXY": "/HTTPS_PROXY", "no_proxy": "/no_proxy"}
    assert told == {**ENVIRONMENT, **proxies, "PATH": told["PATH"]}


def test_program_gets_input_and_its_output_and_failure_are_logged(log: Path) -> None:
    told = run("sh", "-c", "cat; echo a word >&2", log=log, stdin=b"in")
    with pytest.raises(ProgramFailed) as caught:
        run("sh", "-c", "echo 'E: no such suite'; echo bye; exit 7", log=log)

    assert told == "in"
    logged = log.read_text(encoding="utf-8")
    assert tells(logged, ">&2")
    assert "\nbye\n" in logged
    assert tells(str(caught.value), "ended", "7")
    assert "bye" in caught.value.output


def test_program_failure_quotes_last_lines_without_error_line() -> None:
    lines = last_of("\n".join(str(number) for number in range(40))).split()

    assert (lines[0], lines[-1]) == ("28", "39")
    assert last_of(" \n") == "  no output"


def test_missing_programs_are_named_and_those_of_root_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    told = "this computer lacks setpriv, unshare; on Debian: apt install util-linux"
    assert missing(["setpriv", "unshare"]) == told
    assert missing(["nosuch-tool"]).endswith(
        "lacks nosuch-tool; on Debian: apt install nosuch-tool"
    )
    with pytest.raises(FleetError, match="lacks mcopy"):
        need("mcopy")
    assert Path(need("mke2fs")).is_file()
    assert Path(as_root("mke2fs")[-1]).is_file()


def test_full_disk_explanation_names_required_space() -> None:
    images = Path("/srv/images")

    assert explained("no suite", "", images) == "no suite"
    full = explained("tar failed", "tar: No space left on device", images)
    assert "4 GiB under /srv/images" in full


def test_mounts_of_program_are_private(tmp_path: Path) -> None:
    if reason := explain_no_namespaces():
        pytest.skip(reason)
    script = f"mount -t tmpfs tmpfs {tmp_path} && touch {tmp_path}/there && echo $$ $(id -u)"

    done = subprocess.run(isolated("sh", "-c", script), capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["1", "0"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody without ids")
def test_user_without_subordinate_ids_gets_usermod_command() -> None:
    if lacking := missing(("newuidmap",)):
        pytest.skip(lacking)
    lines = "import os", "from fleet.images import programs", "os.setuid(64999)"
    script = "; ".join((*lines, "print(programs.explain_no_namespaces())"))

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert tells(done.stdout, "64999", "root", "--add-subuids", "--add-subgids")


def test_lock_can_be_taken_by_the_group_when_the_umask_permits_it(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        with held(tmp_path / "lock"):
            pass
    finally:
        os.umask(before)

    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o664
