"""Bad input, through the program itself: a clear word and a place, never a traceback."""

import json
import os
import resource
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet import program
from tests.builders.sentences import tells
from tests.rigs.process import (
    Completed,
    RunFleet,
    clean_environment,
    fleet_command,
    run_process,
)
from tests.rigs.trial import Trial, fleet_yaml

POOL = "provider: p, machine: ccx33, image: i"
HEAD = "fleet: x\nproviders: {p: {kind: sim}}\nimages: {i: {suite: sid, architecture: amd64}}\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def first_line(ran: Completed) -> str:
    assert ran.returncode == 1
    assert "Traceback" not in ran.stdout + ran.stderr
    return ran.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[" * 100_000, "1:51: error[too-complex] "),
        (b"{a: " * 100_000, "1:201: error[too-complex] "),
        (BOMB.encode(), "6:4: error[too-complex] "),
        (f"fleet: x\ncadence: {'9' * 5000}d\n".encode(), "2:10: error["),
    ],
)
def test_validate_reports_bad_file_with_place(
    run_fleet: RunFleet, project: Path, text: bytes, said: str
) -> None:
    (project / "fleet.yaml").write_bytes(text)

    ran = run_fleet("validate")

    assert first_line(ran).startswith(f"fleet.yaml:{said}")


@pytest.mark.slow
def test_huge_file_is_not_read_completely(run_fleet: RunFleet, project: Path) -> None:
    (project / "fleet.yaml").write_bytes(b"fleet: x\n")
    of_little = _used_by_validate(project)
    with (project / "fleet.yaml").open("ab") as stream:
        stream.truncate(50_000_000)

    of_much = _used_by_validate(project)

    assert tells(first_line(run_fleet("validate")), "error[unreadable-file]", "5 MB")
    assert of_much.ru_maxrss - of_little.ru_maxrss < 20_000  # KiB
    assert of_much.ru_utime - of_little.ru_utime < 2


def _used_by_validate(project: Path) -> resource.struct_rusage:
    """Return the memory and time of a process that does nothing else."""
    process = subprocess.Popen(
        [*fleet_command(), "validate"],
        cwd=project,
        env=clean_environment(project),
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used


@pytest.mark.slow
def test_validate_of_20000_errors_is_fast(run_fleet: RunFleet, project: Path) -> None:
    keys = "".join(f"key-{number}: {number}\n" for number in range(20_000))
    (project / "fleet.yaml").write_text(f"fleet: x\n{keys}", encoding="utf-8")

    ran = run_fleet("validate")

    assert ran.stdout.endswith("fleet.yaml: invalid (20,000 errors)\n")
    assert _used_by_validate(project).ru_utime < 20


def test_unencodable_output_is_escaped(fork_fleet: RunFleet, project: Path) -> None:
    (project / "fleet.yaml").write_text("fleet: x\né: 1\n", encoding="utf-8")

    ran = fork_fleet("validate", "--json", env={"PYTHONIOENCODING": "ascii"})

    assert ran.returncode == 1
    assert "\\u00e9" in ran.stdout
    assert json.loads(ran.stdout)["findings"]


def test_deleted_current_folder_is_an_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    deleting = ("sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh")
    environment = clean_environment(tmp_path)

    ran = run_process(*deleting, *fleet_command(), "validate", cwd=gone, env=environment)

    assert (ran.returncode, ran.stdout) == (1, "")
    assert tells(ran.stderr, "fleet: error: .: ", "deleted")


def test_fleet_yaml_is_read_from_standard_input(fork_fleet: RunFleet) -> None:
    assert fork_fleet("validate", "-f", "/dev/stdin", stdin="fleet: x\n").returncode == 0


def test_store_and_stacks_are_readable_only_by_owner(project: Path, run_fleet: RunFleet) -> None:
    Trial(project).wait_for("1")
    assert run_fleet("state", "init").returncode == 0
    assert run_fleet("apply").returncode == 0

    kept = {path.name: path.stat().st_mode & 0o777 for path in (project / ".fleet").iterdir()}
    assert {name: mode for name, mode in kept.items() if not name.endswith(".lock")} == {
        "embedded.db": 0o600,
        "sim-desk.json": 0o600,
        "store.db": 0o600,
    }


@pytest.mark.parametrize("hidden", ["\u00ad", "\u200b", "\u202e", "\u2060", "\u2066"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_invisible_character_is_escaped(
    fork_fleet: RunFleet, project: Path, hidden: str, options: tuple[str, ...]
) -> None:
    (project / "fleet.yaml").write_text(
        f"fleet: x\npools: {{'a{hidden}b': 1}}\n", encoding="utf-8"
    )

    ran = fork_fleet("validate", *options)

    assert ran.returncode == 1
    assert hidden not in ran.stdout + ran.stderr
    assert f"{ord(hidden):x}" in ran.stdout


def test_report_is_written_to_named_pipe(fork_fleet: RunFleet, project: Path) -> None:
    (project / "fleet.yaml").write_text("fleet: x\n", encoding="utf-8")

    ran = fork_fleet("validate", "--gitlab-code-quality", "/dev/stdout")

    assert ran.returncode == 0
    assert ran.stdout.startswith("[]\n")


@pytest.mark.parametrize("year", [1, 1969, 2200, 2201, 9999])
@pytest.mark.parametrize("command", [("plan",), ("validate",), ("status",), ("apply",)])
def test_clock_out_of_range_gives_one_line_error(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, year: int, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(program, "utc_now", lambda: datetime(year, 6, 1, tzinfo=UTC))

    said = trial.told(*command, code=1)

    assert "clock" in said
    assert str(year) in said


def test_start_after_centuries_of_work_is_unknown(trial: Trial) -> None:
    slow = "{provider: desk, machine: {type: ccx33, speed: 1%}, image: trixie, workers: {max: 1}}"
    trial.write(fleet_yaml(pools={"builders": slow}, more="durations: {any: 24855d}\n"))
    trial.queue(*({"id": str(number)} for number in range(9)))
    trial.apply()

    answers = trial.json("explain", "request", "--all")["requests"]

    assert {answer["expected"] for answer in answers[1:]} == {None}


def test_include_is_found_when_its_folder_has_brackets(run_fleet: RunFleet, project: Path) -> None:
    folder = project / "fleet[1]"
    (folder / "parts").mkdir(parents=True)
    main = folder / "fleet.yaml"
    main.write_text(f'{HEAD}include: ["parts/*.yaml"]\n', encoding="utf-8")
    (folder / "parts/pools.yaml").write_text(
        f"pools: {{a: {{{POOL}, workers: {{max: 1}}}}}}\n", encoding="utf-8"
    )
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "-"]):
        names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *names, *words], cwd=project, check=True)

    assert run_fleet("validate", "-f", str(main)).returncode == 0
    compared = run_fleet("plan", "-f", "fleet[1]/fleet.yaml", "--base", "HEAD")
    assert tells(compared.stdout, "No sensitive edits")


def test_policy_is_refused_when_its_path_has_a_bracket(run_fleet: RunFleet, project: Path) -> None:
    (project / "fleet.yaml").write_text(
        f"{HEAD}pools: {{a: {{{POOL}, workers: {{max: 1}}}}}}\n", encoding="utf-8"
    )
    policies = project / "policies[1]"
    policies.mkdir()
    (policies / "size.py").write_text("def test_size():\n    assert True\n", encoding="utf-8")

    assert run_fleet("state", "init").returncode == 0
    ran = run_fleet("check", "--policies", "policies[1]")

    assert ran.returncode == 1
    assert tells(ran.stdout, "policies[1]/size.py", "error[broken-policy]")
    assert tells(ran.stdout, "pytest", "rename")
