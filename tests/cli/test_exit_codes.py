"""Exit codes: every one of them is produced here, and told in one place."""

import re

import pytest

from fleet.program import EXIT_CODES
from tests.builders.sentences import tells
from tests.rigs.process import ROOT, RunFleet
from tests.rigs.trial import Trial

PAGE = ROOT / "docs/reference/exit-codes.md"


def refused(trial: Trial) -> list[str]:
    (trial.folder / ".fleet/store.db").unlink()
    return ["apply"]


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
