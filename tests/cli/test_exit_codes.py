"""Exit codes: every one of them is produced here, and told in one place."""

import json
import re
from collections.abc import Callable

import pytest

from fleet.program import EXIT_CODES
from tests.builders.sentences import tells
from tests.rigs.process import ROOT, RunFleet
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

PAGE = ROOT / "docs/reference/exit-codes.md"


def nothing_wrong(trial: Trial) -> list[str]:
    trial.wait_for("1")
    return ["apply"]


def findings(trial: Trial) -> list[str]:
    trial.write("fleet: trial\npools: {builders: 7}\n")
    return ["validate"]


def something_failed(trial: Trial) -> list[str]:
    trial.write(fleet_yaml(desk="boot: 1s, faults: {create: quota}"))
    trial.wait_for("1")
    return ["apply"]


def a_source_unread(trial: Trial) -> list[str]:
    (trial.folder / "world.json").unlink()
    return ["apply"]


def wrong_usage(_: Trial) -> list[str]:
    return ["plan", "--json", "--markdown"]


def changes(trial: Trial) -> list[str]:
    trial.wait_for("1")
    return ["plan", "--exit-code"]


def refused(trial: Trial) -> list[str]:
    (trial.folder / ".fleet/store.db").unlink()
    return ["apply"]


def refused_by_a_guard(trial: Trial) -> list[str]:
    trial.wait_for(big=["1"])
    trial.apply()
    trial.age(minutes=1)
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    trial.wait_for("1")
    return ["plan", "--exit-code"]


def refused_as_outdated(trial: Trial) -> list[str]:
    trial.do("plan", "--out", "p.json")
    trial.wait_for("1")
    return ["apply", "p.json"]


def partly_applied(trial: Trial) -> list[str]:
    stock = "types: {ccx63: {cores: 48, memory: 192GiB, disk: 960GiB, price: 0.5 EUR/h, stock: 0}}"
    trial.write(fleet_yaml(desk=f"boot: 1s, {stock}"))
    trial.wait_for("1", big=["2"])
    return ["apply"]


@pytest.mark.parametrize(
    ("code", "arrange"),
    [
        (0, nothing_wrong),
        (1, findings),
        (1, something_failed),
        (1, a_source_unread),
        (2, wrong_usage),
        (3, changes),
        (4, refused),
        (4, refused_by_a_guard),
        (4, refused_as_outdated),
        (5, partly_applied),
    ],
)
def test_every_exit_code_has_its_cause(
    trial: Trial, run_fleet: RunFleet, code: int, arrange: Callable[[Trial], list[str]]
) -> None:
    args = arrange(trial)

    done = run_fleet(*args)

    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


FLEET = "usage: fleet [-h] [--version] COMMAND"
PLAN = "usage: fleet plan [-h] [-f FILE]"
USAGE = {
    "": (FLEET, "arguments are required: COMMAND; begin a fleet with `fleet init`"),
    "plam": (FLEET, "argument COMMAND: invalid choice: 'plam'; did you mean 'plan'? (choose from"),
    "xyzzy": (FLEET, "argument COMMAND: invalid choice: 'xyzzy' (choose from"),
    "--bogus plan": (FLEET, "unrecognized arguments: --bogus"),
    "state unlok": ("usage: fleet state", "invalid choice: 'unlok'; did you mean 'unlock'?"),
    "state init --bogus": (
        "usage: fleet state init [-h] [-f FILE]",
        "unrecognized arguments: --bogus",
    ),
    "plan --colour": (PLAN, "unrecognized arguments: --colour"),
    "plan bogus": (PLAN, "unrecognized arguments: bogus"),
    "plan --wrld=x.json": (PLAN, "arguments: --wrld=x.json; did you mean --world?"),
    "validate my.yaml": ("usage: fleet", "arguments: my.yaml; did you mean --file my.yaml?"),
    "prices": ("usage: fleet", "the following arguments are required: ACTION, one of check"),
}


@pytest.mark.parametrize(("words", "told"), USAGE.items(), ids=USAGE)
def test_wrong_usage_shows_usage_and_reason(
    run_fleet: RunFleet, words: str, told: tuple[str, str]
) -> None:
    refused = run_fleet(*words.split())

    usage, because = told
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(usage)
    assert because in refused.stderr
    # Who named no command is told of the pages.
    first = refused.stderr.splitlines()[0]
    assert tells(first, "fleet --help") == (words in {"", "xyzzy", "plam", "--bogus plan"})


def test_page_and_help_list_equal_exit_codes() -> None:
    in_help = re.findall(r"^  (\d+) ", EXIT_CODES, re.MULTILINE)
    on_page = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert in_help == on_page == ["0", "1", "2", "3", "4", "5", "130"]


@pytest.mark.parametrize(
    "command", [("plan",), ("status",), ("tags", "explain", "a/b/c/d"), ("explain", "pool", "big")]
)
def test_recorded_world_of_another_fleet_is_refused(
    trial: Trial, run_fleet: RunFleet, command: tuple[str, ...]
) -> None:
    theirs = {"fleet": "theirs", "time": "2026-11-21T08:00:00Z"}
    (trial.folder / "theirs.json").write_text(json.dumps(theirs), encoding="utf-8")

    refused = run_fleet(*command, "--world", "theirs.json")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert tells(refused.stderr, "theirs.json", "fleet theirs", "fleet.yaml", "fleet trial")


@pytest.mark.parametrize(
    "command",
    [
        ["apply", "--yes", ""],
        ["plan", "--world="],
        ["plan", "--base", ""],
        ["explain", "request", ""],
        ["machine", "delete", "--pool", ""],
    ],
    ids=" ".join,
)
def test_empty_value_is_wrong_usage(trial: Trial, run_fleet: RunFleet, command: list[str]) -> None:
    trial.wait_for("1")

    ran = run_fleet(*command)

    # An unset variable of a job must not apply another plan, or read live servers.
    assert (ran.returncode, ran.stdout) == (2, "")
    assert tells(ran.stderr, "argument", "empty text")
