"""Files that hold what the program prints; `pytest --update-golden` rewrites them."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import unified_diff
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
            path.write_text(now, encoding="utf-8")
            committed = now
        sides = settle(committed).splitlines(), settle(now).splitlines()
        changes = "\n".join(unified_diff(*sides, path.name, "now", n=0, lineterm=""))
        assert same(now) == same(committed), f"{changes}\nrun: pytest --update-golden"
