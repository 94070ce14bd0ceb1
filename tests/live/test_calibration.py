"""A closed loop that is recorded and then simulated: waits and machine time agree within a tenth.

`--update-golden` draws docs/pictures/calibration.svg of what this run came to.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.plots import lines
from tests.live.debusine import Server
from tests.live.project import SID, Access, Project
from tests.live.test_chromium import make_build, write_programs
from tests.live.workspace import Workspace, make_workspace
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT

PICTURE = ROOT / "docs" / "pictures" / "calibration.svg"
SBUILD = """#!/bin/sh
for last; do :; done
build=$(basename "$last" .dsc)
seconds=${build#*_}
sleep "${seconds%-*}"
echo 'Status: attempted' >"${build}_amd64.build"
exit 1
"""
LENGTHS = (108, 92, 120, 76, 56, 44, 32, 44, 36)
"""Seconds that each build takes: long beside the second or two between two builds of a worker."""
BOOT = {"expected": "5s", "deadline": "2m"}
POOL = {"workers": {"max": 3}, "retire": {"idle_after": "20s"}, "boot": BOOT}
BUILDS = ("worker:cap:sbuild", "worker:executor:unshare", "worker:task:worker:sbuild:version:1")
IMAGES = {"sid": SID | {"provides": ["worker:build-arch:amd64", *BUILDS]}}
TENTH = 0.1


@pytest.fixture
def paced(server: Server) -> Workspace:
    """Return a workspace with no other work."""
    return make_workspace(server, "paced", "builds")


@pytest.fixture
def project(tmp_path: Path, paced: Workspace, access: Access) -> Iterator[Project]:
    """Return a fleet whose machines have an sbuild that takes as long as a package's version."""
    programs = write_programs(tmp_path / "programs", SBUILD)
    made = Project(tmp_path, paced, access, programs=programs)
    made.write(name="paced", pools={"builders": POOL}, images=IMAGES)
    yield made
    made.end_machines()


def test_simulation_matches_measured_waits_and_machine_time(
    project: Project, paced: Workspace, server: Server, golden: Golden
) -> None:
    builds = [make_build(paced, "paced", f"{seconds}-1") for seconds in LENGTHS]
    requests = [paced.post("sbuild", **build) for build in builds]

    project.fleet("apply", "--every", "5s", "--until-quiet", "--for", "9m", timeout=600)

    measured = waits_of(server, requests)
    found = json.loads(project.fleet("simulate", "--json"))["after"]

    waits = found["waits"]
    if golden.updates:
        PICTURE.write_text(plot(measured, waits["shares"]), encoding="utf-8")
    assert waits["requests"] == len(requests)
    assert waits["half"] == pytest.approx(at(measured, 50), rel=TENTH)
    assert waits["most"] == pytest.approx(at(measured, 95), rel=TENTH)
    assert found["seconds"] == pytest.approx(machine_seconds(project), rel=TENTH)


def waits_of(server: Server, requests: Sequence[int]) -> list[float]:
    """Return how long Debusine's requests waited, the shortest first."""
    rows = server.sql(
        "SELECT extract(epoch FROM started_at - created_at)::float8 FROM db_workrequest"
        " WHERE id = ANY(%s) ORDER BY 1",
        ([*requests],),
    )
    return [seconds for (seconds,) in rows]


def at(waits: Sequence[float], percent: int) -> float:
    """Return the wait that so many percent do not exceed."""
    return waits[-(-len(waits) * percent // 100) - 1]


def machine_seconds(project: Project) -> int:
    """Return the machine time that was charged."""
    month = f"{datetime.now(UTC):%Y-%m}"
    return int(json.loads(project.fleet("report", "--month", month, "--json"))["seconds"])


def plot(measured: Sequence[float], shares: Sequence[int]) -> str:
    """Return the share of requests that had started, by seconds."""
    rows = {
        "measured at Debusine": [(at(measured, n), float(n)) for n in range(1, 101)],
        "simulated": [(float(wait), float(n)) for n, wait in enumerate(shares, 1)],
    }
    return lines("Requests that had started", ("seconds since they came", "percent"), rows)
