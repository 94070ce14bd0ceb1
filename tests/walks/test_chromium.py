"""Chromium, allow-listed at a Copr and at a Debusine: a powerful machine, its cost and its end."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

from fleet.queues.copr import BUILD, LIST
from tests.docs.test_documents import steady
from tests.rigs.loopback import Answer, Loopback, Received
from tests.walks.walking import Walk

MARKED = {"Content-Type": "application/json", "Copr-FE-BE-API-Version": "6"}
NAMED = {"project_dirname": "ping", "package_name": "chromium", "submitter": "ben"}
# `debusine start 77` gives the request to a powerful machine that is idle, `finish 77` ends it.
DEBUSINE = f"""#!{sys.executable} -IS
import json, os, sys
from datetime import UTC, datetime
verb, request = sys.argv[1:]
now = datetime.fromtimestamp(float(open(os.environ["WALK_CLOCK"]).read()), UTC).isoformat()
tickets = os.popen("fleet ticket list --json").read()
with open(".fleet/sim-cloud.json") as file:
    cloud = json.load(file)
machines = cloud["machines"].values()
running = [each for each in machines if each["running"] == request]
free = [each for each in machines if each["inputs"]["name"] not in tickets]
machine = (running or [each for each in free if each["inputs"]["type"] == "mons"])[0]
machine["running"], machine["since"] = (request if verb == "start" else None), now
machine["uses"] += verb == "finish"
with open(".fleet/sim-cloud.json", "w") as file:
    json.dump(cloud, file)
with open("debian.json") as file:
    queue = json.load(file)
queue["queues"]["debian"]["demand"]["requests"] = []
with open("debian.json", "w") as file:
    json.dump(queue, file)
print(f"{{machine['inputs']['name']}}: request {{request}} {{verb}}ed")
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


def settled(text: str) -> str:
    """Return a page without what hangs on the second: what work is charged, what is left paid."""
    charged = re.sub(r"(budgets\.powerful\S+ +this month).*", r"\1", steady(text))
    return re.sub(r"paid for \d+m( \d+s)?", "paid for SOME", charged)


@pytest.mark.usefixtures("copr")
def test_chromium_gets_a_powerful_machine_and_gives_it_back(
    walk: Walk, play: Callable[..., None]
) -> None:
    if walk.now().day in range(26, 32):
        walk.run("later 7d")  # so that all of it is in one month
    play("chromium", settled)

    world = walk.json("fleet observe")
    assert world["providers"]["cloud"]["machines"] == []
    assert world["queues"]["copr"]["demand"]["requests"] == []
    budgets = walk.json("fleet plan --json")["budgets"]
    spent = [Decimal(each["spent"]) for each in budgets if not each["coming"]]
    assert [round(each, 1) for each in spent] == [Decimal("1.2")]
