"""`fleet init`: a repository of a fleet begins, whole or not at all, and nothing is replaced."""

import json
import os
import pty
import re
import subprocess
from contextlib import chdir
from itertools import product
from pathlib import Path

import pytest
import yaml

from fleet.errors import FileUnreadable
from fleet.migrate.init import CLOUDS, EXAMPLES, PAID, QUEUES, SIZES
from fleet.state.files import create_files
from fleet.state.history import read_moment
from tests.builders.recording import made_up
from tests.builders.sentences import tells
from tests.queues.test_copr import BUILD_42, SOURCE, serving
from tests.rigs.loopback import Loopback
from tests.rigs.process import ROOT, RunFleet, clean_environment
from tests.rigs.trial import Trial
from tests.rigs.warm import Warm

FILES = [".fleet", ".gitignore", ".gitlab-ci.yml", "README.md", "fleet.yaml", "world.json"]
VARIABLES = {"debusine": "DEBUSINE_TOKEN", "hcloud": "HCLOUD_TOKEN", "aws": "AWS_PROFILE"}
CHOICES = [
    pytest.param(*each, marks=() if each[2] == "medium" else pytest.mark.slow)
    for each in product(QUEUES, CLOUDS, SIZES)
    if each[0] != "recorded" or each[1] not in PAID
]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_first_plan_creates_machines_without_real_systems(
    run_fleet: RunFleet, project: Path
) -> None:
    begun = run_fleet("init")
    planned = run_fleet("plan")
    applied = run_fleet("apply")

    assert (begun.returncode, begun.stderr) == (0, "")
    assert names(project) == FILES
    assert (planned.returncode, applied.returncode) == (0, 0)
    assert tells(planned.stdout, "3 to create")
    assert tells(planned.stdout, "builds-builders-0003", "ccx33")
    assert len(re.findall(r"^", (project / "README.md").read_text(), re.MULTILINE)) <= 11


@pytest.mark.parametrize(("queue", "cloud", "size"), CHOICES)
def test_init_choices_validate_and_plan_names_missing_settings(
    run_fleet: RunFleet, queue: str, cloud: str, size: str
) -> None:
    with Loopback(serving()) as server:
        url = ("--url", server.url) if queue == "copr" else ()
        begun = run_fleet("init", "--queue", queue, "--cloud", cloud, "--size", size, *url)
        validated = run_fleet("validate", "--json")
        # Credentials of AWS may lie anywhere: of this process, too.
        ran = run_fleet("plan", env={"AWS_EC2_METADATA_DISABLED": "true"})

    planned = ran.stdout + ran.stderr
    wanted = {VARIABLES[each] for each in (queue, cloud) if each in VARIABLES}
    assert begun.returncode == 0
    # The catalogue ages with the day of the test.
    found = {each["rule"] for each in json.loads(validated.stdout)["findings"]}
    assert (validated.returncode, found - {"old-prices"}) == (0, set())
    assert {each for each in VARIABLES.values() if each in planned} == wanted
    assert all(f"export {each}=" in begun.stdout for each in wanted)
    assert ran.returncode == bool(wanted)
    assert ("fleet state init" in planned) is False


def test_init_copr_creates_machine_per_build_counted_once(
    run_fleet: RunFleet,
) -> None:
    jobs = [{**SOURCE}, {**BUILD_42, "tags": []}]
    with Loopback(serving(*jobs)) as server:
        begun = run_fleet("init", "--queue", "copr", "--url", server.url)
        alone = run_fleet("plan", "--json")
        tags = ("--tag", "copr_builder", "--tag", "arch_x86_64")
        run_fleet("ticket", "open", *tags, "--sandbox", "@asahi/kernel--ada")
        both = run_fleet("plan", "--json")

    assert (begun.returncode, alone.returncode, both.returncode) == (0, 0, 0), begun.stderr
    for done in (alone, both):
        actions = json.loads(done.stdout)["actions"]
        assert [each["action"] for each in actions] == ["create", "create"]


def test_init_tickets_serves_a_ticket_by_its_printed_steps(run_fleet: RunFleet) -> None:
    begun = run_fleet("init", "--queue", "tickets")
    steps = re.findall(r"^  \d+\. fleet (.+?)(?:  \(.*)?$", begun.stdout, re.MULTILINE)
    done = [run_fleet(*step.split()) for step in steps]

    assert [each.returncode for each in done] == [0, 0, 0, 0], [each.stderr for each in done]
    assert tells(done[-1].stdout, "1 created")


def test_every_written_key_has_a_comment(project: Path) -> None:
    trial = Trial.__new__(Trial)
    trial.folder = project
    assert trial.do("init", "--queue", "debusine", "--cloud", "hcloud")[0] == 0

    text = (project / "fleet.yaml").read_text()
    config = yaml.safe_load(text)
    for key in (*config, "url", "scopes", "token", "kind", "suite", "architecture", "workers"):
        if key not in {"url", "state"}:
            assert re.search(rf"^ *{key}:.* # \w", text, re.MULTILINE), key


def test_init_writes_documented_pipeline_and_ignores_state(
    run_fleet: RunFleet, project: Path
) -> None:
    run_fleet("init")

    page = (ROOT / "docs/how-to/run-in-gitlab.md").read_text(encoding="utf-8")
    block = page.partition("<!-- file: .gitlab-ci.yml -->\n```yaml\n")[2].partition("```")[0]
    written = yaml.safe_load((project / ".gitlab-ci.yml").read_text())
    assert written == yaml.safe_load(block)
    subprocess.run(["git", "init", "-q", project], check=True, timeout=60)
    kept = subprocess.run(
        ["git", "-C", project, "status", "--short", "-uall"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert {line.split()[1] for line in kept.stdout.splitlines()} == {*FILES} - {".fleet"}


def test_init_removes_written_files_when_one_fails(project: Path) -> None:
    contents: dict[str, tuple[bytes, int | None]] = {
        "a": (b"a", None),
        "b/c": (b"c", 0o755),
        "x" * 300: (b"x", None),
    }
    (project / "a").write_bytes(b"a")

    with chdir(project), pytest.raises(FileUnreadable, match="x" * 300):
        create_files(contents)

    assert [path for path in project.rglob("*") if path.is_file()] == [project / "a"]


def test_init_keeps_concurrently_created_file(project: Path) -> None:
    (project / "b").write_bytes(b"another")

    with chdir(project), pytest.raises(FileUnreadable, match="b"):
        create_files({"a": (b"a", None), "b": (b"b", None)})

    assert names(project) == ["b"]
    assert (project / "b").read_bytes() == b"another"


def test_init_refuses_url_of_two_lines_without_files(run_fleet: RunFleet, project: Path) -> None:
    done = run_fleet("init", "--url", "https://d.example\n  x: y")

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert names(project) == []


@pytest.mark.parametrize(
    ("answers", "written"),
    [
        pytest.param(b"2\nhc\nbig\n", ("debusine", "hcloud", "ccx53"), marks=pytest.mark.slow),
        pytest.param(b"\n\n\n", ("world", "sim", "ccx33"), marks=pytest.mark.slow),
        (b"what\ntickets\nlocal\n1\n", ("tickets", "local", {"cores": 2, "memory": "4GiB"})),
    ],
)
def test_init_asks_a_user_at_a_terminal(
    project: Path, warm: Warm, answers: bytes, written: tuple[object, ...]
) -> None:
    done, _ = at_a_terminal(project, warm, answers)

    assert done == 0
    config = yaml.safe_load((project / "fleet.yaml").read_text())
    found = (
        config["queues"]["work"]["kind"],
        config["providers"]["cloud"]["kind"],
        config["pools"]["builders"]["machine"],
    )
    assert found == written


def at_a_terminal(project: Path, warm: Warm, answers: bytes, *options: str) -> tuple[int, str]:
    """Return the exit code of `fleet init` at a terminal with these answers, and its questions."""
    ours, theirs = pty.openpty()
    os.write(ours, answers)
    environment = clean_environment(project.parent)
    environment.pop("CI", None)
    done = subprocess.run(
        [*warm.command(), "init", *options],
        cwd=project,
        env=environment | {"TERM": "xterm"},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
        timeout=60,
    )
    os.set_blocking(ours, False)
    try:
        said = os.read(ours, 100_000).decode()
    except BlockingIOError:
        said = ""
    os.close(ours)
    os.close(theirs)
    return done.returncode, said


def test_init_suggests_doctor_first_then_missing_tools(run_fleet: RunFleet) -> None:
    begun = run_fleet("init", "--cloud", "hcloud", env={"FLEET_PULUMI": "/nowhere/pulumi"})

    steps = re.findall(r"^  (\d+)\. (.+)$", begun.stdout, re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert steps[0][1].startswith("fleet doctor")
    assert steps[1][1].startswith("Pulumi CLI")
    assert tells(steps[-1][1], ".gitlab-ci.yml", "image")


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_init_example_writes_only_its_files(run_fleet: RunFleet, project: Path, name: str) -> None:
    done = run_fleet("init", "--example", name)
    again = run_fleet("init", "--example", name)

    theirs = {path.name: path.read_bytes() for path in (ROOT / "examples" / name).iterdir()}
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in project.iterdir()} == theirs
    assert again.returncode == 4
    assert all(each in again.stderr for each in theirs)


def test_example_history_equals_generated_history(tmp_path: Path) -> None:
    example = ROOT / "examples/history/history.jsonl.zst"
    made_up(tmp_path / "h", 7)

    ends = [read_moment(str(path)) for path in (example, tmp_path / "h")]

    assert ends[0] == ends[1]


def test_help_lists_each_example_with_its_page(run_fleet: RunFleet) -> None:
    said = "".join(run_fleet("init", "--help").stdout.split())

    assert [name for name in EXAMPLES if f"`{name}`" not in said] == []
