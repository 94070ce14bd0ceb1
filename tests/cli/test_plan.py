"""`fleet plan`: says what should change, in every form, and never changes anything."""

import json
import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from bench.one import write_files
from bench.worlds import Size
from fleet.apply.saved_plan import read_plan
from fleet.report.plan import plan_to_markdown
from fleet.state.history import append
from tests.builders.sentences import tells
from tests.rigs.process import Completed, RunFleet, clean_environment, fleet_command
from tests.rigs.trial import BIG, BUILDERS, Trial, fleet_yaml
from tests.rigs.warm import Warm

ESCAPE = "\x1b["
LONG_NAMES = [f"package-{number}-with-a-long-name" for number in range(9)]


# what a change does


def changed(trial: Trial, text: str) -> None:
    """Keep fleet.yaml as base/fleet.yaml, and write another."""
    (trial.folder / "base").mkdir()
    (trial.folder / "fleet.yaml").rename(trial.folder / "base/fleet.yaml")
    trial.write(text)


def observed(trial: Trial, run_fleet: RunFleet) -> tuple[str, ...]:
    """Record a world, and change fleet.yaml so that a limit is raised and a rule is added."""
    trial.wait_for("1")
    run_fleet("observe", "--out", "seen.json")
    rule = "powerful: [{match: a/b/c/d, ask: [big], expires: 2099-01-01}]\n"
    raised = BUILDERS.replace("max: 4", "max: 5")
    changed(trial, fleet_yaml(pools={"big": BIG, "builders": raised}, more=rule))
    return "plan", "--json", "--base", "base/fleet.yaml", "--world", "seen.json"


def test_rule_is_measured_by_history_of_the_world(trial: Trial, run_fleet: RunFleet) -> None:
    arguments = observed(trial, run_fleet)
    begin = datetime(2026, 11, 21, 8, tzinfo=UTC)
    world = json.loads((trial.folder / "seen.json").read_text())
    build = {"task": "build", "owner": "a", "project": "b", "chroot": "c", "package": "d"}
    for day in range(5):
        at = begin + timedelta(days=day)
        request = build | {"id": str(100 + day), "expected_seconds": 7200}
        world |= {"time": at.isoformat()}
        world["queues"]["work"]["demand"] |= {"requests": [request], "read_at": at.isoformat()}
        append(str(trial.folder / "seen.jsonl.zst"), f"{json.dumps(world)}\n", at)

    latest = run_fleet(*arguments[:-1], "seen.jsonl.zst")
    third = run_fleet(*arguments[:-1], "seen.jsonl.zst@2026-11-23T12:00")

    rules = [json.loads(each.stdout)["change"]["allow_list"] for each in (latest, third)]
    figures = [(rule["builds"], rule["added"], rule["moments"]) for (rule,) in rules]
    assert figures == [(5, 5, 5), (3, 3, 3)]
    assert rules[0][0]["month"] == "36.6536"  # 4 in 4 days, each 2 h and the tail at 0.462
    assert rules[0][0]["owners"] == {"a": 5}


# where it cannot write


def plan_into(out: int, trial: Trial, warm: Warm, *options: str) -> Completed:
    return subprocess.run(
        [*warm.command(), "plan", *options],
        cwd=trial.folder,
        env=clean_environment(trial.folder),
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("--world", "world.json")])
def test_plan_exits_1_without_traceback_when_pipe_is_closed(
    options: tuple[str, ...], trial: Trial, warm: Warm
) -> None:
    read, write = os.pipe()
    os.close(read)

    failed = plan_into(write, trial, warm, *options)
    os.close(write)

    assert (failed.returncode, failed.stderr) == (1, "")


@pytest.mark.parametrize("options", [(), ("--world", "world.json")])
def test_full_standard_output_is_reported(
    options: tuple[str, ...], trial: Trial, warm: Warm
) -> None:
    with Path("/dev/full").open("w") as full:
        failed = plan_into(full.fileno(), trial, warm, *options)

    assert failed.returncode == 1
    assert tells(failed.stderr, "error", "standard output")


@pytest.mark.slow
def test_plan_works_without_output_streams(trial: Trial) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *fleet_command(), "plan", "--out", "p.json"],
        cwd=trial.folder,
        env=clean_environment(trial.folder),
        check=False,
    )

    assert done.returncode == 0
    assert json.loads((trial.folder / "p.json").read_text())["fleet"] == "trial"


# colour


def on_a_terminal(trial: Trial, warm: Warm, *words: str, **env: str) -> str:
    """Return what a command, without words `fleet plan`, writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*warm.command(), *(words or ("plan",))],
        cwd=trial.folder,
        env=clean_environment(trial.folder, env),
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 65536):
                said += part
        except OSError:
            pass  # Linux tells the end of a terminal by EIO
        os.close(ours)
    assert process.returncode == 0
    return said.decode()


@pytest.mark.parametrize("width", [60, 80, 132])
def test_plan_fits_the_terminal_when_it_is_narrow_or_wide(
    trial: Trial, warm: Warm, width: int
) -> None:
    trial.wait_for(*LONG_NAMES)

    said = on_a_terminal(trial, warm, COLUMNS=str(width), NO_COLOR="1").rpartition("\x1b[K")[2]

    lines = [len(line) for line in said.replace("\r", "").splitlines()]
    assert max(lines) <= width
    assert max(lines) > width - 20


@pytest.mark.parametrize(
    ("env", "has_colour"),
    [({"NO_COLOR": "1"}, False), ({"CI": "1"}, False), ({"NO_COLOR": ""}, True)],
    ids=str,
)
def test_terminal_plan_has_colour_unless_disabled(
    trial: Trial, warm: Warm, env: dict[str, str], *, has_colour: bool
) -> None:
    trial.wait_for("1")

    said = on_a_terminal(trial, warm, **env)

    assert (ESCAPE in said.rpartition("\r\x1b[K")[2]) is has_colour
    assert "trial-builders-0001" in said


def test_plan_warns_first_that_a_rank_may_be_short(tmp_path: Path, run_fleet: RunFleet) -> None:
    write_files(tmp_path, Size(1_000, 300, 40, 100, limited=True))
    written = (tmp_path / "fleet.yaml").read_text(encoding="utf-8")
    pool = next(iter(yaml.safe_load(written)["pools"].values()))
    unused = {f"unused-{number}": pool for number in range(20)}
    more = yaml.safe_dump({"templates": unused})
    (tmp_path / "fleet.yaml").write_text(written + more, encoding="utf-8")

    file, world, out = (str(tmp_path / name) for name in ("fleet.yaml", "world.json", "plan.json"))
    printed = run_fleet("plan", "--file", file, "--world", world, "--out", out).stdout

    saved = Path(out).read_bytes()
    markdown = plan_to_markdown(read_plan(out, saved))
    for said in (printed, saved.decode(), markdown):
        assert 0 < said.index("longer-than-necessary") < said.index("unused-template")
    short, lint = markdown.index("longer-than-necessary"), markdown.index("unused-template")
    assert short < markdown.index("<details>", short) < lint
