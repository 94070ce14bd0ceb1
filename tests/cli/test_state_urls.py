"""`state.store` and `state.backend` in a form that no store has: an error with its place."""

import json
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml


@pytest.mark.parametrize(
    ("state", "form"),
    [
        ("store: mysql://x", "sqlite:///PATH"),
        ("store: nonsense", "sqlite:///PATH"),
        ("store: postgres", "sqlite:///PATH"),
        ("store: 'sqlite://'", "sqlite:///PATH"),
        ("store: 'sqlite:///'", "sqlite:///PATH"),
        ("store: 'postgresql://[bad'", "postgresql://HOST/NAME"),
        ("store: 'postgresql://host:999999/fleet'", "postgresql://HOST/NAME"),
        ("store: 'postgresql://host:65536/fleet'", "postgresql://HOST/NAME"),
        ("backend: 'http://x'", "s3://BUCKET"),
        ("backend: filee", "file://PATH"),
        ("backend: 'file://'", "file://PATH"),
        ("backend: 's3://'", "s3://BUCKET"),
        ("backend: 'postgres://[bad'", "postgres://HOST/NAME"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "doctor"])
def test_malformed_state_url_is_reported_with_its_place(
    run_fleet: RunFleet, project: Path, command: str, state: str, form: str
) -> None:
    text = fleet_yaml(more=f"state:\n  {state}\n")
    (project / "fleet.yaml").write_text(text)
    line = text.splitlines().index(f"  {state}") + 1
    column = len("  ") + state.index(": ") + len(": ") + 1

    ran = run_fleet(command)

    said = ran.stdout + ran.stderr
    assert ran.returncode == 1
    assert f"fleet.yaml:{line}:{column}: error[wrong-value]" in said
    assert tells(said, form)
    assert not (project / ".fleet").exists()


@pytest.mark.parametrize("key", ["store", "backend"])
@pytest.mark.parametrize(
    "url",
    [
        "postgres://fleet:canary/fleet",
        "postgres://fleet:1@canary@host/fleet",
        "mysql://fleet:canary@host/fleet",
    ],
)
def test_state_url_error_hides_password(
    run_fleet: RunFleet, project: Path, key: str, url: str
) -> None:
    (project / "fleet.yaml").write_text(fleet_yaml(more=f'state: {{{key}: "{url}"}}'))

    ran = run_fleet("validate")

    assert ran.returncode == 1
    assert "canary" not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "state",
    [
        "store: 'sqlite:///a%b?c/store.db', backend: 'file://.'",
        "store: 'postgresql://', backend: 'postgres://'",
        "store: 'postgresql://u:p%40/x[@[::1]:5432/fleet?sslmode=require', backend: file",
        "store: 'postgres+psycopg://u@h:5432/d', backend: 'postgres://u:p@h:1/d?table=a.b'",
        "store: 'postgresql:///fleet?host=a,b', backend: 's3://states/a?region=eu'",
        "store: sqlite, backend: 'gs://states'",
    ],
)
def test_wellformed_state_urls_are_valid(run_fleet: RunFleet, project: Path, state: str) -> None:
    (project / "fleet.yaml").write_text(fleet_yaml(more=f"state: {{{state}}}"))

    ran = run_fleet("validate")

    assert "wrong-value" not in ran.stdout


def test_unreachable_store_is_named_as_in_fleet_yaml(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    url = "postgresql://fleet@127.0.0.1:1/fleet"
    (trial.folder / "fleet.yaml").write_text(fleet_yaml(more=f"state: {{store: '{url}'}}"))

    ran = run_fleet("plan")
    found = run_fleet("doctor")

    shown = " ".join(ran.stdout.split())
    assert tells(shown, "postgresql://fleet@127.0.0.1:1/fleet")
    assert "psycopg" not in shown
    assert tells(shown, "frozen by fleet until the store is readable")
    assert "freeze --end" not in shown + found.stdout


def test_doctor_does_not_create_store_when_its_server_does_not_answer(project: Path) -> None:
    trial = Trial(project)
    trial.write(fleet_yaml(more='state: {store: "postgresql://u@127.0.0.1:1/x"}\n'))
    trial.wait_for()

    _, said = trial.do("doctor", "--json")

    findings = {each["about"]: each for each in json.loads(said)["findings"]}
    found = findings["state, store"]
    assert (found["result"], found["fix"]) == ("wrong", "see state.store in fleet.yaml")


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ("{backend: 'file://~/x'}", "x/store.db"),
        ("{store: 'sqlite:///~/y.db'}", "y.db"),
        ("{images: ~/z, store: 'sqlite:///~/y.db'}", "y.db"),
    ],
)
def test_state_is_below_home_when_its_path_begins_with_a_tilde(
    run_fleet: RunFleet, project: Path, tmp_path: Path, state: str, place: str
) -> None:
    (project / "fleet.yaml").write_text(fleet_yaml(more=f"state: {state}"))
    ran = run_fleet("state", "init")

    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "home" / place).is_file()
    assert not (project / "~").exists()


@pytest.mark.parametrize("state", ["{backend: 'file://~nobody-here/x'}", "{images: ~nobody-here}"])
def test_state_of_unknown_user_is_refused(run_fleet: RunFleet, project: Path, state: str) -> None:
    (project / "fleet.yaml").write_text(fleet_yaml(more=f"state: {state}"))

    ran = run_fleet("state", "init")

    assert (ran.returncode, tells(ran.stderr, "~nobody-here")) == (1, True)
    assert not (project / "~nobody-here").exists()


def test_secret_of_unknown_user_is_missing(run_fleet: RunFleet, project: Path) -> None:
    more = "state: {passphrase: {file: ~nobody-here/secret}}"
    (project / "fleet.yaml").write_text(fleet_yaml(more=more))

    ran = run_fleet("doctor")

    assert tells(ran.stdout, "~nobody-here/secret")
    assert "Traceback" not in ran.stderr
