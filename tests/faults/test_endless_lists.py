"""A list that goes on beyond the server's own count is a contradiction: unknown."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.clouds.hcloud.images import Hetzner
from fleet.clouds.hcloud.machines import HcloudMachines, HcloudPrices, HcloudShared
from fleet.errors import SourceUnreachable
from fleet.model.facts import Demand, Unknown
from fleet.queues.debusine.rest import DebusineRest
from fleet.queues.gitlab import Gitlab
from fleet.schema.model import DebusineQueue, HcloudProvider
from tests.builders import NOW
from tests.rigs.debusine import METRICS, STATUS, metrics, one_page, row
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial

COUNTED, PER_PAGE = 60, 5
FLEET = """\
fleet: trial
providers: {{desk: {{kind: sim}}}}
queues: {{a: {{kind: debusine, url: "{url}", scopes: [debian]}}}}
images: {{t: {{suite: trixie, architecture: amd64}}}}
pools: {{p: {{provider: desk, machine: ccx33, image: t, workers: {{max: 2}}}}}}
guards: {{demand_max_age: 20s}}
"""

Rows = Callable[[int], list[dict[str, object]]]


def fresh(page: int) -> list[dict[str, object]]:
    start = page * PER_PAGE
    return [row(id=number + 1, worker=None) for number in range(start, start + PER_PAGE)]


def repeated(_: int) -> list[dict[str, object]]:
    return fresh(0)


def empty(_: int) -> list[dict[str, object]]:
    return []


class Clock:
    """Half a second goes by with each look."""

    def __init__(self, step: float = 0.02) -> None:
        self.now, self._step = 0.0, step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


def endless(rows: Rows, *, counts: bool = True) -> Loopback:
    """Return a Debusine whose list never ends, in both directions."""

    def answer(received: Received) -> Answer:
        if received.path == METRICS:
            return metrics({"debian": COUNTED, "kali": COUNTED}) if counts else Answer(404, b"")
        if received.path == STATUS:
            return Answer(200, json.dumps({"tasks": {"Worker": {"pending": COUNTED}}}).encode())
        cursor = received.query.get("cursor", "0")
        page = int(cursor) if cursor.isdecimal() else 10_000
        scope = received.headers["x-debusine-scope"]
        link = f"http://x/?cursor={page + 1}"
        reading_rows = [each | {"scope": scope} for each in rows(page)]
        return one_page(*reading_rows, next_page=link, previous_page=link)

    return Loopback(answer)


def read(server: Loopback, *scopes: str) -> Demand | Unknown:
    queue = DebusineQueue(kind="debusine", url=server.url, scopes=list(scopes))
    return DebusineRest(queue, None, max_age=20, clock=Clock()).read(NOW).demand


@pytest.mark.parametrize("rows", [fresh, repeated, empty])
@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("scopes", [("debian",), ("debian", "kali")])
def test_demand_is_unknown_when_a_list_never_ends(
    rows: Rows, *, counts: bool, scopes: tuple[str, ...]
) -> None:
    with endless(rows, counts=counts) as server:
        assert isinstance(read(server, *scopes), Unknown)


def test_plan_creates_no_machine_when_a_list_never_ends(
    project: Path, run_fleet: RunFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DebusineRest.__init__, "__kwdefaults__", _with_clock())
    trial = Trial(project)
    with endless(fresh) as server:
        trial.write(FLEET.format(url=server.url))
        trial.init()

        plan: dict[str, Any] = json.loads(run_fleet("plan", "--json").stdout)

    assert (len(plan["unknown"]), plan["actions"]) == (1, [])


def _with_clock() -> dict[str, object]:
    return {**(DebusineRest.__init__.__kwdefaults__ or {}), "clock": Clock()}


@pytest.mark.parametrize("scopes", [("debian",), ("debian", "kali")])
def test_demand_is_unknown_when_a_complete_list_exceeds_the_total(scopes: tuple[str, ...]) -> None:
    def answer(received: Received) -> Answer:
        if received.path == METRICS:
            return Answer(404, b"")
        if received.path == STATUS:
            return Answer(200, b'{"tasks": {"Worker": {"pending": 4}}}')
        scope = received.headers["x-debusine-scope"]
        return one_page(*(each | {"scope": scope} for each in fresh(0)))

    with Loopback(answer) as server:
        assert isinstance(read(server, *scopes), Unknown)


def test_demand_is_known_when_requests_ended_while_it_was_read() -> None:
    looks: list[str] = []

    def answer(received: Received) -> Answer:
        if received.path == METRICS:
            return Answer(404, b"")
        if received.path == STATUS:
            return Answer(200, b'{"tasks": {"Worker": {"pending": 3}}}')
        looks.append(received.path)
        return one_page(*fresh(0)[: 5 if len(looks) == 1 else 3])

    with Loopback(answer) as server:
        demand = read(server, "debian")

    assert isinstance(demand, Demand)
    assert len(demand.requests) == 3


SERVER = {
    "name": "trial-p-0001",
    "status": "running",
    "created": "2026-11-21T08:00:00Z",
    "labels": {"fleet": "trial", "pool": "p"},
    "server_type": {"name": "ccx33", "architecture": "x86"},
    "public_net": {"ipv4": None, "ipv6": None},
}
PARTS = ("networks", "firewalls", "ssh_keys", "placement_groups")
PRICING = {
    "pricing": {
        "currency": "EUR",
        "primary_ips": [],
        "volume": {"price_per_gb_month": {"net": "0.04"}},
    }
}


@pytest.fixture
def hetzner() -> Iterator[Loopback]:
    """Yield an API whose lists never end, and count two entries."""

    def answer(received: Received) -> Answer:
        name = received.path.rpartition("/")[2]
        if name == "pricing":
            return Answer(200, json.dumps(PRICING).encode())
        page = int(received.query["page"])
        entries: list[dict[str, object]] = [SERVER | {"id": page}]
        if name in PARTS:
            entries = [{"id": page, "name": f"n{page}", "labels": {"fleet": "trial"}}]
        if name == "server_types":
            sold = {"cores": 2, "memory": 4, "disk": 40, "architecture": "x86", "prices": []}
            entries = [sold | {"name": f"t{page}", "id": page}]
        if name == "images":
            entries = [{"id": page, "labels": {}}]
        place = {"page": page, "per_page": 1}
        pages = {"pagination": place | {"next_page": page + 1, "total_entries": 2}}
        return Answer(200, json.dumps({name: entries, "meta": pages}).encode())

    with Loopback(answer) as server:
        yield server


def test_machines_are_unknown_when_hetzners_list_never_ends(hetzner: Loopback) -> None:
    listed = HcloudMachines("x", base_url=hetzner.url).list("trial")

    assert isinstance(listed, Unknown)
    assert len(hetzner.received) == 3


def test_shared_parts_are_unknown_when_hetzners_list_never_ends(hetzner: Loopback) -> None:
    assert isinstance(HcloudShared("x", base_url=hetzner.url).list("trial"), Unknown)
    assert len(hetzner.received) == 3


def test_prices_are_refused_when_hetzners_list_never_ends(
    hetzner: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCLOUD_ENDPOINT", hetzner.url)
    provider = HcloudProvider.model_validate(
        {"kind": "hcloud", "location": "fsn1", "token": {"env": "T"}}
    )

    with pytest.raises(SourceUnreachable):
        HcloudPrices(provider, "x").read(NOW)

    assert len(hetzner.received) == 4


def test_snapshots_are_refused_when_hetzners_list_never_ends(hetzner: Loopback) -> None:
    api = Hetzner("x", base_url=hetzner.url, pause=lambda _: None)

    with pytest.raises(SourceUnreachable):
        api.labelled("images", {"fleet": "trial"})

    assert len(hetzner.received) == 3


def test_snapshots_are_refused_when_the_list_leads_back(hetzner: Loopback) -> None:
    place = {"page": 1, "per_page": 50}
    pages = {"pagination": place | {"next_page": 1, "total_entries": None}}
    body = json.dumps({"images": [], "meta": pages}).encode()
    hetzner.faults.instead["/images"] = Answer(200, body)

    with pytest.raises(SourceUnreachable):
        Hetzner("x", base_url=hetzner.url, pause=lambda _: None).labelled(
            "images", {"fleet": "trial"}
        )

    assert len(hetzner.received) <= 2


def test_merge_requests_are_refused_when_gitlabs_list_never_ends() -> None:
    def answer(received: Received) -> Answer:
        page = int(received.query["page"])
        headers = {"Content-Type": "application/json", "X-Next-Page": str(page + 1)}
        return Answer(200, b'[{"iid": 1}]', headers | {"X-Total": "2"})

    with Loopback(answer) as server:
        with pytest.raises(SourceUnreachable):
            Gitlab(server.url, "1", "token").open_merge_requests()

        assert len(server.received) == 3
