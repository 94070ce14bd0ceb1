"""This module holds how Hetzner Cloud's listing is read: whole, or Unknown."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from fleet.facts import Listing, Machine, MachineState, Unknown
from fleet.providers.hcloud import HcloudMachines
from fleet.schema.model import HcloudProvider
from tests.fake_hcloud import FakeHcloud, a_server
from tests.loopback import Answer, Loopback, html, redirect

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
SERVERS = "/v1/servers"
PROVIDER = HcloudProvider.model_validate(
    {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}
)


@pytest.fixture
def api() -> Iterator[FakeHcloud]:
    with FakeHcloud(a_server()) as fake:
        yield fake


def _read(api: FakeHcloud, token: str = FakeHcloud.token) -> Listing | Unknown:
    return HcloudMachines(PROVIDER, token, base_url=api.endpoint, now=lambda: NOW).list("demo")


def _machines(api: FakeHcloud) -> tuple[Machine, ...]:
    listing = _read(api)
    assert isinstance(listing, Listing), listing
    return listing.machines


def _why_unknown(api: FakeHcloud, token: str = FakeHcloud.token) -> str:
    unknown = _read(api, token)
    assert isinstance(unknown, Unknown), unknown
    return unknown.unknown


def test_a_server_is_read_with_everything_a_decision_rests_on(api: FakeHcloud) -> None:
    labels = {"fleet": "demo", "pool": "builders", "digest": "abc123"}
    api.servers = [a_server(labels=labels)]

    assert _machines(api) == (
        Machine(
            name="demo-builders-1",
            id="1",
            pool="builders",
            type="ccx33",
            state=MachineState.RUNNING,
            created_at=datetime(2026, 11, 21, 8, 0, tzinfo=UTC),
            image="debian-13",
            digest="abc123",
            address="203.0.113.5",
        ),
    )


def test_a_server_made_from_a_snapshot_names_it_by_id(api: FakeHcloud) -> None:
    api.servers = [a_server(image={"id": 77, "name": None, "type": "snapshot"})]

    assert _machines(api)[0].image == "77"


def test_a_server_whose_image_was_deleted_has_none(api: FakeHcloud) -> None:
    api.servers = [a_server(image=None)]

    assert _machines(api)[0].image is None


def test_a_server_without_a_public_address_is_known_by_its_private_one(api: FakeHcloud) -> None:
    nowhere: dict[str, object] = {"ipv4": None, "ipv6": None, "floating_ips": []}
    api.servers = [a_server(public_net=nowhere, private_net=[{"network": 1, "ip": "10.0.0.2"}])]

    assert _machines(api)[0].address == "10.0.0.2"


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
    api: FakeHcloud, status: str, state: MachineState
) -> None:
    api.servers = [a_server(status=status)]

    assert _machines(api)[0].state is state


def test_a_status_that_fleet_does_not_know_makes_the_listing_unknown(api: FakeHcloud) -> None:
    api.servers = [a_server(status="dreaming")]

    assert "server 'demo-builders-1' is in the state 'dreaming'" in _why_unknown(api)


def test_a_server_of_this_fleet_without_a_pool_makes_the_listing_unknown(api: FakeHcloud) -> None:
    api.servers = [a_server(labels={"fleet": "demo"})]

    assert "carries the label fleet but no label pool" in _why_unknown(api)


def test_all_pages_are_read(api: FakeHcloud) -> None:
    api.servers = [a_server(id=number, name=f"demo-{number:03}") for number in range(1, 121)]

    machines = _machines(api)

    assert [machine.name for machine in machines] == [f"demo-{n:03}" for n in range(1, 121)]
    assert [received.query["page"] for received in api.received] == ["1", "2", "3"]


def test_an_api_that_ignores_the_selector_does_not_make_other_servers_ours() -> None:
    body = {
        "servers": [a_server(labels={"fleet": "demo-two", "pool": "builders"})],
        "meta": {"pagination": {"next_page": None, "total_entries": 1}},
    }

    with FakeHcloud() as api:
        api.faults.instead[SERVERS] = Answer(200, json.dumps(body).encode())

        assert _machines(api) == ()


def test_half_a_listing_is_unknown(api: FakeHcloud) -> None:
    api.servers = [a_server(id=1), a_server(id=2)]
    api.hidden = 1

    assert "listed 1 servers of fleet demo, but counts 2" in _why_unknown(api)


@pytest.mark.parametrize("following", [1, 1001])
def test_pages_that_do_not_end_are_unknown(api: FakeHcloud, following: int) -> None:
    pagination = {"next_page": following, "total_entries": None}
    body = {"servers": [], "meta": {"pagination": pagination}}
    api.faults.instead[SERVERS] = Answer(200, json.dumps(body).encode())

    assert f"its pages do not end (page 1 leads to {following})" in _why_unknown(api)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "the token is wrong or was deleted"),
        (403, "the token may not look at servers"),
        (404, "is HCLOUD_ENDPOINT the address of the API"),
        (429, "too many questions in this hour"),
        (500, "the trouble is the provider's"),
    ],
)
def test_a_refusal_is_unknown_and_says_what_to_do(
    api: FakeHcloud, status: int, advice: str
) -> None:
    api.faults.instead[SERVERS] = Answer(status, b"{}")

    assert f"{SERVERS} answered with status {status}: {advice}" in _why_unknown(api)


def test_a_wrong_token_is_unknown_and_is_not_shown(api: FakeHcloud) -> None:
    unknown = _why_unknown(api, token="canary")

    assert "status 401" in unknown
    assert "canary" not in unknown


def test_a_redirect_is_unknown_and_the_token_is_not_sent_there(api: FakeHcloud) -> None:
    with Loopback(lambda _: Answer(200, b"{}")) as other:
        api.faults.instead[SERVERS] = redirect(other.url)

        assert "redirects to the host 127.0.0.1" in _why_unknown(api)

    assert other.received == []


def test_a_page_instead_of_json_is_unknown(api: FakeHcloud) -> None:
    api.faults.instead[SERVERS] = html()

    assert "answered with an HTML page" in _why_unknown(api)


def test_an_answer_that_breaks_off_is_unknown(api: FakeHcloud) -> None:
    api.faults.truncate = {1}

    assert "broke off in the middle of its answer" in _why_unknown(api)


def test_a_server_without_labels_is_of_another_shape(api: FakeHcloud) -> None:
    body = b'{"servers": [{"id": 1}], "meta": {"pagination": {}}}'
    api.faults.instead[SERVERS] = Answer(200, body)

    assert "at servers.0.name: Field required" in _why_unknown(api)


def test_a_listing_that_takes_too_long_is_unknown(api: FakeHcloud) -> None:
    seconds = iter(range(0, 10_000, 200))

    listing = HcloudMachines(
        PROVIDER, api.token, base_url=api.endpoint, clock=lambda: next(seconds)
    ).list("demo")

    assert isinstance(listing, Unknown)
    assert "was not read within 300 s" in listing.unknown


def test_the_endpoint_may_come_from_the_environment(
    api: FakeHcloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCLOUD_ENDPOINT", api.endpoint)

    listing = HcloudMachines(PROVIDER, api.token).list("demo")

    assert isinstance(listing, Listing)
