"""Exit codes: every one of them is produced here, and told in one place."""

import re

from fleet.program import EXIT_CODES
from tests.rigs.process import ROOT

PAGE = ROOT / "docs/reference/exit-codes.md"


def test_page_and_help_list_equal_exit_codes() -> None:
    in_help = re.findall(r"^  (\d+) ", EXIT_CODES, re.MULTILINE)
    on_page = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert in_help == on_page == ["0", "1", "2", "3", "4", "5", "130"]
