"""How Hetzner Cloud's listing is read: whole, or Unknown."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from fleet.clouds.hcloud.machines import HcloudMachines, HcloudShared
from fleet.errors import SourceUnreachable
from fleet.model.facts import Listing, Machine, MachineState, Unknown
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import TOKEN, SimulatedHetzner
from tests.builders.sentences import tells
from tests.rigs.hetzner import a_server
from tests.rigs.loopback import Answer, Loopback, html, redirect

MADE = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
DEMO = {"fleet": "demo", "pool": "builders"}


@pytest.fixture
def api() -> Iterator[SimulatedHetzner]:
    with SimulatedHetzner(now=lambda: MADE) as simulated:
        yield simulated


@pytest.fixture
def cloud(api: SimulatedHetzner) -> HcloudMachines:
    return HcloudMachines(TOKEN, base_url=api.endpoint, now=lambda: NOW)


def machines_of(cloud: HcloudMachines) -> tuple[Machine, ...]:
    listing = cloud.list("demo")
    assert isinstance(listing, Listing), listing
    return listing.machines


def why_unknown(endpoint: str, token: str = TOKEN) -> str:
    unknown = HcloudMachines(token, base_url=endpoint, now=lambda: NOW).list("demo")
    assert isinstance(unknown, Unknown), unknown
    return unknown.unknown


def test_server_has_all_fields_of_a_decision(
    api: SimulatedHetzner, cloud: HcloudMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = a_server(api, labels=DEMO | {"digest": "abc123"})
    monkeypatch.setenv("HCLOUD_ENDPOINT", api.endpoint)

    assert machines_of(cloud) == (
        Machine(
            name="demo-builders-0001",
            id=str(server["id"]),
            pool="builders",
            type="ccx33",
            state=MachineState.RUNNING,
            created_at=MADE,
            image="debian-13",
            digest="abc123",
            address=server["public_net"]["ipv4"]["ip"],
        ),
    )
    assert machines_of(HcloudMachines(TOKEN)) == machines_of(cloud)
    foreign = {**server, "labels": DEMO | {"fleet": "demo-two"}}
    with Loopback(lambda _: a_page(foreign)) as liar:  # it ignores the selector
        assert machines_of(HcloudMachines(TOKEN, base_url=f"{liar.url}/v1")) == ()
    unknown = why_unknown(api.endpoint, token="canary")
    assert "status 401" in unknown
    assert "canary" not in unknown


NETWORK = {"id": 1, "ip": "2001:db8:1::/64", "blocked": False, "dns_ptr": []}
NOWHERE: dict[str, object] = {"ipv4": None, "ipv6": None, "floating_ips": [], "firewalls": []}


@pytest.mark.parametrize(
    ("told", "field", "value"),
    [
        ({"image": {"id": 77, "name": None, "type": "snapshot"}}, "image", "77"),
        ({"image": None}, "image", None),
        (
            {"public_net": NOWHERE, "private_net": [{"network": 1, "ip": "10.0.0.2"}]},
            "address",
            "10.0.0.2",
        ),
        ({"public_net": NOWHERE | {"ipv6": NETWORK}}, "address", "2001:db8:1::1"),
        ({"labels": DEMO | {"expires": "next-week"}}, "expires", None),
        *(
            ({"status": status}, "state", state)
            for state, known in {
                MachineState.STARTING: ("initializing", "starting", "rebuilding"),
                MachineState.RUNNING: ("running", "migrating", "unknown"),
                MachineState.STOPPING: ("stopping", "deleting"),
                MachineState.STOPPED: ("off",),
            }.items()
            for status in known
        ),
    ],
)
def test_machine_has_state_and_address_of_its_server(
    api: SimulatedHetzner,
    cloud: HcloudMachines,
    told: dict[str, object],
    field: str,
    value: object,
) -> None:
    a_server(api, **told)  # type: ignore[arg-type] # labels are among them
    api.state.frozen = True

    assert getattr(machines_of(cloud)[0], field) == value


def test_all_pages_of_servers_and_shared_parts_are_read(
    api: SimulatedHetzner, cloud: HcloudMachines
) -> None:
    for number in range(1, 121):
        a_server(api, f"demo-{number:03}")
    api.state.resources["ssh_keys"] = {
        number: {"id": number, "name": f"key-{number}", "labels": {"fleet": "debian"}}
        for number in range(1, 121)
    }

    machines = machines_of(cloud)

    assert [machine.name for machine in machines] == [f"demo-{n:03}" for n in range(1, 121)]
    assert [request.query["page"] for request in api.requests] == [["1"], ["2"], ["3"]]
    shared = HcloudShared(api.token, base_url=api.endpoint).list("debian")
    assert shared == {f"ssh_key/key-{number}": str(number) for number in range(1, 121)}


def a_page(*servers: object, following: int | None = None, total: int | None = 1) -> Answer:
    pagination = {"next_page": following, "total_entries": total}
    body = {"servers": servers, "meta": {"pagination": pagination}}
    return Answer(200, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("begin", "words"),
    [
        (lambda api: a_server(api, status="dreaming"), ("demo-builders-0001", "dreaming")),
        (lambda api: a_server(api, labels={"fleet": "demo"}), ("label fleet", "label pool")),
        (
            lambda api: api.fail(Fault("GET", "/servers", half_page=True)),
            ("/servers", "1 entries", "2"),
        ),
        (lambda api: api.fail(Fault("GET", "/servers", broken_off=True)), ("broke off",)),
        *(
            (
                lambda api, status=status: api.fail(Fault("GET", "/servers", status=status)),
                ("/v1/servers", status, advice),
            )
            for status, advice in {
                401: "token",
                403: "token",
                404: "HCLOUD_ENDPOINT",
                429: "hour",
                500: "",
            }.items()
        ),
    ],
)
def test_listing_is_unknown_when_the_api_fails(
    api: SimulatedHetzner, begin: Callable[[SimulatedHetzner], object], words: tuple[object, ...]
) -> None:
    begin(api)
    for number in (2, 3):
        a_server(api, f"demo-builders-{number:04}")

    assert tells(why_unknown(api.endpoint), *words)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (a_page(following=1, total=None), ("pages", "page 1", 1)),
        (a_page(following=1001, total=None), ("pages", "page 1", 1001)),
        (a_page({"id": 1}), ("servers.0.name",)),
        (html(), ("HTML",)),
        (redirect("http://127.0.0.2:1/"), ("redirects", "127.0.0.2")),
    ],
)
def test_listing_is_unknown_when_the_answer_is_invalid(
    answer: Answer, words: tuple[object, ...]
) -> None:
    with Loopback(lambda _: answer) as liar:
        assert tells(why_unknown(f"{liar.url}/v1"), *words)


def test_listing_is_unknown_after_timeout(api: SimulatedHetzner) -> None:
    seconds = iter(range(0, 10_000, 200))

    listing = HcloudMachines(TOKEN, base_url=api.endpoint, clock=lambda: next(seconds)).list(
        "demo"
    )

    assert isinstance(listing, Unknown)
    assert tells(listing.unknown, "300 s")


def test_extend_keeps_other_labels(api: SimulatedHetzner, cloud: HcloudMachines) -> None:
    server = a_server(api, labels=DEMO | {"owner": "ana"})

    cloud.extend([str(server["id"])], NOW)

    noted = api.state.resources["servers"][server["id"]]["labels"]
    assert noted == DEMO | {"owner": "ana", "expires": "20261121T090000Z"}


@pytest.mark.parametrize(
    ("status", "extended", "words"),
    [
        (423, 2, "servers/{} .* 423: .*and 1 more failed"),
        # It is refused for all servers, and so asked once.
        (401, 0, "token"),
        (403, 0, "status 403"),
        (429, 0, "status 429"),
    ],
)
def test_extend_continues_unless_all_are_refused(
    api: SimulatedHetzner, cloud: HcloudMachines, status: int, extended: int, words: str
) -> None:
    ids = sorted(str(a_server(api, f"demo-{number}")["id"]) for number in range(4))
    for each in ids[:2]:
        api.fail(Fault("PUT", f"/servers/{each}", status=status, count=None))

    with pytest.raises(SourceUnreachable, match=words.format(ids[0])):
        cloud.extend(ids, NOW)

    assert sum(machine.expires == NOW for machine in machines_of(cloud)) == extended


def test_delete_error_has_reason_of_hetzner(api: SimulatedHetzner, cloud: HcloudMachines) -> None:
    server = a_server(api)
    api.fail(Fault("DELETE", "/servers/*", status=500, count=1))

    with pytest.raises(SourceUnreachable, match="500"):
        cloud.delete(str(server["id"]))

    assert len(machines_of(cloud)) == 1
