"""`fleet doctor` asks GitLab who gets the variables of fleet, and repeats none of their values."""

import json
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.fakes.gitlab import MAINTAINERS, VALUE, FakeGitlab, a_variable
from tests.rigs.loopback import Answer, html
from tests.rigs.process import Completed, RunFleet

NAMED = """\
fleet: ci
state: {backend: file, passphrase: {env: FLEET_PASSPHRASE}}
providers:
  cloud: {kind: hcloud, location: fsn1, token: {env: HCLOUD_TOKEN}}
queues:
  debian:
    kind: debusine
    url: 'http://127.0.0.1:9'
    scopes: [debian]
    token: {command: [vault, read], environment: [VAULT_TOKEN]}
"""
NAMES = ("FLEET_PASSPHRASE", "HCLOUD_TOKEN", "VAULT_TOKEN")


@pytest.fixture
def folder(project: Path) -> Path:
    (project / "fleet.yaml").write_text(NAMED)
    return project


def results(said: Completed) -> dict[str, str]:
    """Return what was found of GitLab, by what it is about."""
    found = json.loads(said.stdout)["findings"]
    begin = "GitLab, "
    return {
        f["about"].removeprefix(begin): f["result"] for f in found if f["about"].startswith(begin)
    }


@pytest.mark.usefixtures("folder")
def test_doctor_accepts_protected_scoped_masked_variables(run_fleet: RunFleet) -> None:
    variables = [*map(a_variable, NAMES), a_variable("HCLOUD_TOKEN", scope="fleet")]
    settings = {
        "ci_config_path": "fleet.gitlab-ci.yml@debian/ci",
        "protect_merge_request_pipelines": False,
    }
    with FakeGitlab(variables=variables, settings=settings) as gitlab:
        said = run_fleet("doctor", "--json", env=gitlab.doctors_environment)

    assert results(said) == {
        **{f"variable {name}": "ok" for name in NAMES},
        "default branch": "ok",
        "merge requests": "ok",
        "configuration": "ok",
    }


@pytest.mark.usefixtures("folder")
def test_doctor_reports_exposed_ci_variables_of_fleet_only(
    run_fleet: RunFleet,
) -> None:
    variables = [
        a_variable("FLEET_PASSPHRASE", protected=False),
        a_variable("HCLOUD_TOKEN", scope="*"),
        a_variable("VAULT_TOKEN", masked=False, scope="plan\x1b[2J"),
        a_variable("DEPLOY_DOCS", protected=False, scope="*"),
    ]
    with FakeGitlab(variables=variables) as gitlab:
        as_text = run_fleet("doctor", env=gitlab.doctors_environment)
        as_json = run_fleet("doctor", "--json", env=gitlab.doctors_environment)

    assert as_json.returncode == 1
    found = results(as_json)
    assert found["variable FLEET_PASSPHRASE"] == "wrong"
    assert found["variable HCLOUD_TOKEN"] == "wrong"
    assert found["variable VAULT_TOKEN"] == "notice"
    assert "variable DEPLOY_DOCS" not in found
    assert tells(as_text.stdout, "x GitLab", "FLEET_PASSPHRASE", "state.passphrase")
    assert "\x1b" not in as_text.stdout
    for said in (as_text, as_json):
        assert VALUE not in said.stdout + said.stderr
        assert MAINTAINERS not in said.stdout + said.stderr


@pytest.mark.usefixtures("folder")
def test_doctor_reports_weak_gitlab_settings(run_fleet: RunFleet) -> None:
    open_to_all = {"protect_merge_request_pipelines": True}
    with FakeGitlab(protected=["release/*"], settings=open_to_all) as gitlab:
        said = run_fleet("doctor", "--json", env=gitlab.doctors_environment)

    assert results(said) == {
        **{f"variable {name}": "unchecked" for name in NAMES},
        "default branch": "wrong",
        "merge requests": "notice",
        "configuration": "notice",
    }


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "missing", ["FLEET_GITLAB_MAINTAINER_TOKEN", "CI_API_V4_URL", "CI_PROJECT_ID"]
)
def test_doctor_names_missing_variable_without_asking_gitlab(
    run_fleet: RunFleet, missing: str
) -> None:
    with FakeGitlab() as gitlab:
        environment = gitlab.doctors_environment
        del environment[missing]
        said = run_fleet("doctor", "--json", env=environment)

    (finding,) = (f for f in json.loads(said.stdout)["findings"] if "GitLab" in f["about"])
    assert finding["result"] == "unchecked"
    assert missing in finding["said"]
    assert gitlab.asked == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(401, b"{}"), "401"),
        (Answer(403, b"{}"), "Maintainer"),
        (Answer(404, b"{}"), "404"),
        (Answer(500, b""), "500"),
        (html(), "HTML"),
        (Answer(200, b'[{"key": "A", "value": "%s"}]' % VALUE.encode()), "unexpected answer"),
    ],
)
def test_doctor_reports_error_when_gitlab_is_unreadable(
    run_fleet: RunFleet, answer: Answer, words: str
) -> None:
    with FakeGitlab(answers=[answer]) as gitlab:
        said = run_fleet("doctor", "--json", env=gitlab.doctors_environment)

    assert said.returncode == 1
    (finding,) = (f for f in json.loads(said.stdout)["findings"] if "GitLab" in f["about"])
    assert finding["result"] == "wrong"
    assert words in finding["said"]
    assert VALUE not in said.stdout + said.stderr
