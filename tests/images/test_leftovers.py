"""`machine delete --expired` also finds machines left by a build or an upload that died."""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from fleet.cli.machine import delete_leftovers
from fleet.clouds.hcloud.images import Hetzner, left_temporary
from fleet.schema.model import Fleet
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.rigs.hetzner import a_server
from tests.rigs.loopback import Answer, Loopback, Received

FLEET = Fleet.model_validate(
    {
        "fleet": "demo",
        "providers": {
            "hetzner": {"kind": "hcloud", "location": "fsn1", "token": {"env": "TOKEN"}}
        },
    }
)
LEFT = {"fleet": "demo", "temporary": "build", "image": "trixie", "version": "20261121T060000Z"}
LATER = NOW + timedelta(hours=7)


class Notes:
    """A console that keeps what it is told."""

    colour = False
    watched = can_ask = False

    def __init__(self) -> None:
        self.notes: list[str] = []

    def out(self, text: str) -> None:
        raise AssertionError(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def ask(self, _: str) -> str:
        return ""

    def columns(self, piped: int | None) -> int | None:
        return piped

    def progress(self, text: str) -> None:
        raise AssertionError(text)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedHetzner]:
    with SimulatedHetzner(now=lambda: NOW) as simulated:
        monkeypatch.setenv("HCLOUD_ENDPOINT", simulated.endpoint)
        monkeypatch.setenv("TOKEN", simulated.token)
        yield simulated


def names(api: SimulatedHetzner) -> list[str]:
    return [each["name"] for each in api.state.servers.values()]


def test_only_old_leftover_machine_is_deleted_with_apply(api: SimulatedHetzner) -> None:
    a_server(api, "left", LEFT)
    a_server(api, "worker")
    a_server(api, "theirs", {**LEFT, "fleet": "demo-2"})
    console = Notes()

    delete_leftovers(FLEET, "fleet.yaml", NOW + timedelta(hours=3), console, True)
    assert delete_leftovers(FLEET, "fleet.yaml", LATER, console, False)

    assert names(api) == ["left", "worker", "theirs"]
    assert tells(console.notes[-1], "hetzner", "server left", "--apply")
    assert len(console.notes) == 1
    assert delete_leftovers(FLEET, "fleet.yaml", LATER, console, True)
    assert names(api) == ["worker", "theirs"]
    assert len(console.notes) == 2


@pytest.mark.parametrize("labels", [{}, {"fleet": "demo"}, {**LEFT, "fleet": "other"}])
def test_machine_is_kept_when_api_ignores_selector(labels: dict[str, str]) -> None:
    server = {"id": 7, "name": "theirs", "labels": labels, "created": "2026-11-21T06:00:00Z"}
    place = {"page": 1, "per_page": 50, "next_page": None, "total_entries": 1}

    def answer(received: Received) -> Answer:
        name = received.path.rpartition("/")[2]
        return Answer(200, json.dumps({name: [server], "meta": {"pagination": place}}).encode())

    with Loopback(answer) as loopback:
        api = Hetzner("x", base_url=loopback.url, pause=lambda _: None)
        left = left_temporary(api, "demo", LATER, delete=True)

    assert left == ()
    assert {each.method for each in loopback.received} == {"GET"}


def test_unreachable_provider_is_reported(
    api: SimulatedHetzner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "another")
    console = Notes()

    assert not delete_leftovers(FLEET, "fleet.yaml", LATER, console, True)

    assert tells(console.notes[0], "unknown")
    assert api.requests == []
