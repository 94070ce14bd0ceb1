"""`nox -s lint` fails at odd English, and names the line and a plain alternative."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.prose import ROOT, check, failures, load_rules, read_files

RULES = load_rules((ROOT / "tools/prose.toml").read_text(encoding="utf-8"))


def lint(files: Mapping[str, str]) -> list[str]:
    """Return the hits in files as text."""
    return [str(hit) for hit in check(files, RULES)]


def test_odd_sentence_is_shown_with_line_and_alternative() -> None:
    (hit,) = lint({"docs/a.md": "# Title\n\nThe rule is in force.\n"})

    assert hit.startswith("docs/a.md:3: error: 'in force':")
    assert "active, or enforced" in hit


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (3, '"""Read.\n\nA machine begun twice.\n"""\n'),
        (2, "a = 1\nb = 2  # started, or begun, by hand\n"),
        (3, 'MESSAGE = (\n    "the first part is plain; "\n    "the run was begun"\n)\n'),
        (1, 'message = f"run {name} has begun at {time}"\n'),
    ],
)
def test_hit_has_its_line_in_docstring_comment_and_string(line: int, source: str) -> None:
    (hit,) = lint({"fleet/a.py": source})

    assert hit.startswith(f"fleet/a.py:{line}: error: 'begun':")


@pytest.mark.parametrize(
    "text",
    [
        "Ask it for every machine.",
        "Release the hold of a machine.",
        "Write the files beside fleet.yaml.",
        "See `begun`.",
        "<!-- in force -->",
        "<!--\nin force\n-->",
        "```\nin force\n```",
        "How many are there? What changed?",
    ],
)
def test_plain_sentence_or_code_has_no_hit(text: str) -> None:
    assert lint({"docs/a.md": f"{text}\n"}) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Machines are kept for ever.", "odd-word"),
        ("It reads all pages at once.", "late-word"),
        ("An answer in parts costs less.", "operations-research"),
        ("The machine waits until somebody looks.", "person"),
        ("Start at the most two.", "quantity"),
        ("Each queue is asked first.", "passive"),
        ("What waits is counted.", "clause-as-subject"),
        ("Return what waits.", "return-what"),
        ("The cost of what waits.", "clause-as-object"),
        ("The pool has none.", "bare-none"),
        ("Of each request, the rank.", "fronting"),
        ("It deletes nothing but logs, and keeps nothing.", "negation"),
    ],
)
def test_each_rule_finds_its_sentence(text: str, rule: str) -> None:
    assert lint({"docs/a.md": f"{text}\n"})[0].endswith(f"[{rule}]")


def test_warnings_fail_only_above_their_limit() -> None:
    hits = check({"docs/a.md": "It reads all pages at once.\nBy now they are old.\n"}, RULES)

    assert failures(hits, 2) == []
    assert len(failures(hits, 1)) == 3


def test_errors_fail_below_the_limit_of_warnings() -> None:
    assert len(failures(check({"docs/a.md": "It has begun.\n"}, RULES), 9)) == 1


def test_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="absent"):
        read_files([str(tmp_path / "absent")])
