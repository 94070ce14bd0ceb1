"""The benchmark's page shows what its committed result holds, and a missed point fails a run."""

import json
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import reconcile
from bench.explain import WORLDS
from bench.plan import MIB, MIB_LIMITED, ROWS
from bench.public import main
from bench.public_page import Result, files, missed, page
from bench.reconcile import beside_best
from bench.report import Report
from tests.rigs.process import ROOT

DOCS = ROOT / "docs"


def committed() -> Result:
    result: Result = json.loads((DOCS / "benchmark/result.json").read_text(encoding="utf-8"))
    return result


def a_result(*reports: Report) -> Result:
    return {
        "size": "whole",
        "began": "2026-11-26",
        "machine": "two cores",
        "load": 0.1,
        "versions": {"fleet": "1"},
        "reports": {report.name: report.as_json() for report in reports},
        "absent": {"debusine": "there is no chroot"},
    }


def test_page_and_plots_equal_the_committed_result() -> None:
    written = {
        path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
        for path in (DOCS / "benchmark.md", *sorted((DOCS / "benchmark").glob("*.svg")))
    }

    assert files(committed()) == written


@pytest.mark.parametrize(("value", "holds"), [(0.8, True), (0.81, False), (80.0, False)])
def test_point_is_missed_when_its_ratio_is_above(value: float, *, holds: bool) -> None:
    result = a_result(
        Report("plan", {}, {"10,000 requests, K": value}, {"10,000 requests, K": 0.8})
    )

    assert missed(result) == ([] if holds else ["10,000 requests, K"])
    assert ("**missed**" in page(result, [])) is not holds


def test_unmeasured_figure_is_not_a_missed_point() -> None:
    result = a_result(Report("plan", {"a, MiB": 400.0}, {}, {"a, MiB": 400, "a, K": 0.25}))

    assert missed(result) == []
    assert "there is no chroot" in page(result, [])
    floor = Report("karpenter", {}, {"times faster": 9.9}, floors={"times faster": 10})
    assert [point.holds for point in floor.points()] == [False]


@pytest.mark.parametrize(("most", "code"), [(1.0, 0), (0.9, 1)])
def test_bench_exits_1_when_a_point_is_missed(
    most: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        reconcile, "measure", lambda: Report("reconcile", {}, {"cost": 1.0}, {"cost": most})
    )
    monkeypatch.setattr("sys.argv", ["bench", "reconcile"])

    assert bench.main() == code
    assert ("MISSED" in capsys.readouterr().out) is bool(code)


def test_benchmark_points_equal_the_specified_ones() -> None:
    assert [most for _, *most in ROWS.values()] == [[0.25, 0.3], [0.8, 1.3], [0.75, 2.4]]
    assert (MIB, MIB_LIMITED) == (400, 900)
    assert {size.requests: most for most, size in WORLDS.items()} == {
        140: 1.5,
        2_600: 2,
        10_000: 3,
    }
    assert [*reconcile.TARGETS.values()] == [1.5, 1.0005, 1.01, 1.03, 0]


@pytest.mark.parametrize(
    ("unserved", "cost", "over", "short"),
    [
        ([0, 3], 10.1, 1.01, 0),
        ([1, 0], 9.0, 0.9, 1),
        ([0, 1], 12.0, 1.0, -2),
    ],
)
def test_cost_counts_as_equal_when_more_is_served(
    unserved: list[int], cost: float, over: float, short: int
) -> None:
    best = {"unserved": [0, 3], "cost": 10.0}

    found = beside_best({"unserved": unserved, "cost": cost}, best)

    assert found == {"over_best": pytest.approx(over), "short": short}
    unfinished = beside_best({"limit_s": 300}, {"unserved": [], "cost": 1.0})
    assert unfinished["over_best"] > 2


def test_every_world_with_a_best_known_cost_is_measured() -> None:
    known = json.loads(reconcile.BEST_KNOWN.read_text(encoding="utf-8"))

    assert known.keys() <= {str(size) for size in reconcile.WORLDS}
    assert all(each.keys() >= {"solver", "processor_s", "date"} for each in known.values())


@pytest.mark.slow
@pytest.mark.long
def test_smallest_run_writes_the_page_of_its_result(tmp_path: Path) -> None:
    assert main(["--smallest", "--alone", "--out", str(tmp_path)]) == 0

    result = json.loads((tmp_path / "benchmark/result.json").read_text(encoding="utf-8"))
    assert result["reports"].keys() >= {"plan", "explain", "reconcile"}
    for name, text in files(result).items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text
