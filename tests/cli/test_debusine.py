"""`fleet debusine grants`: the SQL for a role, and what a role's rights lack."""

import json
from pathlib import Path

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet

CONFIG = """\
fleet: demo
queues:
  debian:
    {{kind: debusine, url: "https://debusine.example.org", scopes: [debian]{read}}}
"""


def write(project: Path, read: str = "") -> None:
    (project / "fleet.yaml").write_text(CONFIG.format(read=read), encoding="utf-8")


def test_sql_names_every_column_without_fleet_yaml(run_fleet: RunFleet) -> None:
    done = run_fleet("debusine", "grants", "--role", "reader")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        'CREATE ROLE "reader" LOGIN;',
        'GRANT USAGE ON SCHEMA public TO "reader";',
    ]
    assert all(line.startswith("GRANT SELECT (") for line in lines[2:])


def test_json_has_same_content_as_text(run_fleet: RunFleet) -> None:
    told = json.loads(run_fleet("debusine", "grants", "--admin", "--json").stdout)

    assert told["role"] == "fleet_rw"
    assert {"table": "db_token", "privilege": "DELETE", "column": "*"} in told["rights"]
    assert 'GRANT DELETE ON db_token TO "fleet_rw";' in told["sql"]


def test_grants_check_is_empty_without_role_in_fleet_yaml(
    run_fleet: RunFleet, project: Path
) -> None:
    write(project)

    done = run_fleet("debusine", "grants", "--check")

    assert done.returncode == 1
    assert tells(done.stderr, "fleet.yaml", "debusine", "`read`")


def test_grants_check_hides_password_when_database_is_down(
    run_fleet: RunFleet, project: Path
) -> None:
    (project / "dsn").write_text("postgresql://me:s3cret@127.0.0.1:1/debusine", encoding="utf-8")
    write(project, ", read: {file: dsn}")

    done = run_fleet("debusine", "grants", "--check")

    assert done.returncode == 1
    assert tells(done.stderr, "127.0.0.1", "port 1", "DSN")
    assert "s3cret" not in done.stderr


def test_unknown_queue_is_wrong_usage(run_fleet: RunFleet, project: Path) -> None:
    write(project)

    done = run_fleet("debusine", "grants", "--check", "--queue", "kali")

    assert done.returncode == 2
    assert "known: debian" in done.stderr
