"""A rule is delivered to Debusine and seen in force: docs/walks/rules-in-force.md."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.rigs.debusine import LIST, METRICS, metrics, one_page, row
from tests.rigs.loopback import Answer, Received
from tests.rigs.task_configuration import OWNER, VIEWER, TaskConfiguration
from tests.walks.walking import Walk

CHROMIUM = {"task:scope:debian", "task:workspace:debian:builds", "task:source-package:chromium"}
AMD64 = "worker:build-arch:amd64"
PEOPLES = {
    "task_type": "Worker",
    "task_name": "sbuild",
    "default_values": {"build_profiles": ["nocheck"]},
    "comment": "a person wrote this",
}


@pytest.mark.slow
def test_delivered_rule_applies_to_later_requests(walk: Walk, play: Callable[..., None]) -> None:
    server = TaskConfiguration({"debian/builds": [PEOPLES]})
    posted = {1: server.configure(CHROMIUM, {AMD64})}

    def answer(received: Received) -> Answer | None:
        if ours(server) and 2 not in posted:
            posted[2] = server.configure(CHROMIUM, {AMD64})
        if received.path == METRICS:
            return metrics({"debian": len(posted)})
        if received.path != LIST:
            return None
        return one_page(*(a_row(number, *tags, walk) for number, tags in posted.items()))

    server.instead = answer
    with server.serve() as loopback:
        walk.words["https://debusine.example.org"] = loopback.url
        walk.environment |= {"DEBUSINE_VIEWER": VIEWER, "DEBUSINE_OWNER": OWNER}
        play("rules-in-force")

        (verdict,) = walk.json("fleet plan --json")["rules"]
        assert (verdict["state"], verdict["expected"]) == ("in-force", 1)
        assert verdict["since"] is not None
        assert PEOPLES in server.entries["debian/builds"]
        assert len(ours(server)) == 1
        world = walk.json("fleet observe")
        held = world["queues"]["debian"]["rules"]["debian/builds"]
        assert (len(held["written"]), held["uncompared"]) == (1, 1)
        assert "nocheck" not in json.dumps(world)
    assert sorted(posted[2][1]) == [AMD64, "worker:class:powerful"]


def ours(server: TaskConfiguration) -> list[dict[str, Any]]:
    """Return the entries that fleet wrote."""
    found = server.entries["debian/builds"]
    return [entry for entry in found if entry.get("path") == "fleet/debian-ci.yaml"]


def a_row(number: int, provided: list[str], required: list[str], walk: Walk) -> dict[str, object]:
    """Return a build of chromium as the list tells it."""
    return row(
        id=number,
        scope="debian",
        workspace="builds",
        worker=None,
        task_name="sbuild",
        created_at=walk.now().isoformat(),
        scheduler_tags_provided=provided,
        scheduler_tags_required=required,
    )
