"""Walk a story: a page of docs/walks, command by command, in a folder of its own.

A page is written as every documented page is (see tests/docs/test_documents.py): its files, and
what each command prints. Here time can pass besides, with the command `later`.
"""

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any

from tests.docs.test_documents import Shell, changed, replayed, steady
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT
from tests.rigs.warm import Warm

PAGES = ROOT / "docs" / "walks"
PROGRAM = "tests.walks.later"
# `later 90m` on a page: all that the program does from then on happens so much later.
LATER = f"""#!{sys.executable} -IS
import os, re, sys
number, unit = re.fullmatch(r"(\\d+)([smhd])", sys.argv[1]).groups()
seconds = int(number) * dict(s=1, m=60, h=3600, d=86400)[unit]
with open(os.environ["WALK_CLOCK"], "r+") as clock:
    later = float(clock.read()) + seconds
    clock.seek(0)
    clock.write(str(later))
"""


def roughly(text: str) -> str:
    """Return a page with money and hours to one place, without how far apart runs were."""
    text = re.sub(
        r"(?s)the last \d+\s+runs\s+were.{1,20}?apart", "the last runs were apart", steady(text)
    )
    text = re.sub(r"(?s)was last\s+charged.{1,20}?ago", "was last charged long ago", text)
    text = re.sub(r"(no ticket of its sandbox came for)\s+[\dhms ]+", r"\1 long", text)
    return re.sub(r"\b\d+\.\d\d\b", lambda found: f"{float(found[0]):.1f}", text)


def monday() -> datetime:
    """Return when stories begin: at eight of a Monday, so that no day or hour differs.

    It is the next one whose week is within one month: budgets of a month begin anew.
    """
    today = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0)
    begin = today + timedelta(days=7 - today.weekday())
    is_split = (begin + timedelta(days=6)).month != begin.month
    return begin + timedelta(days=7 * is_split)


class Walk(Shell):
    """A folder in which a page is played, with the program and a clock of its own."""

    def __init__(self, folder: Path, warm: Warm) -> None:
        super().__init__(folder, warm.command(PROGRAM))
        self._clock = folder / "clock"
        self._clock.write_text(str(monday().timestamp()), encoding="utf-8")
        self.environment["WALK_CLOCK"] = str(self._clock)
        self.environment["TICKETS_AFTER"] = "0"  # commands of a story name its tickets 1, 2, 3
        self.add("later", LATER)
        self.words: dict[str, str] = {}
        """What a page says, and what it is here: addresses of servers that play a part."""

    def add(self, name: str, text: str) -> None:
        """Put a program on PATH."""
        program = self.folder / "bin" / name
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)

    def now(self) -> datetime:
        """Return what time it is in the story; servers that play a part go by it.

        While the program runs, that is when the run ends.
        """
        return datetime.fromtimestamp(float(self._clock.read_text(encoding="utf-8")), UTC)

    def json(self, command: str) -> Any:  # noqa: ANN401 - whatever the command prints
        """Return what a command prints as JSON, whatever its exit code and its notes."""
        printed = self.run(f"{command} 2>{quote(str(self.folder))}/notes")
        return json.JSONDecoder().raw_decode(printed)[0]

    def play(self, page: str, golden: Golden, settle: Callable[[str], str] = steady) -> None:
        """Run every command of a page and compare the page with what they print."""
        path = PAGES / f"{page}.md"
        text = path.read_text(encoding="utf-8")
        there = {here: word for word, here in self.words.items()}
        golden.compare(path, changed(replayed(changed(text, self.words), self), there), settle)
