"""A server that fails for a moment is asked again; one that never answers is asked once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.queues.http import ReadLimits
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from tests.rigs.debusine import LIST, METRICS, metrics, one_page, row
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.process import Completed, RunFleet, unwrapped
from tests.rigs.trial import Trial

FLEET = """\
fleet: trial
providers: {{desk: {{kind: sim}}}}
queues: {{a: {{kind: debusine, url: "{url}", scopes: [debian], token: {{env: QTOK}}}}}}
images: {{t: {{suite: trixie, architecture: amd64, provides: [{tags}]}}}}
pools: {{p: {{provider: desk, machine: ccx33, image: t, workers: {{max: 2}}}}}}
"""
HCLOUD = """\
fleet: trial
providers: {{far: {{kind: hcloud, location: fsn1, token: {{env: HCLOUD_TOKEN}}}}}}
queues: {{w: {{kind: world, path: world.json}}}}
images: {{t: {{existing: {{far: debian-13}}, architecture: amd64}}}}
pools: {{p: {{provider: far, machine: ccx33, image: t, workers: {{max: 2}}}}}}
state: {{passphrase: {{env: HCLOUD_TOKEN}}}}
"""
PAGES = 4


class Server(Loopback):
    """A Debusine whose list has some pages of one request; `bad` answers of each path fail."""

    def __init__(self) -> None:
        super().__init__(self._answered)
        self.bad: dict[tuple[str, str], Iterator[Answer]] = {}
        self.tags: tuple[str, ...] = tuple(map(str, row()["scheduler_tags_required"]))  # type: ignore[call-overload]

    def _answered(self, received: Received) -> Answer:
        cursor = received.query.get("cursor", "0")
        if failing := next(self.bad.get((received.path, cursor), iter(())), None):
            return failing
        if received.path == METRICS:
            return metrics({"debian": PAGES})
        page = int(cursor)
        following = f"http://x/?cursor={page + 1}" if page + 1 < PAGES else None
        return one_page(row(id=page + 1, worker=None), next_page=following)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def fleet(project: Path, server: Server) -> None:
    tags = ", ".join(f'"{tag}"' for tag in server.tags)
    trial = Trial(project)
    trial.write(FLEET.format(url=server.url, tags=tags))
    trial.init()


def planned(run_fleet: RunFleet) -> tuple[dict[str, Any], Completed]:
    done = run_fleet("plan", "--json", env={"QTOK": "canary-1"})
    assert "canary-1" not in done.stdout + done.stderr
    return json.loads(done.stdout), done


def failing(status: int, **headers: str) -> Answer:
    sent = {"Content-Type": "text/html"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return Answer(status, b"<html>bad gateway</html>", sent)


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    "bad",
    [
        failing(502),
        failing(503, Retry_After="1"),
        failing(429, Retry_After="1"),
        failing(504),
    ],
    ids=lambda bad: str(bad.status),
)
@pytest.mark.parametrize("place", [(LIST, "2"), (LIST, "0"), (METRICS, "0")])
def test_plan_has_demand_when_one_response_fails(
    server: Server, run_fleet: RunFleet, bad: Answer, place: tuple[str, str]
) -> None:
    server.bad[place] = iter([bad])

    plan, done = planned(run_fleet)

    assert plan["unknown"] == []
    assert len(plan["actions"]) > 0
    (remark,) = plan["remarks"]
    assert server.url in remark
    assert str(bad.status) in remark
    assert done.stderr == ""


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    "command",
    [
        ("plan",),
        ("plan", "--markdown"),
        ("plan", "--json"),
        ("status",),
        ("status", "--json"),
        ("machine", "delete", "--expired"),
        ("machine", "delete", "--expired", "--json"),
        ("hold", "trial-p-0001", "--for", "1h", "--reason", "test"),
    ],
    ids=" ".join,
)
def test_each_command_shows_a_remark_once(
    server: Server, run_fleet: RunFleet, command: tuple[str, ...]
) -> None:
    server.bad[LIST, "2"] = iter([failing(502)])

    done = run_fleet(*command, env={"QTOK": "canary-1"})

    assert server.received
    assert unwrapped(done.stdout + done.stderr).count("was sent 1 GET again") == 1


@pytest.mark.usefixtures("fleet")
def test_plan_has_demand_when_connections_are_reset(server: Server, run_fleet: RunFleet) -> None:
    server.faults.drop = {2, 5}

    plan, done = planned(run_fleet)

    assert plan["unknown"] == []
    assert [server.url in each for each in plan["remarks"]] == [True]
    assert done.stderr == ""


@pytest.mark.usefixtures("fleet")
def test_demand_is_unknown_after_three_failing_tries(server: Server, run_fleet: RunFleet) -> None:
    server.faults.instead[LIST] = failing(502)

    plan, done = planned(run_fleet)

    assert len(plan["unknown"]) == 1
    assert plan["actions"] == []
    assert [each.path for each in server.received] == [LIST] * 3
    assert [server.url in each for each in plan["remarks"]] == [True]
    assert done.stderr == ""


@pytest.mark.usefixtures("fleet")
def test_plan_has_no_remark_when_all_servers_respond(run_fleet: RunFleet) -> None:
    plan, done = planned(run_fleet)

    assert "remarks" not in plan
    assert done.stderr == ""


@pytest.fixture
def hetzner(project: Path) -> Iterator[SimulatedHetzner]:
    trial = Trial(project)
    trial.write(HCLOUD.format())
    trial.init()
    with SimulatedHetzner() as api:
        yield api


def plan_at(api: SimulatedHetzner, run_fleet: RunFleet) -> dict[str, Any]:
    env = {"HCLOUD_ENDPOINT": api.endpoint, "HCLOUD_TOKEN": api.token}
    plan: dict[str, Any] = json.loads(run_fleet("plan", "--json", env=env).stdout)
    return plan


def test_plan_queries_hetzner_once_when_it_never_responds(
    hetzner: SimulatedHetzner, run_fleet: RunFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadLimits.__init__, "__defaults__", (10, 0.2, 300, 1 << 20))
    hetzner.fail(Fault(latency=600))

    plan = plan_at(hetzner, run_fleet)

    assert len(plan["unknown"]) == 1
    assert [each.path for each in hetzner.requests] == ["/servers"]


def test_plan_has_machines_when_hetzner_fails_twice(
    hetzner: SimulatedHetzner, run_fleet: RunFleet
) -> None:
    hetzner.fail(Fault("GET", "/servers", status=503, count=2))
    hetzner.fail(Fault("GET", "/pricing", status=429, retry_after=1, count=1))

    plan = plan_at(hetzner, run_fleet)

    assert plan["unknown"] == []
    assert plan["prices"][0]["own"]
