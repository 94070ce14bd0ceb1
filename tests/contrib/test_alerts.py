"""Alerts, their runbook and the dashboard rest on metrics that fleet exports."""

import json
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fleet.program import VERBS, build_parser
from tests.rigs.process import ROOT

FOLDER = ROOT / "contrib/prometheus"
RUNBOOK = ROOT / "docs/how-to/runbook"
PAGE = ROOT / "docs/how-to/monitor-with-prometheus.md"
DASHBOARD = ROOT / "contrib/grafana/fleet.json"
GOLDEN = ROOT / "tests/report/golden/metrics.txt"

RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "fleet.rules.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]


def exported() -> set[str]:
    """Return the names of all metrics."""
    return set(re.findall(r"^# TYPE (\w+)", GOLDEN.read_text("utf-8"), re.MULTILINE))


def named(text: str) -> set[str]:
    """Return the metrics of fleet that a query names."""
    return set(re.findall(r"\bfleet_\w+", text))


def queries() -> Iterator[str]:
    """Yield every query of the dashboard."""
    board = json.loads(DASHBOARD.read_text("utf-8"))
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for annotation in board["annotations"]["list"]:
        yield annotation["expr"]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_alert_uses_exported_metrics_and_names_its_page(rule: dict[str, Any]) -> None:
    page = ROOT / rule["annotations"]["runbook_url"]
    text = page.read_text("utf-8")

    assert named(rule["expr"]) <= exported()
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert text.startswith(f"# {rule['alert']}\n")
    assert all(part in text for part in ("**What it means.**", "**See more.**", "**What to do.**"))
    for listed in (RUNBOOK / "index.md", PAGE):
        assert f"[{rule['alert']}](" in listed.read_text("utf-8")


def test_runbook_page_named_like_an_alert_has_one() -> None:
    titles = [page.read_text("utf-8").splitlines()[0] for page in RUNBOOK.glob("*.md")]

    assert {title[2:] for title in titles if title.startswith("# Fleet")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_is_tested_to_fire_and_to_stay_silent(name: str) -> None:
    """What promtool makes of these cases, tests/contrib/test_prometheus.py asks."""
    tests = yaml.safe_load((FOLDER / "fleet.rules.test.yml").read_text("utf-8"))["tests"]

    cases = [c for test in tests for c in test["alert_rule_test"] if c["alertname"] == name]

    assert {bool(case.get("exp_alerts")) for case in cases} == {True, False}


def test_metrics_page_has_every_metric() -> None:
    """Of three alike it names the first and the endings of all."""
    assert named(PAGE.read_text("utf-8")) == exported()


def test_dashboard_queries_exported_metrics_of_each_kind() -> None:
    asked = set().union(*map(named, queries()))

    assert asked <= exported()
    assert exported() - asked <= {
        *("fleet_cadence_seconds", "fleet_plan_timestamp_seconds"),
        *("fleet_queue_partly_read", "fleet_budget_reserved", "fleet_guard_withheld_actions"),
    }


def test_dashboard_can_be_imported_by_grafana() -> None:
    """Its structure; Grafana has no schema of it that could be had as a package."""
    board = json.loads(DASHBOARD.read_text("utf-8"))
    panels = board["panels"]
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    variables = {each["name"] for each in board["templating"]["list"]}

    assert {"title", "uid"} <= board.keys()
    assert board["schemaVersion"] >= 36
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
    assert {panel["type"] for panel in panels} <= {"stat", "timeseries"}
    for each in (*panels, *(t for p in panels for t in p["targets"])):
        assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    used = set().union(*(re.findall(r"\$\{?(\w+)", json.dumps(panel)) for panel in panels))
    assert used <= variables


TYPED = re.compile(r"^    (fleet .*)$|`(fleet [a-z][^`]*)`", re.MULTILINE)
COMMANDS = sorted(
    {
        command
        for page in RUNBOOK.glob("*.md")
        for found in TYPED.findall(page.read_text("utf-8"))
        for command in found
        if command
    }
)


@pytest.fixture(scope="module")
def parser() -> ArgumentParser:
    return build_parser()


@pytest.mark.parametrize("command", COMMANDS)
def test_runbook_commands_are_valid(parser: ArgumentParser, command: str) -> None:
    _, verb, *rest = shlex.split(command)

    # A word alone names the command; with more it is to be typed as it stands.
    if rest:
        parser.parse_args([verb, *rest])
    else:
        assert verb in VERBS
