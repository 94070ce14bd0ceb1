"""Each reason has its section on the page that explains reasons."""

import re
from pathlib import Path

from fleet.model.plan import Reason

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reasons.md"


def _sections() -> dict[str, str]:
    _, *parts = re.split(r"^### ", _PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part.splitlines()[0]: part for part in parts}


def test_each_reason_has_one_section_in_the_order_of_the_code() -> None:
    assert list(_sections()) == [reason.value for reason in Reason]


def test_each_section_has_meaning_and_effect() -> None:
    form = re.compile(r"\S+\n\n\S.*\n- After: \S", re.DOTALL)

    incomplete = [name for name, text in _sections().items() if not form.match(text)]

    assert incomplete == []
