"""Running a play: what is told, what is logged, how a failure reads."""

import os
import re
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fleet.images.role import (
    Host,
    RoleFailed,
    chroot_host,
    role_digest,
    run_role,
    ssh_host,
)
from tests.builders.sentences import tells
from tests.rigs.process import ROOT

pytestmark = pytest.mark.slow

HERE = Host("here", {"ansible_connection": "local", "ansible_python_interpreter": sys.executable})

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Write a file
      ansible.builtin.copy: {content: "{{ text }}", dest: "{{ place }}", mode: "0644"}
    - name: Try what may fail
      ansible.builtin.command: {argv: ["false"]}
      ignore_errors: true
    - name: Install packages
      ansible.builtin.command: {argv: [sh, -c, "echo no such package {{ item }} >&2; exit 3"]}
      loop: [one, two]
      when: fails
"""


def play_in(folder: Path, *tasks: str) -> Path:
    """Return a play of these tasks; PLAY where there is none."""
    play = folder / "play.yml"
    begin = "- hosts: all\n  gather_facts: false\n  tasks:\n"
    written = begin + "".join(f"    - {task}\n" for task in tasks)
    play.write_text(written if tasks else PLAY, encoding="utf-8")
    return play


def variables(folder: Path, *, fails: bool) -> dict[str, object]:
    return {"text": "written", "place": str(folder / "file"), "fails": fails}


def commands_naming(path: Path) -> list[bytes]:
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended meanwhile
            found.append(each.read_bytes())
    return [command for command in found if str(path).encode() in command]


def test_role_reports_tasks_and_changes_and_logs_without_escapes(tmp_path: Path) -> None:
    told: list[str] = []
    log = tmp_path / "log"

    changed = run_role(
        HERE, variables(tmp_path, fails=False), log=log, told=told.append, play=play_in(tmp_path)
    )

    assert told == ["Write a file", "Try what may fail", "Install packages"]
    assert changed == ("Write a file",)
    logged = log.read_text(encoding="utf-8")
    assert "TASK [Write a file]" in logged
    assert "\x1b" not in logged


def test_failing_task_is_named_with_position_and_output(tmp_path: Path) -> None:
    log = tmp_path / "log"

    with pytest.raises(RoleFailed) as caught:
        run_role(HERE, variables(tmp_path, fails=True), log=log, play=play_in(tmp_path))

    problem = str(caught.value)
    assert tells(problem, "Install packages", "play.yml:10")
    assert "no such package one\n" in problem
    assert "no such package two\n" in problem
    assert tells(problem, log)
    assert "no such package two" in log.read_text(encoding="utf-8")


FAILURES = {
    "Install things": """
  tasks:
    - name: Install things
      ansible.builtin.shell: {cmd: "printf 'Setting up\\n\\nE: the real error\\n' >&2; exit 1"}
    - name: Never run
      ansible.builtin.command: {argv: ["true"]}
""",
    "Reload it": """
  tasks:
    - name: Write the unit
      ansible.builtin.command: {argv: ["true"]}
      notify: Reload it
  handlers:
    - name: Reload it
      ansible.builtin.shell: {cmd: "printf 'E: the real error' >&2; exit 1"}
""",
}


@pytest.mark.parametrize("task", FAILURES)
def test_failure_has_name_and_all_lines_of_task_or_handler(task: str, tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    play.write_text(f"- hosts: all\n  gather_facts: false{FAILURES[task]}", encoding="utf-8")
    told: list[str] = []

    with pytest.raises(RoleFailed, match=f"“{task}”") as caught:
        run_role(HERE, {}, log=tmp_path / "log", told=told.append, play=play)

    assert re.search(r"stderr: .*(\n.*)*E: the real error", str(caught.value))
    assert told[-1] == task


def test_ansible_gets_no_settings_or_secrets_of_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_CHECK_MODE_MARKERS", "True")
    monkeypatch.setenv("FLEET_TEST_SECRET", "glpat-must-not-leak")
    monkeypatch.setenv("no_proxy", "localhost")
    play = play_in(
        tmp_path, f"{{name: Tell, ansible.builtin.shell: {{cmd: 'env >{tmp_path}/env'}}}}"
    )

    run_role(HERE, {}, log=tmp_path / "log", play=play)

    lines = (tmp_path / "env").read_text(encoding="utf-8").splitlines()
    told = dict(line.split("=", 1) for line in lines if "=" in line)
    assert {"ANSIBLE_CHECK_MODE_MARKERS", "FLEET_TEST_SECRET"} & told.keys() == set()
    assert (told["no_proxy"], told["LC_ALL"]) == ("localhost", "C.UTF-8")


def test_interrupt_stops_ansible(tmp_path: Path) -> None:
    play = play_in(tmp_path, "{name: Wait, ansible.builtin.command: {argv: [sleep, '600']}}")

    with pytest.raises(KeyboardInterrupt):
        run_role(
            *(HERE, {}),
            log=tmp_path / "log",
            told=lambda _: os.kill(os.getpid(), signal.SIGINT),
            play=play,
        )

    assert commands_naming(play) == []


def test_root_folder_is_an_ansible_host_by_chroot(tmp_path: Path) -> None:
    assert chroot_host(tmp_path, 7).variables == {
        "ansible_connection": "fleet_chroot",
        "ansible_host": str(tmp_path),
        "fleet_epoch": 7,
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its root folder")
@pytest.mark.parametrize("inherited", [{}, {"SOURCE_DATE_EPOCH": "3"}])
def test_programs_in_a_root_write_the_epoch_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inherited: dict[str, str]
) -> None:
    for name, text in inherited.items():
        monkeypatch.setenv(name, text)
    play = play_in(
        tmp_path, "{name: Tell, ansible.builtin.raw: 'echo epoch $SOURCE_DATE_EPOCH.; exit 1'}"
    )

    with pytest.raises(RoleFailed, match=r"epoch 7\."):
        run_role(chroot_host(Path("/"), 7), {}, log=tmp_path / "log", play=play)


def test_role_refuses_folder_without_shell(tmp_path: Path) -> None:
    with pytest.raises(RoleFailed, match="bin/sh"):
        run_role(
            chroot_host(tmp_path, 7),
            variables(tmp_path, fails=False),
            log=tmp_path / "log",
            play=play_in(tmp_path),
        )


def test_ssh_accepts_only_recorded_host_key(tmp_path: Path) -> None:
    host = ssh_host("192.0.2.7", port=22, key=tmp_path / "key", known_hosts=tmp_path / "known")

    options = str(host.variables["ansible_ssh_common_args"])
    assert "StrictHostKeyChecking=yes" in options
    assert f"UserKnownHostsFile='{tmp_path}/known'" in options
    assert host.variables["ansible_ssh_private_key_file"] == str(tmp_path / "key")


@pytest.mark.parametrize(
    ("name", "differs"),
    [
        ("README.md", []),
        ("tasks/main.yml", ["tasks/main.yml"]),
        ("templates/README.md", ["templates/README.md"]),
        ("templates/new.j2", ["templates/new.j2"]),
    ],
)
def test_digest_of_the_role_changes_when_a_file_that_it_uses_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, differs: list[str]
) -> None:
    role = tmp_path / "roles/debusine_worker"
    shutil.copytree(ROOT / "ansible/roles/debusine_worker", role)
    monkeypatch.setattr("fleet.images.role.shipped_folder", lambda _: tmp_path)
    before = role_digest()
    assert (len(before), role_digest()) == (64, before)

    with (role / name).open("a", encoding="utf-8") as file:
        file.write("# another line\n")

    assert [name][: role_digest() != before] == differs
