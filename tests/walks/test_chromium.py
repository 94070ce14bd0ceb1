"""Chromium, allow-listed at a Copr and at a Debusine: a powerful machine, its cost and its end."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

from fleet.queues.copr import BUILD, LIST
from simulators.hetzner.server import SimulatedHetzner
from tests.rigs.loopback import Answer, Loopback, Received
from tests.walks.test_tickets_at_hetzner import api, booting, servers, settled
from tests.walks.walking import Walk

__all__ = ("api", "booting")
pytestmark = pytest.mark.engine
MARKED = {"Content-Type": "application/json", "Copr-FE-BE-API-Version": "6"}
NAMED = {"project_dirname": "ping", "package_name": "chromium", "submitter": "ben"}
# `debusine start 77` gives the request to a powerful machine that is idle; `finish 77` ends it,
# and its worker leaves, for a recording cannot be told to drain it.
DEBUSINE = f"""#!{sys.executable} -IS
import json, os, sys
from datetime import UTC, datetime
verb, request = sys.argv[1:]
now = datetime.fromtimestamp(float(open(os.environ["WALK_CLOCK"]).read()), UTC).isoformat()
with open("debian.json") as file:
    world = json.load(file)
queue = world["queues"]["debian"]
waiting, queue["demand"]["requests"] = queue["demand"]["requests"], []
if verb == "start":
    known = ("task", "package", "scope", "requester")
    work = {{key: waiting[0][key] for key in known}} | dict(started_at=now)
    work["required"] = waiting[0]["required"] + ["extra_powerful"]
    workers = json.loads(os.popen("fleet status --json").read())["workers"]
    free = [each for each in workers if (each["pool"], each["state"]) == ("powerful", "idle")]
    name = free[0]["worker"]
    queue["workers"] = [dict(name=name, state="busy", running=request, work=work, since=now)]
else:
    name = queue["workers"].pop()["name"]
with open("debian.json", "w") as file:
    json.dump(world, file)
print(f"{{name}}: request {{request}} {{verb}}ed")
"""


@pytest.fixture
def copr(walk: Walk) -> Iterator[Loopback]:
    """Return a Copr frontend that lists what copr.json holds."""

    def answer(received: Received) -> Answer:
        if received.path == LIST:
            return Answer(200, (walk.project / "copr.json").read_bytes(), MARKED)
        if received.path.startswith(BUILD):
            return Answer(200, json.dumps(NAMED).encode())
        return Answer(404, b"{}")

    with Loopback(answer) as server:
        walk.words["https://copr.example"] = server.url
        walk.add("debusine", DEBUSINE)
        yield server


def settled_money(text: str) -> str:
    """Return a page without what hangs on the second, or on which machine is made first."""
    text = re.sub(r"(budgets\.powerful\S+ +this month).*", r"\1", settled(text))
    made = re.compile(r"(?:^powerful: create \S+\n)+", re.MULTILINE)
    return made.sub(lambda found: "".join(sorted(found[0].splitlines(True))), text)


@pytest.mark.usefixtures("copr", "booting")
def test_chromium_gets_a_powerful_machine_and_gives_it_back(
    walk: Walk, play: Callable[..., None], api: SimulatedHetzner
) -> None:
    if walk.now().day in range(26, 32):
        walk.run("later 7d")  # so that all of it is in one month
    play("chromium", settled_money)

    assert not servers(api)
    world = walk.json("fleet observe")
    assert world["providers"]["cloud"]["machines"] == []
    assert world["queues"]["copr"]["demand"]["requests"] == []
    budgets = walk.json("fleet plan --json")["budgets"]
    spent = [Decimal(each["spent"]) for each in budgets if not each["coming"]]
    assert [round(each, 1) for each in spent] == [Decimal("39.7")]
