"""A rule of the allow-list may be for one task: it touches no other task of the same package."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import a_request, a_sim_world
from tests.rigs.process import RunFleet

CHROMIUM = "debian/base/amd64/chromium"
FLEET: dict[str, Any] = {
    "fleet": "demo",
    "providers": {"desk": {"kind": "sim", "boot": "40s"}},
    "queues": {"debian": {"kind": "world", "path": "world.json"}},
    "durations": {"sbuild": "20h", "autopkgtest": "15m"},
    "images": {
        "trixie": {
            "existing": {"desk": "trixie-1"},
            "architecture": "amd64",
            "provides": ["worker:cap:sbuild", "worker:cap:autopkgtest"],
        }
    },
    "pools": {
        "builders": {
            "provider": "desk",
            "machine": "ccx33",
            "image": "trixie",
            "workers": {"max": 4},
        },
        "powerful": {
            "provider": "desk",
            "machine": "ccx63",
            "image": "trixie",
            "provides": ["big"],
            "workers": {"max": 4},
        },
    },
    "tags": {
        "big": {
            "on_demand": True,
            "exclusive": True,
            "asked_by": ["rules"],
            "limits": {"per": {"submitter": 1}},
        }
    },
}
SERVER = {"kind": "debusine", "url": "https://debusine.example", "scopes": ["debian"]}
COPR = {"kind": "copr", "url": "https://copr.example"}
RULE = {"match": "debian/.*/amd64/chromium", "ask": ["big"], "task": "sbuild"}


def rule(**more: object) -> dict[str, object]:
    return {key: value for key, value in (RULE | more).items() if value is not None}


def write(
    project: Path, *rules: dict[str, object], name: str = "fleet.yaml", **more: object
) -> None:
    text = yaml.safe_dump(FLEET | more | {"powerful": list(rules)}, sort_keys=False)
    (project / name).write_text(text, encoding="utf-8")


def record(project: Path, /, *tasks: str, **more: object) -> None:
    waiting = [
        a_request(
            **{
                "id": str(number),
                "task": task,
                "package": "chromium",
                "scope": "debian",
                "workspace": "base",
                "requester": "dan",
                "required": ("worker:build-arch:amd64", f"worker:cap:{task}"),
            }
            | more
        )
        for number, task in enumerate(tasks, 1)
    ]
    world = a_sim_world(requests=tuple(waiting), fleet="demo")
    (project / "world.json").write_text(world.model_dump_json(), encoding="utf-8")


def told(run_fleet: RunFleet, *words: str) -> dict[str, Any]:
    """Return what a command tells of the recording."""
    ran = run_fleet(*words, "--world", "world.json", "--json")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def asked(run_fleet: RunFleet) -> dict[str, set[str]]:
    """Return which of two tags the plan requires of the first request of each kind."""
    signatures = told(run_fleet, "plan")["signatures"]
    return {each["requests"][0]: {"big", "other"} & {*each["required"]} for each in signatures}


@pytest.mark.parametrize(
    ("arguments", "granted", "others"),
    [
        ((CHROMIUM,), ["big"], []),
        ((CHROMIUM, "--task", "sbuild"), ["big"], []),
        ((CHROMIUM, "--task", "autopkgtest"), [], [["powerful", 0]]),
        (("--request", "1"), [], [["powerful", 0]]),
        (("--request", "2"), ["big"], []),
    ],
)
def test_explained_tags_are_those_of_the_task(
    run_fleet: RunFleet,
    project: Path,
    arguments: tuple[str, ...],
    granted: list[str],
    others: list[object],
) -> None:
    write(project, rule(), queues=FLEET["queues"] | {"server": SERVER})
    record(project, "autopkgtest", "sbuild")

    said = told(run_fleet, "tags", "explain", *arguments)

    assert [each["tag"] for each in said["tags"] if each["tag"] == "big"] == granted
    assert [each["path"] for each in said.get("other_tasks", [])] == others


def findings(run_fleet: RunFleet) -> set[tuple[str, str]]:
    found = told(run_fleet, "validate")["findings"]
    return {(each["rule"], ".".join(map(str, each["path"]))) for each in found}


def test_validate_counts_only_names_of_the_task(run_fleet: RunFleet, project: Path) -> None:
    write(project, rule(at_most=0), rule(task="autopkgtest", at_most=0))
    record(project, "sbuild")

    assert {path for rule, path in findings(run_fleet) if rule == "pattern-matches-much"} == {
        "powerful.0.match"
    }


def change(run_fleet: RunFleet) -> dict[str, Any]:
    found: dict[str, Any] = told(run_fleet, "plan", "--base", "base.yaml")["change"]
    return found


@pytest.mark.parametrize("recorded", [("autopkgtest", "sbuild"), ("sbuild",)])
def test_rule_that_loses_its_task_is_a_sensitive_edit(
    run_fleet: RunFleet, project: Path, recorded: tuple[str, ...]
) -> None:
    write(project, rule(), name="base.yaml")
    write(project, rule(task=None))
    record(project, *recorded)

    found = change(run_fleet)

    (edit,) = found["sensitive"]
    assert (edit["kind"], edit["count"]) == ("pattern-matches-more", recorded.count("autopkgtest"))
    assert "sbuild" in edit["before"]
    assert "sbuild" not in edit["after"]
    assert found["allow_list"][0]["task_before"] == "sbuild"


def test_rule_that_gains_a_task_is_not_a_sensitive_edit(
    run_fleet: RunFleet, project: Path
) -> None:
    write(project, rule(task=None), name="base.yaml")
    write(project, rule())
    record(project, "autopkgtest", "sbuild")

    assert change(run_fleet)["sensitive"] == []


@pytest.mark.parametrize(
    ("task", "exported"), [(None, 1), ("build", 1), ("source", 0), ("sbuild", 0)]
)
def test_copr_gets_only_rules_for_builds(
    run_fleet: RunFleet, project: Path, task: str | None, exported: int
) -> None:
    write(project, rule(match="a/b/f43/c", task=task, matches=["a/b/f43/c"]), queues={"c": COPR})

    ran = run_fleet("export", "copr")

    assert ran.returncode == 0
    assert ran.stdout.count('"pattern"') == exported
    assert ("left out" in ran.stdout) == (not exported)


def test_copr_without_rule_for_source_builds_has_no_difference(
    run_fleet: RunFleet, project: Path
) -> None:
    (project / "copr.conf").write_text("EXTRA_BUILDCHROOT_TAGS = []\n", encoding="utf-8")
    queue = COPR | {"rules": {"file": "copr.conf"}}
    write(project, rule(match="a/b/f43/c", task="source"), queues={"c": queue})

    ran = run_fleet("tags", "explain", "a/b/f43/c", "--task", "source", "--json")

    (tag,) = [each for each in json.loads(ran.stdout)["tags"] if each["tag"] == "big"]
    assert "cannot express it" in tag["reasons"][0]["because"]


@pytest.mark.parametrize(("task", "asked"), [("build", [True, False]), ("source", [False, True])])
def test_ticket_gets_the_tags_of_its_task(
    run_fleet: RunFleet, project: Path, task: str, asked: list[bool]
) -> None:
    write(project, rule(match="a/b/.*/c", task=task), queues={"desk": {"kind": "tickets"}})
    run_fleet("state", "init")

    for number, chroot in enumerate(("fedora-43-x86_64", "srpm-builds"), 1):
        opened = run_fleet(
            *("ticket", "open", "--tag", "worker:build-arch:amd64"),
            *("--build", f"a/b/{chroot}/c", "--user", f"user{number}"),
        )
        assert opened.returncode == 0, opened.stderr
    plan = json.loads(run_fleet("plan", "--json").stdout)

    found = {s["requests"][0]: "big" in s["required"] for s in plan["signatures"]}
    assert [found[ticket] for ticket in sorted(found)] == asked


def test_place_opened_by_a_rule_names_task_of_the_rule(run_fleet: RunFleet, project: Path) -> None:
    write(project)
    record(project, "autopkgtest", "sbuild")

    for number, task in (("1", "autopkgtest"), ("2", "sbuild")):
        places = told(run_fleet, "explain", "request", number)["places"]
        (rule_written,) = {each["rule"] for each in places if each["asks"]}
        assert f"task: {task}" in rule_written
