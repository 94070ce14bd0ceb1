"""Numbers beyond their range in fleet.yaml: one error each, which states the range."""

from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import fleet_yaml


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ("guards: {refuse: {delete: {count: 99999999999999999999}}}", "100000"),
        ("guards: {refuse: {delete: {count: 1.0e20}}}", "100000"),
        (f"guards: {{refuse: {{delete: {{count: {'9' * 90}}}}}}}", "100000"),
        ("guards: {refuse: {delete: {count: -99999999999999999999}}}", "0"),
        ("cadence: 999999999d", "9999999"),
        (f"cadence: {'9' * 5000}d", "9999999"),
        ("history: {keep: 99999999d}", "9999999"),
        ("money: {exchange: {USD: {rate: 99999999999999999999, as_of: 2026-11-01}}}", "1e+06"),
        ("guards: {refuse: {delete: {share: 10000000000%}}}", "9999"),
        ("guards: {refuse: {cost_increase: 9999999999 EUR/h}}", "999999999"),
    ],
)
def test_number_beyond_range_is_one_error_with_the_range(
    run_fleet: RunFleet, project: Path, more: str, limit: str
) -> None:
    (project / "fleet.yaml").write_text(fleet_yaml(more=more))

    ran = run_fleet("validate")

    assert ran.returncode == 1
    assert ran.stdout.count(": error[") == 1
    source = ran.stdout.splitlines().index("   |")
    assert tells(" ".join("".join(ran.stdout.splitlines()[:source]).split()), limit)


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf", "1.0e999"])
def test_number_that_is_not_finite_is_one_error(
    run_fleet: RunFleet, project: Path, number: str
) -> None:
    more = f"guards: {{refuse: {{delete: {{count: {number}}}}}}}"
    (project / "fleet.yaml").write_text(fleet_yaml(more=more))

    ran = run_fleet("validate")

    assert ran.returncode == 1
    assert ran.stdout.count(": error[") == 1


def test_quoted_huge_number_is_offered_without_quotes(run_fleet: RunFleet, project: Path) -> None:
    more = "guards: {refuse: {delete: {count: '99999999999999999999'}}}"
    (project / "fleet.yaml").write_text(fleet_yaml(more=more))

    ran = run_fleet("validate")

    assert tells(ran.stdout, "write 99999999999999999999 without quotes")
