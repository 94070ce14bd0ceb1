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
        (b"", "1:1: error[empty-file] "),
        (b"# only a comment\n", "1:1: error[empty-file] "),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "1:1: error[not-text] the byte 0x89 "),
        (b"fleet: x\n\x00", "2:1: error[not-text] "),
        (b'fleet: x\nstate: {images: "a\\0b"}\n', "2:17: error[not-text] "),
        (b"fleet: caf\xe9\n", "1:11: error[not-text] the byte 0xE9 "),
        (b"[" * 100_000, "1:51: error[too-complex] "),
        (b"{a: " * 100_000, "1:201: error[too-complex] "),
        (BOMB.encode(), "6:4: error[too-complex] "),
        (b"fleet: x\nfleet: y\n", "2:1: error[duplicate-key] "),
        (b"fleet: x\npols: {}\n", "2:1: error[unknown-key] "),
        (b"fleet: x\ncadence: 10\n", "2:10: error[wrong-type] "),
        (b"fleet: x\ncadence: 10 m\n", "2:10: error[wrong-value] "),
        (b"fleet: x\n\tcadence: 10m\n", "2:1: error[invalid-yaml] "),
        (b"- fleet\n", "1:1: error[wrong-type] "),
        (
            f"{HEAD}pools: {{a: {{{POOL.replace('p,', 'q,')}, workers: {{max: 1}}}}}}\n".encode(),
            "4:23: error[unknown-provider] ",
        ),
        (
            f"{HEAD}pools: {{a: {{{POOL}, workers: {{max: 1, min: 2}}}}}}\n".encode(),
            "4:75: error[min-above-max] ",
        ),
        (
            b"fleet: x\nstate: {passphrase: hunter2}\n",
            "2:21: error[inline-secret] ",
        ),
    ],
)
def test_validate_reports_bad_file_with_place(
    run_fleet: RunFleet, project: Path, text: bytes, said: str
) -> None:
    (project / "fleet.yaml").write_bytes(text)

    ran = run_fleet("validate")

    assert first_line(ran).startswith(f"fleet.yaml:{said}")
    assert "hunter2" not in ran.stdout + ran.stderr


@pytest.mark.parametrize("command", ["validate", "plan", "apply", "status", "log", "doctor"])
def test_missing_file_error_names_init_and_file_option(run_fleet: RunFleet, command: str) -> None:
    ran = run_fleet(command)

    said = ran.stdout + ran.stderr
    assert ran.returncode == 1
    assert tells(said, "fleet.yaml:1:1", "error[unreadable-file]")
    assert tells(said, "hint", "fleet init", "--file")


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


@pytest.mark.parametrize("command", ["plan", "status", "observe", "doctor"])
def test_each_command_reports_errors_of_fleet_yaml(
    run_fleet: RunFleet, project: Path, command: str
) -> None:
    (project / "fleet.yaml").write_text("fleet: x\npols: {}\n", encoding="utf-8")

    ran = run_fleet(command)

    assert (ran.returncode, ran.stdout) == (1, "")
    assert tells(ran.stderr.splitlines()[0], "fleet.yaml:2:1: error[unknown-key]", "'pols'")
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_validate_of_20000_errors_is_fast(run_fleet: RunFleet, project: Path) -> None:
    keys = "".join(f"key-{number}: {number}\n" for number in range(20_000))
    (project / "fleet.yaml").write_text(f"fleet: x\n{keys}", encoding="utf-8")

    ran = run_fleet("validate")

    assert ran.stdout.endswith("fleet.yaml: invalid (20,000 errors)\n")
    assert _used_by_validate(project).ru_utime < 20


@pytest.mark.parametrize(
    ("special", "said"),
    [
        (
            "ln -s loop.yaml loop.yaml",
            ("loop.yaml:1:1", "error[unreadable-file]", "links"),
        ),
        ("mkfifo pipe.yaml", ("pipe.yaml:1:1", "error[unreadable-file]", "regular file")),
        (
            "ln -s /etc/hostname out.yaml",
            ("fleet.yaml:1:11", "error[invalid-include]", "out.yaml", "out of ."),
        ),
        ("mkdir dir.yaml", ("fleet.yaml:1:11", "error[invalid-include]", "no file")),
    ],
)
def test_included_special_file_is_a_finding(
    run_fleet: RunFleet, project: Path, special: str, said: tuple[str, ...]
) -> None:
    (project / "fleet.yaml").write_text("include: ['[!f]*.yaml']\nfleet: x\n", encoding="utf-8")
    subprocess.run(special.split(), cwd=project, check=True)

    assert tells(first_line(run_fleet("validate")), *said)


def test_fleet_yaml_linked_out_of_its_folder_is_not_read(
    run_fleet: RunFleet, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("canary: 1\n", encoding="utf-8")
    (project / "fleet.yaml").symlink_to(tmp_path / "secret")

    ran = run_fleet("validate")

    assert tells(first_line(ran), "fleet.yaml:1:1", "error[unreadable-file]", "out of .")
    assert "canary" not in ran.stdout + ran.stderr


def test_fleet_yaml_linked_within_its_folder_is_read(run_fleet: RunFleet, project: Path) -> None:
    (project / "..data").mkdir()
    (project / "..data" / "fleet.yaml").write_text("fleet: x\n", encoding="utf-8")
    (project / "fleet.yaml").symlink_to("..data/fleet.yaml")

    assert run_fleet("validate").returncode == 0


@pytest.mark.parametrize("path", ["x" * 300, "\\0", "fleet.yaml/below"])
def test_inaccessible_path_suppresses_no_finding(
    run_fleet: RunFleet, project: Path, path: str
) -> None:
    text = f'fleet: x\npols: {{}}\nqueues: {{q: {{kind: world, path: "{path}"}}}}\n'
    (project / "fleet.yaml").write_text(text, encoding="utf-8")

    ran = run_fleet("validate", "--gitlab-code-quality", "quality.json")

    assert "error[unknown-key] " in ran.stdout
    assert (project / "quality.json").exists()


def test_unencodable_output_is_escaped(fork_fleet: RunFleet, project: Path) -> None:
    (project / "fleet.yaml").write_text("fleet: x\né: 1\n", encoding="utf-8")

    ran = fork_fleet("validate", "--json", env={"PYTHONIOENCODING": "ascii"})

    assert ran.returncode == 1
    assert "\\u00e9" in ran.stdout
    assert json.loads(ran.stdout)["findings"]


def test_pages_are_not_written_through_a_link(trial: Trial, run_fleet: RunFleet) -> None:
    elsewhere = trial.folder / "elsewhere" / "status"
    elsewhere.mkdir(parents=True)
    (elsewhere / "kept").write_text("", encoding="utf-8")
    (trial.folder / "site").mkdir()
    (trial.folder / "site" / "-").symlink_to(elsewhere.parent)

    ran = run_fleet("status", "--world", "world.json", "--site", "site")

    assert ran.returncode == 1
    assert [each.name for each in elsewhere.iterdir()] == ["kept"]


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


SIM = """\
fleet: x
providers: {p: {kind: sim, path: p.json}}
pools: {a: {provider: p, machine: ccx33, image: i, workers: {max: 1}}}
images: {i: {suite: trixie, architecture: amd64}}
"""


@pytest.mark.parametrize(
    "special",
    ["ln -s p.json p.json", "mkfifo p.json", "truncate --size 300M p.json", "mkdir p.json"],
)
def test_simulated_cloud_is_unknown_when_its_file_is_special(
    run_fleet: RunFleet, project: Path, special: str
) -> None:
    (project / "fleet.yaml").write_text(SIM, encoding="utf-8")
    subprocess.run(special.split(), cwd=project, check=True)

    ran = run_fleet("status")

    assert "p.json" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
    assert ["a", "unknown"] in [line.split()[:2] for line in ran.stdout.splitlines()]


def test_report_is_not_written_to_circular_link(run_fleet: RunFleet, project: Path) -> None:
    (project / "fleet.yaml").write_text(SIM, encoding="utf-8")
    (project / "q.json").symlink_to("q.json")

    ran = run_fleet("validate", "--gitlab-code-quality", "q.json")

    assert ran.returncode == 1
    assert "q.json: " in ran.stderr.splitlines()[-1]


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


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ("guards: {refuse: {delete: {count: 99999999999999999999}}}", "100000"),
        ("guards: {refuse: {delete: {count: 1.0e20}}}", "100000"),
        (f"guards: {{refuse: {{delete: {{count: {'9' * 90}}}}}}}", "100000"),
        ("guards: {refuse: {delete: {count: -99999999999999999999}}}", "0"),
        ("cadence: 999999999d", "9999999"),
        (f"cadence: {'9' * 5000}d", "9999999"),
        ("history: {keep: 99999999d}", "9999999"),
        ("history: {keep: 24856d}", "24855d"),
        ("money: {exchange: {USD: {rate: 99999999999999999999, as_of: 2026-11-01}}}", "1e+06"),
        ("guards: {refuse: {delete: {share: 10000000000%}}}", "9999"),
        ("guards: {refuse: {cost_increase: 9999999999 EUR/h}}", "999999999"),
    ],
)
def test_number_beyond_range_is_one_error_with_the_range(
    run_fleet: RunFleet, project: Path, more: str, limit: str
) -> None:
    (project / "fleet.yaml").write_text(fleet_yaml(more=more))

    ran = run_fleet("validate")

    assert ran.returncode == 1
    assert ran.stdout.count(": error[") == 1
    source = ran.stdout.splitlines().index("   |")
    assert tells(" ".join("".join(ran.stdout.splitlines()[:source]).split()), limit)


def test_start_after_centuries_of_work_is_unknown(trial: Trial) -> None:
    slow = "{provider: desk, machine: {type: ccx33, speed: 1%}, image: trixie, workers: {max: 1}}"
    trial.write(fleet_yaml(pools={"builders": slow}, more="durations: {any: 24855d}\n"))
    trial.queue(*({"id": str(number)} for number in range(9)))
    trial.apply()

    answers = trial.json("explain", "request", "--all")["requests"]

    assert {answer["expected"] for answer in answers[1:]} == {None}


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf", "1.0e999"])
def test_number_that_is_not_finite_is_one_error(
    run_fleet: RunFleet, project: Path, number: str
) -> None:
    more = f"guards: {{refuse: {{delete: {{count: {number}}}}}}}"
    (project / "fleet.yaml").write_text(fleet_yaml(more=more))

    ran = run_fleet("validate")

    assert ran.returncode == 1
    assert ran.stdout.count(": error[") == 1


def test_quoted_huge_number_is_offered_without_quotes(run_fleet: RunFleet, project: Path) -> None:
    more = "guards: {refuse: {delete: {count: '99999999999999999999'}}}"
    (project / "fleet.yaml").write_text(fleet_yaml(more=more))

    ran = run_fleet("validate")

    assert tells(ran.stdout, "write 99999999999999999999 without quotes")


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
