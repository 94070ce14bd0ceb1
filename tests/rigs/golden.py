"""Files that hold what the program prints; `pytest --update-golden` rewrites them.

Each file has one test that writes it, so that they can be rewritten in parallel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import SequenceMatcher, unified_diff
from pathlib import Path


class Golden:
    """Compares committed files with the output of today, or rewrites them."""

    def __init__(self, *, updates: bool) -> None:
        """Take whether files are rewritten."""
        self.updates = updates

    def compare(self, path: Path, now: str, settle: Callable[[str], str] = str) -> None:
        """Compare a file with the output of today; `settle` removes what varies between runs.

        Where a line of a page is wrapped hangs on what varies, and does not count.
        """
        committed = path.read_text(encoding="utf-8") if path.exists() else ""

        def same(text: str) -> str:
            return re.sub(r"\n +", " ", settle(text)) if path.suffix == ".md" else settle(text)

        if self.updates and settle(now) != settle(committed):
            failing = new_failures(committed, now)
            assert not failing, (
                f"{path} is not rewritten: `{failing[0]}` fails now; where it is meant to, write "
                "its exit code into the page first"
            )
            now = kept_lines(committed, now, settle)
            path.write_text(now, encoding="utf-8")
            committed = now
        sides = settle(committed).splitlines(), settle(now).splitlines()
        changes = "\n".join(unified_diff(*sides, path.name, "now", n=0, lineterm=""))
        assert same(now) == same(committed), f"{changes}\nrun: pytest --update-golden"


def kept_lines(committed: str, now: str, settle: Callable[[str], str]) -> str:
    """Return today's text with the committed line where only what `settle` removes differs."""
    before, after = (settle(text).split("\n") for text in (committed, now))
    lines, known = now.split("\n"), committed.split("\n")
    if len(before) != len(known) or len(after) != len(lines):
        return now  # `settle` joins lines
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for old, new, size in matcher.get_matching_blocks():
        lines[new : new + size] = known[old : old + size]
    return "\n".join(lines)


_RUN = re.compile(r"^\$ (?P<command>.*)\n(?P<printed>(?:(?!\$ |```).*\n)*)", re.MULTILINE)


def new_failures(committed: str, now: str) -> list[str]:
    """Return the commands of a page that end with an exit code which the page does not show."""
    failed = [
        {run["command"]: _exit_code(run["printed"]) for run in _RUN.finditer(text)}
        for text in (committed, now)
    ]
    return [
        command for command, code in failed[1].items() if code and failed[0].get(command) != code
    ]


def _exit_code(printed: str) -> str:
    found = re.search(r"^\[exit code (\d+)\]$", printed, re.MULTILINE)
    return found[1] if found else ""
