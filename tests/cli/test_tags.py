"""`fleet tags explain`: where each tag of a request is from, which do not count, who serves it."""

import json
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet, unwrapped
from tests.rigs.trial import Trial, fleet_yaml

RULES = """\
tags:
  big: {on_demand: true, exclusive: true, asked_by: [rules, {groups: [toolchain]}]}
powerful:
  - {match: "praiskup/ping/.*/chromium", ask: [big], contact: "@chromium", dirs: true}
members: {file: members.yaml}
"""
CHROMIUM = "praiskup/ping/fedora-42-x86_64/chromium"


@pytest.fixture
def ruled(trial: Trial) -> Trial:
    trial.write(fleet_yaml(more=RULES))
    (trial.folder / "members.yaml").write_text("toolchain: [alice]\n", encoding="utf-8")
    return trial


@pytest.mark.usefixtures("ruled")
def test_explain_shows_rule_line_and_pools_of_a_name(run_fleet: RunFleet) -> None:
    explained = run_fleet("tags", "explain", CHROMIUM)

    assert (explained.returncode, explained.stderr) == (0, "")
    granted, pools = unwrapped(explained.stdout).split("\n\n")
    head, tag, rule, place = granted.splitlines()
    assert head.startswith(f"{CHROMIUM}: 1 ")
    assert (tag, place) == ("  + big", "      see fleet.yaml:14:5")
    names = ("'praiskup/ping/.*/chromium'", CHROMIUM, "@chromium")
    assert all(name in rule for name in names)
    _, fits, its_place, lacks, other_place = pools.splitlines()
    assert tells(fits, "  - pool big", "fits")
    assert tells(lacks, "pool builders", "not", "big")
    assert (its_place, other_place) == ("    see fleet.yaml:9:8", "    see fleet.yaml:10:13")


HISTORY = """\
tags: {memory_gib: {kind: number}}
derive:
  - {history: {of: memory, min_runs: 2}, ask: "memory_gib>={value}"}
  - {from: environment_id, lookup: environments, ask: "on:{value.architecture}"}
lookups: {environments: {"5": {architecture: arm64}}}
"""


@pytest.fixture
def told(trial: Trial) -> Trial:
    trial.write(fleet_yaml(more=HISTORY))
    build = {"task": "sbuild", "package": "linux"}
    trial.queue(
        {"id": "7", **build, "task_data": {"environment_id": 5}},
        history=[{**build, "memory_mib": [900, 1500]}],
        environments={"5": {"architecture": "amd64"}},
    )
    return trial


@pytest.mark.usefixtures("told")
def test_tags_explain_shows_figures_of_history_and_lookups(run_fleet: RunFleet) -> None:
    explained = run_fleet("tags", "explain", "--request", "7")

    assert (explained.returncode, explained.stderr) == (0, "")
    lines = explained.stdout.splitlines()
    place = lines.index("  + memory_gib>=2")
    figures = ("95%", "2 ", "sbuild", "linux", "1500 MiB of memory", "20%")
    assert all(figure in lines[place + 1] for figure in figures)
    assert lines[place + 2 : place + 4] == ["      see fleet.yaml:13:5", "  + on:amd64"]
    assert "  + on:arm64" in lines


@pytest.fixture
def at_copr(project: Path) -> Path:
    """Return where a Copr of a fleet has its own rules, not yet written."""
    queue = "{kind: copr, url: https://copr.example.org, rules: {file: copr.conf}}"
    text = fleet_yaml(queue=queue, more=RULES.partition("members")[0])
    (project / "fleet.yaml").write_text(text, encoding="utf-8")
    return project / "copr.conf"


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ("EXTRA_BUILDCHROOT_TAGS = []\n", "it has no effect at work: copr.conf "),
        (None, "fleet cannot see whether work has it: "),
        ("the export", "; work has it now; "),
    ],
    ids=["differs", "cannot-be-seen", "in-force"],
)
def test_tags_explain_shows_if_queue_has_the_rule_of_a_name(
    run_fleet: RunFleet, at_copr: Path, held: str | None, said: str
) -> None:
    if held is not None:
        text = run_fleet("export", "copr").stdout if held == "the export" else held
        at_copr.write_text(text, encoding="utf-8")

    explained = run_fleet("tags", "explain", CHROMIUM)

    assert (explained.returncode, explained.stderr) == (0, "")
    lines = unwrapped(explained.stdout).splitlines()
    (rule,) = [each for each in lines if each.startswith("      rule:")]
    assert said in rule


def test_tags_explain_shows_if_queue_has_newer_rule_of_request(
    run_fleet: RunFleet, at_copr: Path
) -> None:
    at_copr.write_text("EXTRA_BUILDCHROOT_TAGS = []\n", encoding="utf-8")
    owner, project, chroot, package = CHROMIUM.split("/")
    named = {"owner": owner, "project": project, "chroot": chroot, "package": package}
    now = "2026-11-22T12:00:00Z"
    demand = {"read_at": now, "stored": True, "requests": [{"id": "7", **named}]}
    rules: dict[str, object] = {"copr.conf": {"written": [], "others": []}}
    world = {
        "fleet": "trial",
        "time": now,
        "queues": {"work": {"demand": demand, "workers": [], "rules": rules}},
    }
    (at_copr.parent / "world.json").write_text(json.dumps(world), encoding="utf-8")

    explained = run_fleet("tags", "explain", "--request", "7", "--world", "world.json", "--json")

    (tag,) = json.loads(explained.stdout)["tags"]
    assert tag["verdict"] == "not-stored"
    assert "copr.conf" in tag["reasons"][0]["because"]
    assert tells(tag["reasons"][0]["because"], "fleet export copr --patch copr.conf")
