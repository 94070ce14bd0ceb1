"""`fleet doctor`: does everything that fleet.yaml names work? It changes nothing."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.debusine import LIST
from tests.rigs.process import RunFleet
from tests.rigs.replay import PENDING, TOKEN, Replay

RECORDED = (*PENDING, "service-status", "open-metrics-work-requests", "whoami-fleet")
LOOKING = """\
fleet: look
queues:
  debian: {{kind: debusine, url: '{url}', scopes: [debian], token: {{env: TOKEN}}}}
"""


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay(*RECORDED) as replay:
        yield replay


@pytest.fixture
def looking(project: Path, server: Replay) -> Path:
    """Return a folder whose fleet.yaml has a queue, a viewer's token, and nothing else."""
    (project / "fleet.yaml").write_text(LOOKING.format(url=server.url))
    return project


@pytest.mark.usefixtures("looking")
def test_doctor_shows_unserved_architectures_to_viewer_token(
    run_fleet: RunFleet,
) -> None:
    said = run_fleet("doctor", env={"TOKEN": TOKEN})

    assert (said.returncode, said.stderr) == (0, "")
    assert tells(said.stdout, "+ queue debian, token: ", "fleet")
    assert re.search(r"! queue debian, .* debian/5 .*\s+worker:build-arch:riscv64", said.stdout)
    assert tells(said.stdout, "? queue debian", "version")
    table = said.stdout.partition("\n\nQUEUE ")[2].partition("\n\n")[0]
    assert [line.split()[:3] for line in table.splitlines()[1:]] == [
        ["debian", "amd64", "0"],
        ["debian", "any", "24"],
        ["debian", "arm64", "2"],
        ["debian", "armhf", "0"],
        ["debian", "i386", "0"],
        ["debian", "riscv64", "1"],
    ]


def test_doctor_writes_no_file_and_prints_no_token(
    looking: Path, run_fleet: RunFleet, server: Replay
) -> None:
    before = {path: path.read_bytes() for path in looking.rglob("*") if path.is_file()}

    said = [run_fleet("doctor", *more, env={"TOKEN": TOKEN}) for more in ((), ("--json",))]

    assert {path: path.read_bytes() for path in looking.rglob("*") if path.is_file()} == before
    assert not any(TOKEN in each.stdout + each.stderr for each in said)
    assert {received.path for received in server.received} == {
        LIST,
        "/api/1.0/service-status/",
        "/api/1.0/open-metrics/",
        "/api/1.0/whoami/",
    }


def test_doctor_runs_pulumi_program_without_workers(project: Path, run_fleet: RunFleet) -> None:
    text = "fleet: real\nproviders: {far: {kind: sim, engine: pulumi}}\n"
    (project / "fleet.yaml").write_text(text, encoding="utf-8")

    said = run_fleet("doctor")

    assert "+ stacks/sim, program: it runs\n" in said.stdout
