"""Each amount of money of a fleet.yaml needs a known currency."""

import re

import pytest

from fleet.apply.config import check_file
from tests.checks.test_rules import TODAY
from tests.fakes.files import FakeFiles
from tests.rigs.process import ROOT

WHOLE = (ROOT / "tests/fixtures/whole.yaml").read_text(encoding="utf-8")
AMOUNTS = [(each.start(), each[0]) for each in re.finditer(r"\d+ EUR(/h)?", WHOLE)]


@pytest.mark.parametrize(("at", "amount"), AMOUNTS)
def test_amount_is_reported_when_its_currency_has_no_rate(at: int, amount: str) -> None:
    foreign = amount.replace("EUR", "XTS")
    text = WHOLE[:at] + foreign + WHOLE[at + len(amount) :]

    checked = check_file("fleet.yaml", TODAY, FakeFiles({"fleet.yaml": text}))

    found = [each for each in checked.findings if each.rule == "unknown-currency"]
    assert len(found) == 1
    assert found[0].span is not None
    assert found[0].span.line == WHOLE[:at].count("\n") + 1


def test_example_has_every_kind_of_amount() -> None:
    assert len(AMOUNTS) == 6
