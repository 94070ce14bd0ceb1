"""`fleet explain`: why a request waits, a pool wants N, a worker stays or goes."""

import json
import re
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import ROOT, RunFleet
from tests.rigs.trial import Trial, fleet_yaml

TEN = tuple(str(number) for number in range(1, 11))
"""Requests for the two pools of a trial, which hold eight workers."""


def builds(trial: Trial, **packages: str) -> None:
    """Have builds of these packages wait, each under an id."""
    trial.wait_for()
    world = json.loads((trial.folder / "world.json").read_text())
    about = {"task": "sbuild", "scope": "debian", "workspace": "builds"}
    world["queues"]["work"]["demand"]["requests"] = [
        {"id": name.removeprefix("n"), "package": package, **about}
        for name, package in packages.items()
    ]
    (trial.folder / "world.json").write_text(json.dumps(world))


def test_explain_names_missing_tags_per_pool_when_none_fits(
    trial: Trial, run_fleet: RunFleet
) -> None:
    world = json.loads((trial.folder / "world.json").read_text())
    world["queues"]["work"]["demand"]["requests"] = [{"id": "7", "required": ["gpu"]}]
    (trial.folder / "world.json").write_text(json.dumps(world))

    explained = run_fleet("explain", "request", "7")

    assert (explained.returncode, explained.stderr) == (0, "")
    lines = explained.stdout.splitlines()
    assert tells(lines[0], "request work/7")
    lacks = next(n for n, line in enumerate(lines) if tells(line, "  - pool big", "gpu"))
    assert lines[lacks + 1].startswith("    see fleet.yaml:")
    assert ": pools.big.provides\n" in explained.stdout
    assert tells(explained.stdout, "  - add gpu", "pools.big.provides")


def test_explain_suggests_build_when_image_is_unpublished(
    run_fleet: RunFleet, project: Path
) -> None:
    case = ROOT / "tests/plans/the-starter-without-a-baked-image-makes-no-machine"
    for name in ("fleet.yaml", "world.json"):
        (project / name).write_bytes((case / name).read_bytes())

    explained = run_fleet("explain", "request", "3", "--world", "world.json")

    assert tells(explained.stdout.splitlines()[-1], "build", "publish", "`fleet image due`")


@pytest.mark.parametrize(
    "reason",
    [
        "image trixie has no published version at provider desk",
        "mirror down; arm has no published version at provider desk either",
    ],
)
def test_explain_offers_no_build_when_a_freeze_quotes_it(
    trial: Trial, run_fleet: RunFleet, reason: str
) -> None:
    trial.wait_for("1")
    run_fleet("freeze", "--for", "2h", "--reason", reason)

    explained = run_fleet("explain", "request", "1")
    doctor = run_fleet("doctor")

    assert tells(explained.stdout, reason)
    assert "fleet image due" not in explained.stdout
    assert "bake-an-image" not in doctor.stdout


def test_no_change_is_suggested_that_validate_refuses(trial: Trial, run_fleet: RunFleet) -> None:
    warm = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 3, spare: 1}}"
    cold = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 3}}"
    world = json.loads((trial.folder / "world.json").read_text())
    world["queues"]["work"]["demand"]["requests"] = [{"id": "7", "required": ["gpu"]}]
    (trial.folder / "world.json").write_text(json.dumps(world))
    suggested = []
    for pools in ({"warm": warm}, {"cold": cold, "warm": warm}):
        trial.write(fleet_yaml(pools=pools, more="tags: {gpu: {on_demand: true}}\n"))
        explained = json.loads(run_fleet("explain", "request", "7", "--json").stdout)
        changes = [each for one in explained["suggestions"] for each in one["changes"]]
        suggested.append([each["path"] for each in changes])

    assert suggested == [[], [["pools", "cold", "provides"]]]


def test_explain_suggests_approval_for_refused_fitting_pool(
    run_fleet: RunFleet, project: Path
) -> None:
    case = ROOT / "tests/plans/what-a-rival-provisioner-would-make-too-is-not-bought"
    text = (case / "fleet.yaml").read_text(encoding="utf-8")
    other = (
        "  other: {provider: h, machine: ccx33, image: i, provides: [gpu], workers: {max: 5}}\n"
    )
    (project / "fleet.yaml").write_text(text + other, encoding="utf-8")
    world = json.loads((case / "world.json").read_text(encoding="utf-8"))
    requests = world["queues"]["q"]["demand"]["requests"]
    requests += [requests[0] | {"id": str(n), "required": ["gpu"]} for n in range(100, 103)]
    (project / "world.json").write_text(json.dumps(world), encoding="utf-8")

    explained = run_fleet("explain", "request", "100", "--world", "world.json")

    approvals = re.findall(r"{guard: rival, pool: (\w+)", " ".join(explained.stdout.split()))
    assert approvals == ["other"]


def test_explain_shows_smallest_change_with_place_and_text(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for(*TEN)

    explained = run_fleet("explain", "request", "9")

    assert (explained.returncode, explained.stderr) == (0, "")
    assert "raise pools.builders.workers.max from 4 to 5\n" in explained.stdout
    _, written = explained.stdout.split("      pools: {builders: {workers: {max: 5}}}\n")
    assert re.match(r"    .*`pools`.* fleet\.yaml:\d+", written)
    assert tells(explained.stdout, "fleet.yaml:", "capacity")
    assert "  - expected start: " in explained.stdout


@pytest.mark.slow
def test_explain_estimates_start_from_assumed_durations(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for(*TEN)
    trial.apply()

    explained = run_fleet("explain", "request", "9")
    answer = json.loads(run_fleet("explain", "request", "9", "--json").stdout)

    expected = next(fact for fact in answer["facts"] if fact.startswith("expected start: "))
    assert tells(expected, "(in 1h", "assumed: 1h")
    assert answer["expected"] is None
    assert f"{answer['assumed'][:10]} {answer['assumed'][11:16]} UTC" in expected
    assert re.search(r": \d (starting|idle)\b", explained.stdout)
    assert "expected start: unknown" not in run_fleet("explain", "request", "--all").stdout


def test_explain_promises_no_machine_in_full_pool(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for(*TEN)

    waits = json.loads(run_fleet("explain", "request", "9", "--json").stdout)["places"]
    served = json.loads(run_fleet("explain", "request", "8", "--json").stdout)["places"]

    assert [each["pool"] for each in waits] == [each["pool"] for each in served] != []
    assert [each for each in waits if each["is_chosen"]] == []
    assert len([each for each in served if each["is_chosen"]]) == 1


@pytest.mark.slow
def test_status_pages_and_explain_suggest_same_change(trial: Trial, run_fleet: RunFleet) -> None:
    one = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 1}}"
    trial.write(fleet_yaml(pools=dict.fromkeys(("a", "b", "c", "d"), one)))
    trial.wait_for("1", "2", "3", "4", "5")

    explained = json.loads(run_fleet("explain", "request", "5", "--json").stdout)
    run_fleet("status", "--site", "site")
    page = (trial.folder / "site/-/status/requests/work%2F5/index.html").read_text()

    sentences = [each["sentence"] for each in explained["suggestions"]]
    assert len(sentences) == 4
    assert [sentence for sentence in sentences if sentence not in page] == []


def test_explain_all_groups_waiting_requests(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for(*TEN)

    explained = run_fleet("explain", "request", "--all")

    assert (explained.returncode, explained.stderr) == (0, "")
    assert tells(explained.stdout.splitlines()[0], "10", "fleet trial")
    assert tells(explained.stdout, "new machines", "work/1", "work/2", "work/3", "5 more")
    assert ": work/9, work/10\n" in explained.stdout


def test_explain_all_as_json_has_one_object_per_request(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for(*TEN)

    explained = run_fleet("explain", "request", "--all", "--json")

    answers = json.loads(explained.stdout)["requests"]
    assert [answer["name"] for answer in answers] == [f"work/{name}" for name in TEN]
    assert [answer["like"] for answer in answers[8:]] == ["", "work/9"]
    (change,) = answers[8]["suggestions"][0]["changes"]
    assert change["path"] == ["pools", "big", "workers", "max"]
    assert (change["old"], change["new"]) == ("4", "5")


@pytest.mark.parametrize("words", [("request",), ("pool", "--all"), ("request", "1", "--all")])
def test_explain_is_refused_without_name_or_with_several(
    trial: Trial, run_fleet: RunFleet, words: tuple[str, ...]
) -> None:
    trial.wait_for()

    refused = run_fleet("explain", *words)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "`request --all`" in refused.stderr


@pytest.mark.usefixtures("trial")
def test_explain_without_kind_lists_kinds(run_fleet: RunFleet) -> None:
    refused = run_fleet("explain")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert tells(refused.stderr.splitlines()[-1], "request", "pool", "worker")


def test_explain_names_machine_of_served_request(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")

    explained = run_fleet("explain", "request", "work/1")

    assert explained.returncode == 0
    assert "trial-builders-0001" in explained.stdout


def test_explain_pool_shows_machines_and_waiting_requests(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for("1", "2")

    explained = run_fleet("explain", "pool", "builders")

    assert explained.returncode == 0
    assert tells(explained.stdout, "pool builders", "2 machines", "max 4", "2 waiting")


def test_worker_is_explained_by_its_decision(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()
    trial.age(minutes=1)
    trial.cloud.assign("trial-builders-0001", "1")

    explained = run_fleet("explain", "worker", "trial-builders-0001")

    assert explained.returncode == 0
    assert "busy" in explained.stdout
    assert "runs request 1" in explained.stdout


def test_explanation_has_same_content_as_json(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")

    explained = run_fleet("explain", "pool", "builders", "--json")

    explanation = json.loads(explained.stdout)
    assert (explanation["kind"], explanation["name"]) == ("pool", "builders")


@pytest.mark.parametrize("name", ["gcc-15", "debian/builds/any/gcc-15"])
def test_request_is_found_by_its_package(trial: Trial, run_fleet: RunFleet, name: str) -> None:
    builds(trial, n1="linux", n2="gcc-15")

    explained = run_fleet("explain", "request", name)

    assert (explained.returncode, explained.stderr) == (0, "")
    assert tells(explained.stdout, "request work/2", "trial-builders-0002")


def test_each_request_of_a_package_is_described_briefly(trial: Trial, run_fleet: RunFleet) -> None:
    builds(trial, **{f"n{n}": "linux" for n in range(1, 12)})

    explained = run_fleet("explain", "request", "linux")

    assert (explained.returncode, explained.stderr) == (0, "")
    assert "and 3 more: `fleet explain request --all`" in explained.stdout
    assert explained.stdout.count("`fleet explain request work/") == 8


def test_request_id_precedes_package_of_equal_name(trial: Trial, run_fleet: RunFleet) -> None:
    builds(trial, n1="2", n2="linux")

    assert run_fleet("explain", "request", "2").stdout.startswith("request work/2 ")


def test_list_of_requests_has_known_packages(trial: Trial, run_fleet: RunFleet) -> None:
    builds(trial, n1="linux", n2="gcc-15")

    run_fleet("status", "--site", "site")
    listed = (trial.folder / "site/-/status/requests/index.html").read_text()
    trial.wait_for("1")
    run_fleet("status", "--site", "site")
    without = (trial.folder / "site/-/status/requests/index.html").read_text()

    assert ">gcc-15 work/2</a>" in listed
    assert ">work/1</a>" in without


@pytest.mark.parametrize(
    ("kind", "known"),
    [("request", "work/1, work/2"), ("pool", "big, builders"), ("worker", "trial-builders-0001")],
)
def test_unknown_name_is_refused_with_known_names(
    trial: Trial, run_fleet: RunFleet, kind: str, known: str
) -> None:
    trial.wait_for("1")
    trial.apply()
    trial.wait_for("1", "2")

    failed = run_fleet("explain", kind, "nope")

    assert (failed.returncode, failed.stdout) == (1, "")
    assert tells(failed.stderr, "fleet: error", f"{kind} nope")
    assert f"; known: {known}" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_explain_suggests_observe_when_recording_lacks_machines(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for("1")

    explained = run_fleet("explain", "request", "1", "--world", "world.json", "--json")
    unknown = run_fleet("explain", "request", "99", "--world", "world.json")

    answer = json.loads(explained.stdout)
    because = answer["reasons"][0]["because"]
    (start,) = [fact for fact in answer["facts"] if fact.startswith("expected start: unknown")]
    assert not tells(start, "no worker")
    assert tells(because, "provider desk", "recording world.json", "`fleet observe --out FILE`")
    assert unknown.returncode == 1
    assert tells(unknown.stderr, "99", "work/1")


def test_queue_missing_in_recording_is_unknown(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    seen = trial.folder / "world.json"
    seen.write_text(json.dumps(json.loads(seen.read_text()) | {"queues": {}}))

    planned = run_fleet("plan", "--world", "world.json", "--json")
    failed = run_fleet("explain", "request", "1", "--world", "world.json")

    plan = json.loads(planned.stdout)
    assert (planned.returncode, plan["unread"]) == (1, ["work"])
    assert failed.returncode == 1
    assert tells(failed.stderr, "1", "queue work", "world.json")


def test_explain_names_unread_queue_when_request_is_unknown(
    trial: Trial, run_fleet: RunFleet
) -> None:
    (trial.folder / "world.json").unlink()

    failed = run_fleet("explain", "request", "99")

    assert failed.returncode == 1
    assert tells(failed.stderr, "99", "queue work", "world.json")


@pytest.mark.usefixtures("trial")
def test_explain_reports_when_no_object_of_kind_exists(run_fleet: RunFleet) -> None:
    failed = run_fleet("explain", "worker", "nope")

    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert tells(failed.stderr, "fleet: error: ", "worker nope")


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("pool", "bilders", "'builders'? known: big, builders"),
        (
            "worker",
            "trial-bilders-0001",
            "'trial-builders-0001'? known: trial-b",
        ),
        ("request", "work/9", "; known: work/1"),
    ],
)
def test_explain_suggests_nearest_name_of_pool_or_worker(
    trial: Trial, run_fleet: RunFleet, kind: str, name: str, meant: str
) -> None:
    trial.wait_for("1")
    trial.apply()
    trial.wait_for("1", "2")

    failed = run_fleet("explain", kind, name)

    assert failed.returncode == 1
    assert meant in failed.stderr


def test_control_characters_in_machine_name_are_escaped(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()
    cloud = trial.folder / ".fleet/sim-desk.json"
    hostile = json.dumps("evil\n\x1b[2J")[1:-1]
    cloud.write_text(cloud.read_text().replace('"name": "trial-', f'"name": "{hostile}'))

    refused = run_fleet("explain", "worker", "nobody")

    assert "evil\\n\\x1b[2J" in refused.stderr
    assert "\x1b" not in refused.stderr
