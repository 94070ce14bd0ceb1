"""`fleet shadow`: what fleet would have done in a Resalloc's place, touching nothing."""

import json
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.resalloc_tables import Resalloc

FLEET = """\
fleet: shadow
providers:
  desk: {kind: sim, types: {monster: {cores: 64, memory: 256GiB, disk: 280GiB, price: 4 EUR/h}}}
queues: {tickets: {kind: tickets}}
images: {builder: {existing: {desk: builder-1}, provides: [arch_x86_64]}}
pools: {powerful: {provider: desk, machine: monster, image: builder, workers: {max: 3}}}
"""


def test_a_waiting_ticket_would_have_got_a_machine(project: Path, run_fleet: RunFleet) -> None:
    resalloc = Resalloc(project / "resalloc.db")
    resalloc.ticket(1, "arch_x86_64")
    resalloc.machine(10, "powerful")
    resalloc.machine(11, "powerful")
    (project / "url").write_text(resalloc.url, encoding="utf-8")
    (project / "fleet.yaml").write_text(FLEET, encoding="utf-8")

    looked = run_fleet("shadow", "run", "--resalloc", "url", "--log", "log", "--for", "1s")
    reported = run_fleet("shadow", "report", "log", "--json")

    look = json.loads((project / "log").read_text(encoding="utf-8"))
    (day,) = json.loads(reported.stdout)
    assert (looked.returncode, reported.returncode) == (0, 0)
    assert look["resalloc"] == {"waiting": 1, "machines": {"powerful": 2}, "cost": "8.0000"}
    assert look["fleet"] == {"waiting": 1, "machines": {"powerful": 1}, "cost": "4.0000"}
    assert (day["opened"], day["watched"]) == (1, 0)
    assert {path.name for path in project.iterdir()} >= {".fleet-shadow"}
    assert not (project / ".fleet").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("providers: {here: {kind: local, run: [x]}}", ("providers.here", "local")),
        ("providers: {s: {kind: sim, engine: pulumi}}", ("providers.s", "sim", "pulumi")),
        ("queues: {d: {kind: copr, url: 'https://c.example.org'}}", ("queues.d", "copr")),
    ],
)
def test_a_fleet_that_reaches_anything_real_is_refused(
    project: Path, run_fleet: RunFleet, line: str, said: tuple[str, ...]
) -> None:
    (project / "fleet.yaml").write_text(f"fleet: shadow\n{line}\n", encoding="utf-8")

    refused = run_fleet("shadow", "run", "--resalloc", "url", "--log", "log")

    assert refused.returncode == 2
    assert tells(refused.stderr, *said)


def test_a_log_of_something_else_is_told(project: Path, run_fleet: RunFleet) -> None:
    (project / "log").write_text("{}\n", encoding="utf-8")

    reported = run_fleet("shadow", "report", "log")

    assert (reported.returncode, reported.stdout) == (1, "")
    assert tells(reported.stderr, "log", "fleet shadow run", "required")


def test_a_log_goes_on_after_a_line_that_a_kill_tore(project: Path, run_fleet: RunFleet) -> None:
    resalloc = Resalloc(project / "resalloc.db")
    (project / "url").write_text(resalloc.url, encoding="utf-8")
    (project / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    look = ("shadow", "run", "--resalloc", "url", "--log", "log", "--for", "1s")
    run_fleet(*look)
    with (project / "log").open("a", encoding="utf-8") as log:
        log.write('{"time":"2026-11-21T10:00:00Z","resalloc":{"waiting":0}')

    again = run_fleet(*look)
    reported = run_fleet("shadow", "report", "log", "--json")

    assert (again.returncode, reported.returncode) == (0, 0), again.stderr
    assert len((project / "log").read_text(encoding="utf-8").splitlines()) == 3


def test_a_file_of_something_else_is_not_added_to(project: Path, run_fleet: RunFleet) -> None:
    (project / "url").write_text("sqlite:////nowhere/resalloc.db", encoding="utf-8")
    (project / "fleet.yaml").write_text(FLEET, encoding="utf-8")

    refused = run_fleet("shadow", "run", "--resalloc", "url", "--log", "fleet.yaml")

    assert refused.returncode == 1
    assert tells(refused.stderr, "fleet.yaml", "fleet shadow run")
    assert (project / "fleet.yaml").read_text(encoding="utf-8") == FLEET


def test_a_line_that_is_no_observation_is_told_with_its_number(
    project: Path, run_fleet: RunFleet
) -> None:
    side = '{"waiting":0,"machines":{},"cost":"0"}'
    look = (
        '{"time":"2026-11-21T10:00:00Z","seconds":20,"opened":0,"currency":"EUR","unpriced":[],'
        f'"resalloc":{side},"fleet":{side}}}\n'
    )
    lines = look, look.replace('"seconds":20', '"seconds":-20'), look
    (project / "log").write_text("".join(lines), encoding="utf-8")

    reported = run_fleet("shadow", "report", "log")

    assert (reported.returncode, reported.stdout) == (1, "")
    assert tells(reported.stderr, "log:2:", "seconds", "greater than or equal to 0")
