"""The benchmark's page says what its committed result says, and calls a missed point missed."""

import json
from copy import deepcopy
from pathlib import Path

import pytest

from bench.public import main
from bench.public_page import Result, files, page, points, verdict
from tests.rigs.process import ROOT

DOCS = ROOT / "docs"
QUICK = 0.001


def committed() -> Result:
    result: Result = json.loads((DOCS / "benchmark/result.json").read_text(encoding="utf-8"))
    return result


def verdicts(result: Result) -> dict[str, str]:
    return {point.name: verdict(point) for point in points(result)}


def a_result(**changed: object) -> Result:
    decision = {
        "requests": 1_000,
        "signatures": 30,
        "pools": 40,
        "workers": 9,
        "seed": 7,
        "limited": False,
        "seconds": 0.1,
        "worked_s": 0.1,
        "peak_mib": 90.0,
        "machines": 7,
        "lost": 0,
        "may_lack": 0,
        "over_bound": 1.0,
    }
    side = {"seconds": QUICK, "hourly": 5.0, "peak_mib": 90.0, "machines": 7}
    pods = {"requests": 20_000, "alone": False, "ours": side, "theirs": side | {"seconds": 1.0}}
    limited = decision | {"limited": True}
    result: Result = {
        "size": "whole",
        "began": "2026-11-26",
        "machine": "two cores",
        "load": 0.1,
        "versions": {"fleet": "1"},
        "decisions": [decision, decision | {"requests": 10_000}, limited],
        "command": {
            kind: {"whole_s": 4.0, "worked_s": 3.0, "peak_mib": 600.0}
            for kind in ("unlimited", "limited")
        },
        "karpenter": [pods, pods | {"alone": True}],
        "others": {
            "debusine": {"vs_create_new_workers": 30.0},
            "tickets": {"vs_resalloc_pass": 300.0},
        },
        "absent": {},
    }
    return result | changed


def test_the_page_and_its_plots_are_made_of_the_committed_result() -> None:
    written = {
        path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
        for path in (DOCS / "benchmark.md", *sorted((DOCS / "benchmark").glob("*.svg")))
    }

    assert files(committed()) == written


def test_every_point_can_hold() -> None:
    assert set(verdicts(a_result()).values()) == {"holds"}


def test_a_point_that_is_not_reached_is_called_missed() -> None:
    slow = deepcopy(a_result())
    slow["command"]["unlimited"]["whole_s"] = 5.1
    slow["command"]["limited"] = {"limit_s": 60}
    slow["decisions"][1]["worked_s"] = 0.16
    slow["decisions"][2] |= {"over_bound": 1.021, "lost": 1}
    slow["karpenter"][1]["ours"] |= {"hourly": 5.1}
    slow["others"] = {
        "debusine": {"vs_create_new_workers": 19.9},
        "tickets": {"vs_resalloc_pass": 99.0},
    }

    told = verdicts(slow)

    assert set(told.values()) == {"**missed**"}
    assert page(slow, []).count("**missed**") == len(told)


def test_what_did_not_end_is_missed_whatever_the_rest_says() -> None:
    late = a_result()
    late["decisions"][2] = {
        key: value
        for key, value in late["decisions"][2].items()
        if key not in {"seconds", "over_bound", "lost", "may_lack"}
    } | {"limit_s": 60, "signatures": 9_000}
    late["karpenter"][0]["ours"] = {"limit_s": 60}

    told = verdicts(late)

    assert (told["ranks"], told["karpenter"]) == ("**missed**", "**missed**")


def test_what_is_not_measured_gets_no_verdict() -> None:
    absent = a_result(karpenter=[], others={}, absent={"karpenter": "there is no go"})

    told = verdicts(absent)

    assert {told[name] for name in ("karpenter", "create_new_workers", "resalloc_pass")} == {
        "no verdict"
    }
    assert "there is no go" in page(absent, [])


def test_a_quick_run_says_nothing_about_larger_sizes() -> None:
    told = verdicts(a_result(size="quick"))

    assert {name for name, word in told.items() if word != "no verdict"} <= {
        "bound-small",
        "ranks",
    }


@pytest.mark.slow
def test_the_smallest_run_writes_the_page_that_its_result_says(tmp_path: Path) -> None:
    assert main(["--smallest", "--alone", "--out", str(tmp_path)]) == 0

    result = json.loads((tmp_path / "benchmark/result.json").read_text(encoding="utf-8"))
    assert result["command"].keys() == {"unlimited", "limited"}
    for name, text in files(result).items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text
