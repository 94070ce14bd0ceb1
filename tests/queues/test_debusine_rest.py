"""What reading a real Debusine's recorded answers must give."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from fleet.model.facts import Demand, Request
from fleet.queues.debusine.rest import DebusineRest
from fleet.schema.model import DebusineQueue
from fleet.tagrules.derive import at_path
from fleet.tagrules.names import is_source_build
from tests.rigs.debusine import (
    NOW,
    one_page,
    read_demand,
    row,
    serving,
)
from tests.rigs.loopback import Answer, Received
from tests.rigs.replay import PENDING, TOKEN, Replay, read_exchange


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay(*PENDING, "open-metrics-work-requests") as replay:
        yield replay


def test_each_request_has_required_tags_and_priority(server: Replay) -> None:
    recorded = {
        entry["id"]: entry
        for name in PENDING
        for entry in json.loads(read_exchange(name).answer.body)["results"]
    }

    demand = read_demand(server.url)

    ids = [int(request.id) for request in demand.requests]
    assert sorted(ids) == [4, 5, 7, *range(9, 33)]
    assert (ids[:3], ids[-1]) == ([4, 7, 9], 5)
    # Without their mirror.
    looked_up = {"architecture": "amd64", "codename": "trixie", "vendor": "Debian"}
    assert demand.environments == {"5": looked_up}
    assert {r.id: (list(r.required), r.priority) for r in demand.requests} == {
        str(id_): (
            sorted(entry["scheduler_tags_required"]),
            entry["priority_base"] + entry["priority_adjustment"],
        )
        for id_, entry in recorded.items()
        if entry["worker"] is None
    }


def test_request_has_every_field_that_rules_may_use(server: Replay) -> None:
    demand = read_demand(server.url)

    assert {request.id: request for request in demand.requests}["5"] == Request(
        id="5",
        task="sbuild",
        required=(
            "worker:build-arch:riscv64",
            "worker:cap:sbuild",
            "worker:executor:unshare",
            "worker:task:worker:sbuild:version:1",
            "worker:type:external",
        ),
        provided=(
            "task:group:debian::Members",
            "task:group:debian::builds-owners",
            "task:scope:debian",
            "task:source-package:gcc-15",
            "task:workspace:debian:builds",
        ),
        priority=-10,
        pending_since=datetime(2026, 11, 21, 0, 14, 24, 895110, tzinfo=UTC),
        requester="2",
        groups=("debian::Members", "debian::builds-owners"),
        scope="debian",
        workspace="builds",
        package="gcc-15",
        task_data={
            "build_architecture": "riscv64",
            "build_components": ["any"],
            "environment": "debian/match:codename=trixie:architecture=riscv64",
        },
    )


def test_task_data_keeps_only_values_that_rules_read() -> None:
    data = {
        "build_components": ["source"],
        "input": {"hosts": [{"arch": "arm64"}, {"arch": "amd64"}], "password": "s3cret"},
        "sizes": [1, {"no": "plain value"}],
        "plain": [4, 5],
    }
    paths = (
        "input.hosts.1.arch",
        "input",
        "sizes",
        "no.such.place",
        "sizes.0",
        "plain.1",
        "plain",
    )
    queue = {"kind": "debusine", "scopes": ["debian"]}

    listed = one_page(row(id=7, task_data=data, dynamic_task_data=None))

    with serving(listed, debian=1) as server:
        asked = DebusineQueue.model_validate(queue | {"url": server.url})
        demand = DebusineRest(asked, TOKEN, paths=paths).read(NOW).demand

    assert isinstance(demand, Demand)
    (request,) = demand.requests
    assert request.task_data == {
        "build_components": ["source"],
        "input": {"hosts": {"1": {"arch": "amd64"}}},
        "plain": [4, 5],
        "sizes": {"0": 1},
    }
    assert at_path(request.task_data, "input.hosts.1.arch") == "amd64"
    assert is_source_build(request)


def test_environment_with_conflicting_data_is_omitted() -> None:
    def of(number: int, architecture: object) -> dict[str, object]:
        field = {"artifact_id": number, "data": {"architecture": architecture}}
        return {"environment_id": number, "task_input_fields": {"environment": field}}

    rows = [
        row(id=7, worker=1, dynamic_task_data=of(5, "amd64")),
        row(id=8, worker=2, dynamic_task_data=of(5, "arm64")),
        row(id=9, worker=3, dynamic_task_data=of(6, "arm64")),
        row(id=10, worker=4, dynamic_task_data=of(8, ["no", "word"])),
        row(id=11, worker=5, dynamic_task_data={"environment_id": 9, "task_input_fields": []}),
    ]

    with serving(one_page(*rows), debian=5) as server:
        demand = read_demand(server.url)

    assert demand.environments == {"6": {"architecture": "arm64"}, "8": {}}
    assert demand.requests == ()


def test_each_scope_is_read_once_with_its_header() -> None:
    def answer(received: Received) -> Answer:
        scope = received.headers["x-debusine-scope"]
        return one_page(row(id=1 if scope == "debian" else 2, scope=scope))

    with serving(answer, debian=1, kali=1) as server:
        demand = read_demand(server.url, scopes=("debian", "kali", "debian"))
        asked = [received.headers.get("x-debusine-scope") for received in server.received]

    assert {(request.id, request.scope) for request in demand.requests} == {
        ("1", "debian"),
        ("2", "kali"),
    }
    assert asked == ["debian", "kali", None]


def test_http_library_is_imported_only_by_a_read() -> None:
    modules = "fleet.queues.debusine.rest, fleet.queues.recorded, fleet.clouds.hcloud.machines"
    code = f"import sys, {modules}; print('httpx' in sys.modules)"

    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout

    assert printed == "False\n"


@pytest.mark.parametrize(
    "created", ["2026-11-28T18:00:00", "2026-13-28T18:00:00Z", "yesterday", "2026-11-28"]
)
def test_request_is_unknown_when_its_time_is_invalid(created: str) -> None:
    page = one_page(row(id=1), row(id=2, created_at=created), row(id=3))
    with serving(page, debian=3) as server:
        demand = read_demand(server.url)

    assert [each.id for each in demand.requests] == ["1", "3"]
    assert demand.sample is not None


@pytest.mark.parametrize(
    ("first", "second", "ids"),
    [
        # It is listed again, on the next page.
        ([row(id=7)], [row(id=7), row(id=8)], ["7", "8"]),
        # It was assigned while the list was read.
        ([row(id=7), row(id=9)], [row(id=7, worker=3)], ["9"]),
    ],
)
def test_request_listed_twice_counts_as_listed_last(
    first: list[dict[str, object]], second: list[dict[str, object]], ids: list[str]
) -> None:
    pages = {"": one_page(*first, next_page="/?cursor=b"), "b": one_page(*second)}

    with serving(lambda received: pages[received.query.get("cursor", "")], debian=2) as server:
        demand = read_demand(server.url)

    assert [request.id for request in demand.requests] == ids
