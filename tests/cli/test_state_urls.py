"""`state.store` and `state.backend` in a form that no store has: an error with its place."""

from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import fleet_yaml


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
