"""Command lines of earlier versions: each prints what to use instead."""

import pytest

from fleet.program import REMOVED, VERBS
from tests.builders.sentences import tells
from tests.rigs.process import ROOT, RunFleet


@pytest.mark.parametrize("removed", REMOVED)
def test_removed_command_names_its_replacement(run_fleet: RunFleet, removed: str) -> None:
    ended = run_fleet(*removed.split())

    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert tells(ended.stderr, f"fleet {removed}", REMOVED[removed])


@pytest.mark.parametrize("removed", REMOVED)
def test_removed_command_is_not_in_the_help(run_fleet: RunFleet, removed: str) -> None:
    verb, _, option = removed.partition(" ")
    printed = run_fleet(verb, "--help").stdout if option else run_fleet("--help").stdout

    assert (option or f"\n  {verb} ") not in printed
    assert bool(option) is (verb in VERBS)


@pytest.mark.parametrize(
    "args",
    [
        ("tune", "--help"),
        ("tune", "--start", "95%:10m", "--key", "pools.big.machine"),
        ("tune", "--history", "none.zst", "--json"),
    ],
)
def test_removed_command_is_refused_with_any_arguments(
    run_fleet: RunFleet, args: tuple[str, ...]
) -> None:
    ended = run_fleet(*args)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert tells(ended.stderr, REMOVED["tune"])


def test_pages_of_replacements_exist() -> None:
    pages = [
        word.strip("()").partition("#")[0]
        for text in REMOVED.values()
        for word in text.split()
        if "docs/" in word
    ]

    assert pages
    assert [page for page in pages if not (ROOT / page).is_file()] == []
