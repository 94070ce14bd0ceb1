"""How Hetzner Cloud's listing is read: whole, or Unknown."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from fleet.clouds.hcloud.machines import HcloudMachines
from fleet.errors import SourceUnreachable
from fleet.model.facts import Listing, Machine, MachineState, Unknown
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import TOKEN, SimulatedHetzner
from tests.builders.sentences import tells
from tests.rigs.hetzner import a_server
from tests.rigs.loopback import Answer, Loopback, html, redirect

MADE = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


@pytest.fixture
def api() -> Iterator[SimulatedHetzner]:
    with SimulatedHetzner(now=lambda: MADE) as simulated:
        yield simulated


def _read(endpoint: str, token: str = TOKEN) -> Listing | Unknown:
    return HcloudMachines(token, base_url=endpoint, now=lambda: NOW).list("demo")


def _machines(api: SimulatedHetzner) -> tuple[Machine, ...]:
    listing = _read(api.endpoint)
    assert isinstance(listing, Listing), listing
    return listing.machines


def _why_unknown(endpoint: str, token: str = TOKEN) -> str:
    unknown = _read(endpoint, token)
    assert isinstance(unknown, Unknown), unknown
    return unknown.unknown


def _why_unknown_after(answer: Answer) -> str:
    with Loopback(lambda _: answer) as liar:
        return _why_unknown(f"{liar.url}/v1")


def test_server_has_all_fields_of_a_decision(api: SimulatedHetzner) -> None:
    server = a_server(api, labels={"fleet": "demo", "pool": "builders", "digest": "abc123"})

    assert _machines(api) == (
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


def test_server_created_from_a_snapshot_has_its_id(api: SimulatedHetzner) -> None:
    a_server(api, image={"id": 77, "name": None, "type": "snapshot"})

    assert _machines(api)[0].image == "77"


def test_server_has_no_image_when_image_was_deleted(api: SimulatedHetzner) -> None:
    a_server(api, image=None)

    assert _machines(api)[0].image is None


def test_server_address_is_private_when_it_has_no_public_one(
    api: SimulatedHetzner,
) -> None:
    nowhere: dict[str, object] = {"ipv4": None, "ipv6": None, "floating_ips": [], "firewalls": []}
    a_server(api, public_net=nowhere, private_net=[{"network": 1, "ip": "10.0.0.2"}])

    assert _machines(api)[0].address == "10.0.0.2"


def test_server_address_is_first_of_ipv6_network(
    api: SimulatedHetzner,
) -> None:
    network = {"id": 1, "ip": "2001:db8:1::/64", "blocked": False, "dns_ptr": []}
    a_server(api, public_net={"ipv4": None, "ipv6": network, "floating_ips": [], "firewalls": []})

    assert _machines(api)[0].address == "2001:db8:1::1"


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("initializing", MachineState.STARTING),
        ("starting", MachineState.STARTING),
        ("rebuilding", MachineState.STARTING),
        ("running", MachineState.RUNNING),
        ("migrating", MachineState.RUNNING),
        ("unknown", MachineState.RUNNING),
        ("stopping", MachineState.STOPPING),
        ("deleting", MachineState.STOPPING),
        ("off", MachineState.STOPPED),
    ],
)
def test_every_status_of_the_api_has_its_state(
    api: SimulatedHetzner, status: str, state: MachineState
) -> None:
    a_server(api, status=status)
    api.state.frozen = True

    assert _machines(api)[0].state is state


def test_listing_is_unknown_when_a_status_is_unknown(
    api: SimulatedHetzner,
) -> None:
    a_server(api, status="dreaming")

    assert tells(_why_unknown(api.endpoint), "demo-builders-0001", "dreaming")


def test_listing_is_unknown_when_own_server_lacks_pool_label(
    api: SimulatedHetzner,
) -> None:
    a_server(api, labels={"fleet": "demo"})

    assert tells(_why_unknown(api.endpoint), "label fleet", "label pool")


def test_all_pages_are_read(api: SimulatedHetzner) -> None:
    for number in range(1, 121):
        a_server(api, f"demo-{number:03}")

    machines = _machines(api)

    assert [machine.name for machine in machines] == [f"demo-{n:03}" for n in range(1, 121)]
    assert [request.query["page"] for request in api.requests] == [["1"], ["2"], ["3"]]


def test_listing_omits_foreign_servers_when_api_ignores_selector(
    api: SimulatedHetzner,
) -> None:
    server = a_server(api, labels={"fleet": "demo-two", "pool": "builders"})
    pagination = {"next_page": None, "total_entries": 1}
    body = json.dumps({"servers": [server], "meta": {"pagination": pagination}})

    with Loopback(lambda _: Answer(200, body.encode())) as liar:
        listing = _read(f"{liar.url}/v1")

    assert isinstance(listing, Listing)
    assert listing.machines == ()


def test_incomplete_listing_is_unknown(api: SimulatedHetzner) -> None:
    a_server(api, "demo-builders-0001")
    a_server(api, "demo-builders-0002")
    api.fail(Fault("GET", "/servers", half_page=True))

    assert tells(_why_unknown(api.endpoint), "/servers", "1 entries", "2")


@pytest.mark.parametrize("following", [1, 1001])
def test_listing_is_unknown_when_pages_never_end(following: int) -> None:
    pagination = {"next_page": following, "total_entries": None}
    body = {"servers": [], "meta": {"pagination": pagination}}

    because = _why_unknown_after(Answer(200, json.dumps(body).encode()))

    assert tells(because, "pages", "page 1", following)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "token"),
        (403, "token"),
        (404, "HCLOUD_ENDPOINT"),
        (429, "hour"),
        (500, ""),
    ],
)
def test_listing_is_unknown_with_advice_when_hetzner_refuses(
    api: SimulatedHetzner, status: int, advice: str
) -> None:
    api.fail(Fault("GET", "/servers", status=status))

    assert tells(_why_unknown(api.endpoint), "/v1/servers", status, advice)


def test_listing_is_unknown_with_wrong_token(api: SimulatedHetzner) -> None:
    unknown = _why_unknown(api.endpoint, token="canary")

    assert "status 401" in unknown
    assert "canary" not in unknown


def test_listing_is_unknown_after_redirect() -> None:
    with Loopback(lambda _: Answer(200, b"{}")) as other:
        assert tells(_why_unknown_after(redirect(other.url)), "redirects", "127.0.0.1")

    assert other.received == []


def test_listing_is_unknown_when_response_is_html() -> None:
    assert tells(_why_unknown_after(html()), "HTML")


def test_listing_is_unknown_when_response_is_truncated(api: SimulatedHetzner) -> None:
    api.fail(Fault("GET", "/servers", broken_off=True))

    assert tells(_why_unknown(api.endpoint), "broke off")


def test_listing_is_unknown_when_a_server_has_no_labels() -> None:
    pages = b'{"pagination": {"next_page": null, "total_entries": 1}}'
    body = b'{"servers": [{"id": 1}], "meta": %s}' % pages

    assert tells(_why_unknown_after(Answer(200, body)), "servers.0.name")


def test_listing_is_unknown_after_timeout(api: SimulatedHetzner) -> None:
    seconds = iter(range(0, 10_000, 200))

    listing = HcloudMachines(api.token, base_url=api.endpoint, clock=lambda: next(seconds)).list(
        "demo"
    )

    assert isinstance(listing, Unknown)
    assert tells(listing.unknown, "300 s")


def test_extend_keeps_other_labels(api: SimulatedHetzner) -> None:
    labels = {"fleet": "demo", "pool": "builders", "owner": "ana"}
    server = a_server(api, labels=labels)

    _machines_of(api).extend([str(server["id"])], NOW)

    noted = api.state.resources["servers"][server["id"]]["labels"]
    assert noted == labels | {"expires": "20261121T090000Z"}


def test_expiry_is_none_when_label_is_not_a_time(api: SimulatedHetzner) -> None:
    a_server(api, labels={"fleet": "demo", "pool": "builders", "expires": "next-week"})

    assert [machine.expires for machine in _machines(api)] == [None]


@pytest.mark.parametrize(("status", "says"), [(429, "429"), (401, "token")])
def test_extend_error_has_reason_of_hetzner(api: SimulatedHetzner, status: int, says: str) -> None:
    server = a_server(api)
    api.fail(Fault("PUT", "/servers/*", status=status, count=1))

    with pytest.raises(SourceUnreachable, match=says):
        _machines_of(api).extend([str(server["id"])], NOW)


def test_extend_continues_when_a_server_cannot_be_labelled(api: SimulatedHetzner) -> None:
    servers = [a_server(api, f"demo-builders-{number:04}") for number in range(1, 5)]
    ids = sorted(str(server["id"]) for server in servers)
    for locked in ids[:2]:
        api.fail(Fault("PUT", f"/servers/{locked}", status=423, count=None))

    with pytest.raises(SourceUnreachable, match=rf"servers/{ids[0]} .* 423: .*and 1 more failed"):
        _machines_of(api).extend(ids, NOW)

    assert {m.id for m in _machines(api) if m.expires == NOW} == set(ids[2:])


@pytest.mark.parametrize("status", [401, 403, 429])
def test_refusal_for_all_servers_is_requested_once(api: SimulatedHetzner, status: int) -> None:
    ids = sorted(str(a_server(api, f"demo-builders-{number:04}")["id"]) for number in (1, 2))
    api.fail(Fault("PUT", f"/servers/{ids[0]}", status=status, count=1))

    with pytest.raises(SourceUnreachable, match=f"status {status}"):
        _machines_of(api).extend(ids, NOW)

    assert [machine.expires for machine in _machines(api)] == [None, None]


def test_delete_error_has_reason_of_hetzner(api: SimulatedHetzner) -> None:
    server = a_server(api)
    api.fail(Fault("DELETE", "/servers/*", status=500, count=1))

    with pytest.raises(SourceUnreachable, match="500"):
        _machines_of(api).delete(str(server["id"]))

    assert len(_machines(api)) == 1


def _machines_of(api: SimulatedHetzner) -> HcloudMachines:
    return HcloudMachines(TOKEN, base_url=api.endpoint, now=lambda: NOW)


def test_api_url_is_read_from_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SimulatedHetzner() as api:
        a_server(api)
        monkeypatch.setenv("HCLOUD_ENDPOINT", api.endpoint)

        listing = HcloudMachines(api.token).list("demo")

    assert isinstance(listing, Listing)
    assert len(listing.machines) == 1
