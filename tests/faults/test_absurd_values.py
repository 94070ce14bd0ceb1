"""One absurd value of an answer ends no command; it makes at most its own request unknown."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleet.clouds.hcloud.machines import HcloudMachines, HcloudPrices
from fleet.errors import SourceUnreachable
from fleet.model.facts import Demand, Listing, Unknown
from fleet.queues.copr import LIST as JOBS
from fleet.queues.copr import CoprFrontend
from fleet.schema.model import CoprQueue, HcloudProvider
from fleet.tagrules.derive import QueueContext
from fleet.tagrules.requests import Judge
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW, a_fleet
from tests.rigs.debusine import METRICS, STATUS, metrics, one_page, read_demand, row, why_unknown
from tests.rigs.hetzner import DEMO, a_server
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial

HUGE = 10**30
TOP = 2**31 - 1
FAR, OLD = "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"
FLEET = """\
fleet: trial
providers: {{desk: {{kind: sim}}}}
queues: {{a: {{kind: debusine, url: "{url}", scopes: [debian]}}}}
images: {{t: {{suite: trixie, architecture: amd64, provides: [{tags}]}}}}
pools: {{p: {{provider: desk, machine: ccx33, image: t, workers: {{max: 2}}}}}}
"""


def debusine(*rows: dict[str, object], pending: int | None = None) -> Loopback:
    def answer(received: Received) -> Answer:
        if received.path == METRICS:
            return metrics({"debian": len(rows) if pending is None else pending})
        return one_page(*rows)

    return Loopback(answer)


def two(**absurd: object) -> Loopback:
    """Return a Debusine with an ordinary request, 1, and one with these values, 2."""
    return debusine(row(id=1, worker=None), row(**({"id": 2, "worker": None} | absurd)))


BOUNDED: list[dict[str, object]] = [
    {"priority_base": 100, "priority_adjustment": TOP},
    {"priority_base": -100, "priority_adjustment": -TOP - 1},
    {"priority_base": 2**60},
    {"created_at": FAR},
    {"created_at": OLD},
    {"created_at": "0001-01-01T00:00:00Z"},
    {"created_at": "9999-12-31T23:59:59-12:00"},
    {"task_name": "autopkgtest", "task_data": {"timeout": {"global": HUGE}}},
    {"task_name": "autopkgtest", "task_data": {"timeout": {"global": -HUGE}}},
    {"task_data": {"environment_id": HUGE, "host_architecture": "x" * 10**6}},
    {"task_data": {"environment": ["x"] * 10**5}},
]
COUNTED: list[dict[str, object]] = [
    {"priority_base": HUGE},
    {"priority_adjustment": -HUGE},
    {"scheduler_tags_required": [""]},
    {"scheduler_tags_required": ["x" * 10**5]},
    {"scheduler_tags_provided": [f"t{number}" for number in range(20_000)]},
    {"workspace": "w" * 10**5},
    {"task_name": "n" * 10**5},
    {"created_by": -1},
]


@pytest.mark.parametrize("absurd", BOUNDED, ids=lambda each: str(each)[:60])
def test_request_is_bounded_when_a_value_is_absurd(absurd: dict[str, object]) -> None:
    with two(**absurd) as server:
        demand = read_demand(server.url)

    assert {each.id for each in demand.requests} == {"1", "2"}
    assert not demand.estimate
    assert Demand.model_validate_json(demand.model_dump_json()) == demand


@pytest.mark.parametrize(
    "environment",
    [HUGE, "x" * 10**6, 77.5, {"id": 77}, [77, {"id": 78}]],
    ids=lambda each: str(each)[:20],
)
def test_request_waits_when_its_environment_is_absurd(environment: object) -> None:
    rule = {"from": "environment_id", "lookup": "environments", "ask": "env:{value.codename}"}
    judge = Judge(a_fleet(derive=[rule]), {}, NOW.date())

    with two(task_data={"environment_id": environment}) as server:
        demand = read_demand(server.url)

    held = {each.id: judge.ask_of(each, QueueContext()).held for each in demand.requests}
    assert held == {"1": False, "2": True}


@pytest.mark.parametrize(
    "absurd", [*COUNTED, {"id": -1}, {"worker": HUGE}], ids=lambda each: str(each)[:60]
)
def test_request_is_only_counted_when_a_value_is_absurd(absurd: dict[str, object]) -> None:
    with two(**absurd) as server:
        demand = read_demand(server.url)

    assert [each.id for each in demand.requests] == ["1"]
    assert demand.sample is not None
    assert demand.sample.unlisted == {"debian": 1}


def test_queue_keeps_its_order_when_priorities_are_absurd() -> None:
    priorities = {1: (0, 0), 2: (100, TOP), 3: (-100, -TOP - 1), 4: (5, 0)}
    rows = [
        row(id=number, worker=None, priority_base=base, priority_adjustment=adjustment)
        for number, (base, adjustment) in priorities.items()
    ]

    with debusine(*rows) as server:
        assert [each.id for each in read_demand(server.url).requests] == ["2", "4", "1", "3"]


@pytest.mark.parametrize("absurd", [{"id": HUGE}])
def test_demand_is_unknown_when_a_request_has_no_identity(absurd: dict[str, object]) -> None:
    with debusine(row(worker=None) | absurd) as server:
        assert f"at {next(iter(absurd))}" in why_unknown(server.url)


@pytest.mark.parametrize("count", ["1e30", "999999999999999e30", "-5", "1" * 40])
def test_demand_is_unknown_when_a_count_is_absurd(count: str) -> None:
    line = f'work_requests{{scope="debian",status="pending",task_type="Worker"}} {count}\n'
    total = json.dumps({"tasks": {"Worker": {"pending": HUGE}}}).encode()

    with debusine(row(worker=None)) as server:
        server.faults.instead |= {
            METRICS: Answer(200, line.encode()),
            STATUS: Answer(200, total),
        }

        assert "status" in why_unknown(server.url)


@pytest.mark.parametrize("command", ["plan", "status", "observe"])
@pytest.mark.parametrize("absurd", [BOUNDED[0], BOUNDED[3], COUNTED[2]], ids=lambda e: str(e)[:40])
def test_commands_answer_when_a_request_is_absurd(
    command: str, absurd: dict[str, object], project: Path, run_fleet: RunFleet
) -> None:
    trial = Trial(project)
    tags: Any = row()["scheduler_tags_required"]
    with two(**absurd) as server:
        trial.write(FLEET.format(url=server.url, tags=", ".join(f'"{tag}"' for tag in tags)))
        trial.init()

        done = run_fleet(command, "--json") if command != "observe" else run_fleet(command)

    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    said = json.loads(done.stdout)
    if command == "plan":
        assert said["unknown"] == []
        assert len(said["actions"]) >= 1


JOB = {
    "task_id": "7-fedora-x86_64",
    "build_id": 7,
    "project_owner": "me",
    "sandbox": "me/p--me",
    "background": False,
    "chroot": "fedora-x86_64",
    "tags": [],
}
NAMED = {"project_dirname": "p", "package_name": "n"}


def read_copr(absurd: dict[str, object], named: dict[str, object]) -> Demand | Unknown:
    def answer(received: Received) -> Answer:
        headers = {"Content-Type": "application/json", "Copr-FE-BE-API-Version": "1"}
        said: object = [JOB, JOB | absurd] if received.path == JOBS else NAMED | named
        return Answer(200, json.dumps(said).encode(), headers)

    with Loopback(answer) as server:
        queue = CoprQueue.model_validate({"kind": "copr", "url": server.url})
        return CoprFrontend(queue, with_names=True).read(NOW).demand


@pytest.mark.parametrize(
    "absurd",
    [
        {"build_id": HUGE},
        {"build_id": -1},
        {"tags": [""]},
        {"tags": ["x" * 10**5]},
        {"chroot": "c" * 10**5},
        {"project_owner": "o" * 10**5},
    ],
    ids=lambda each: str(each)[:40],
)
def test_build_of_copr_is_only_counted_when_absurd(absurd: dict[str, object]) -> None:
    demand = read_copr(absurd, {})

    assert isinstance(demand, Demand)
    assert [each.id for each in demand.requests] == [JOB["task_id"]]
    assert demand.estimate


@pytest.mark.parametrize("timeout", [TOP + 1, 2**60, -5, HUGE])
def test_build_of_copr_is_known_when_its_timeout_is_absurd(timeout: int) -> None:
    demand = read_copr({}, {"timeout": timeout})

    assert isinstance(demand, Demand)
    assert sum(each.count for each in demand.requests) == 2


@pytest.fixture
def hetzner() -> Iterator[SimulatedHetzner]:
    with SimulatedHetzner() as api:
        yield api


@pytest.mark.parametrize("created", [FAR, OLD])
def test_listing_is_unknown_when_a_server_has_an_absurd_date(
    created: str, hetzner: SimulatedHetzner
) -> None:
    a_server(hetzner, created=created)

    listed = HcloudMachines(hetzner.token, base_url=hetzner.endpoint).list("demo")

    assert isinstance(listed, Unknown)


@pytest.mark.parametrize("expires", ["99991231T235959Z", "00010101T000000Z", "never"])
def test_machine_has_no_expiry_when_its_label_is_absurd(
    expires: str, hetzner: SimulatedHetzner
) -> None:
    a_server(hetzner, labels=DEMO | {"expires": expires})

    listed = HcloudMachines(hetzner.token, base_url=hetzner.endpoint).list("demo")

    assert isinstance(listed, Listing)
    assert [each.expires for each in listed.machines] == [None]


def _with_price(sold: dict[str, Any]) -> None:
    sold["prices"][0]["price_hourly"] = {"net": "1E+999999", "gross": "1"}


def _with(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda sold: sold.update({key: value})


@pytest.mark.parametrize(
    "spoil",
    [_with_price, _with("memory", "1E+9999999"), _with("memory", -1), _with("cores", HUGE)],
)
def test_prices_are_refused_when_one_is_absurd(
    spoil: Callable[[dict[str, Any]], None],
    hetzner: SimulatedHetzner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HCLOUD_ENDPOINT", hetzner.endpoint)
    for sold in hetzner.state.resources["server_types"].values():
        spoil(sold)
    provider = HcloudProvider.model_validate(
        {"kind": "hcloud", "location": "fsn1", "token": {"env": "T"}}
    )

    with pytest.raises(SourceUnreachable):
        HcloudPrices(provider, hetzner.token).read(datetime.now(UTC))
