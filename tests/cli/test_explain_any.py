"""`fleet explain NAME` takes a name of any kind, and describes each match."""

import json

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import BIG, Trial, fleet_yaml

RULE = "debian/builds/amd64/(chromium|libreoffice)"
MORE = f"""\
durations: {{any: 1h}}
tags:
  big: {{on_demand: true, exclusive: true, asked_by: [rules], limits: {{per: {{submitter: 1}}}}}}
powerful:
  - {{match: "{RULE}", ask: [big], contact: "@big"}}
"""
ABOUT = {"task": "sbuild", "scope": "debian", "workspace": "builds", "requester": "ada"}


@pytest.fixture
def allowed(trial: Trial) -> Trial:
    """Return a fleet with a rule for chromium, of which two builds of one user wait."""
    trial.write(fleet_yaml(more=MORE))
    trial.wait_for()
    world = json.loads((trial.folder / "world.json").read_text())
    world["queues"]["work"]["demand"]["requests"] = [
        {
            **ABOUT,
            "id": number,
            "package": "chromium",
            "required": ["worker:build-arch:amd64", "big"],
        }
        for number in ("11", "12")
    ]
    (trial.folder / "world.json").write_text(json.dumps(world))
    text = (trial.folder / "fleet.yaml").read_text()
    tags = BIG.replace("[big]", '[big, "worker:build-arch:amd64"]')
    (trial.folder / "fleet.yaml").write_text(text.replace(BIG, tags))
    return trial


@pytest.mark.usefixtures("allowed")
def test_package_is_explained_as_its_requests(run_fleet: RunFleet) -> None:
    explained = run_fleet("explain", "package", "chromium")

    assert explained.stdout.startswith("chromium names 2 objects")
    assert all(f"request work/{each}" in explained.stdout for each in ("11", "12"))


@pytest.mark.usefixtures("allowed")
def test_explanation_joins_claims_that_a_recording_does_not_enforce(run_fleet: RunFleet) -> None:
    shown = " ".join(run_fleet("explain", "request", "11").stdout.split())

    assert shown.count("not enforced") == 1
    assert "big: asked_by, exclusive and limits are not enforced" in shown


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("11", "request"),
        ("work/11", "request"),
        ("builders", "pool"),
        ("trixie", "image"),
        ("big/", ""),
        ("powerful[0]", "rule"),
        (RULE, "rule"),
        ("expires-soon", "rule"),
        ("libreoffice", "rule"),
    ],
)
def test_name_of_any_kind_is_explained(run_fleet: RunFleet, name: str, kind: str) -> None:
    explained = run_fleet("explain", name, "--json")

    if not kind:
        assert (explained.returncode, explained.stdout) == (1, "")
        assert tells(explained.stderr, name, "pools big, builders")
        return
    found = json.loads(explained.stdout)["matches"]
    assert [each["kind"] for each in found] == [kind]


def test_worker_is_explained_by_its_name_alone(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    trial.apply()

    explained = run_fleet("explain", "trial-builders-0001")

    assert tells(explained.stdout.splitlines()[0], "trial-builders-0001")


@pytest.mark.usefixtures("allowed")
def test_every_match_of_a_name_is_described_briefly(run_fleet: RunFleet) -> None:
    packages, both = run_fleet("explain", "chromium"), run_fleet("explain", "big")

    text = packages.stdout
    assert [f"`fleet explain {each}`" in text for each in ("request work/11", "request work/12")]
    assert "`fleet explain rule 'powerful[0]'`" in text
    assert "because:" not in text
    assert "`fleet explain tag big`" in both.stdout
    assert "`fleet explain pool big`" in both.stdout


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("kind", ["pool", "tag"])
def test_kind_selects_one_of_several_matches(run_fleet: RunFleet, kind: str) -> None:
    explained = run_fleet("explain", kind, "big", "--json")

    assert json.loads(explained.stdout)["kind"] == kind


@pytest.mark.usefixtures("allowed")
def test_waiting_is_first_and_a_limit_of_the_team_is_last(run_fleet: RunFleet) -> None:
    first, *others = json.loads(run_fleet("explain", "request", "12", "--json").stdout)[
        "suggestions"
    ]

    assert (first["wait"] is not None, first["changes"], first["lifts_limit"]) == (True, [], False)
    assert [each["lifts_limit"] for each in others] == [True]
    assert [change["path"][-3:] for change in others[0]["changes"]] == [
        ["limits", "per", "submitter"]
    ]
    assert tells(others[0]["sentence"], "last choice")


@pytest.mark.usefixtures("trial")
def test_misspelt_name_is_refused_with_similar_name(run_fleet: RunFleet) -> None:
    failed = run_fleet("explain", "bilders")

    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert tells(failed.stderr, "'builders'?")


@pytest.mark.usefixtures("trial")
def test_name_with_unknown_kind_is_refused_with_kinds(run_fleet: RunFleet) -> None:
    refused = run_fleet("explain", "pol", "builders")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert tells(refused.stderr, "pol", "request", "pool", "worker", "image", "rule", "tag")


@pytest.mark.parametrize(
    ("rule", "matching"), [(RULE, "no rule of"), ("debian/.*/.*/webkit2?gtk", "powerful[0]")]
)
def test_package_that_does_not_wait_can_be_tried(
    allowed: Trial, run_fleet: RunFleet, rule: str, matching: str
) -> None:
    path = allowed.folder / "fleet.yaml"
    path.write_text(path.read_text().replace(RULE, rule))

    explained = run_fleet("explain", "webkitgtk")

    build = "debian/builds/amd64/webkitgtk"
    assert explained.returncode == 1
    assert tells(explained.stderr, "webkitgtk waits", f"`fleet tags explain {build}`", matching)
    assert run_fleet("tags", "explain", build).returncode == 0


@pytest.mark.usefixtures("allowed")
def test_rule_of_a_package_that_does_not_wait_says_so(run_fleet: RunFleet) -> None:
    said = " ".join(run_fleet("explain", "libreoffice").stdout.split())

    assert tells(said, "powerful[0]", "no build of libreoffice waits", "fleet tags explain")
    assert "no build" not in run_fleet("explain", "chromium").stdout
