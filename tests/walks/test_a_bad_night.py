"""A bad image at two in the morning: alert, freeze, console, rollback, undo, log."""

import re
import socket
import sys

import pytest

from tests.rigs.process import ROOT
from tests.walks.conftest import Play
from tests.walks.test_a_security_fix import RELEASE, archive
from tests.walks.test_an_image import BAKE, settle
from tests.walks.walking import Walk

__all__ = ("archive",)
# `spoil` has the newest version of an image not boot; `wait_for ID...` is what waits from now on.
SPOIL = f"""#!{sys.executable} -IS
import json, pathlib, subprocess
listed = json.loads(subprocess.check_output(["fleet", "image", "list", "--json"]))
newest = listed["images"][0]["versions"][0]
named = next(iter(newest["publications"].values()))["id"]
path = pathlib.Path("fleet.yaml")
spoilt = "boot: 60s, faults: {{never_boots: [" + json.dumps(named) + "]}}"
path.write_text(path.read_text().replace("boot: 60s", spoilt))
"""
WAIT_FOR = f"""#!{sys.executable} -IS
import json, pathlib, sys
path = pathlib.Path("world.json")
world = json.loads(path.read_text())
demand = world["queues"]["debian"]["demand"]
demand["requests"] = [{{"id": each, "task": "sbuild"}} for each in sys.argv[1:]]
path.write_text(json.dumps(world))
"""


def settled(text: str) -> str:
    """Return a page without digests, months, and sums that grow while the program runs.

    The real engine deletes machines of one plan in any order.
    """
    text = re.sub(
        r"(?m)(?:^builders: delete .*\n)+",
        lambda found: "".join(sorted(found[0].splitlines(keepends=True))),
        text,
    )
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", settle(text))
    text = re.sub(r"\b\d{4}-\d\d(?=[:\s])", "MONTH", text)
    return re.sub(r"\b\d+\.\d\d?\b", "SUM", text)


# Found by Pulumi before the one that fleet itself puts there.
PLUGIN = f"""#!/bin/sh
export PYTHONPATH={ROOT}
exec {sys.executable} -uc 'from tests.walks.later import serve_simulated_machines as s; s()' "$@"
"""


@pytest.mark.slow
@pytest.mark.usefixtures("archive")
def test_walk_of_a_bad_night(walk: Walk, play: Play) -> None:
    """The person has only the runbook; in the end nothing is frozen, held, broken or unlogged."""
    play_the_night(walk, play)


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.usefixtures("archive")
def test_walk_of_a_bad_night_with_pulumi(walk: Walk, play: Play) -> None:
    """What the page says holds where Pulumi makes and deletes the machines."""
    walk.words |= {
        "desk: {kind: sim,": "desk: {kind: sim, engine: pulumi,",
        "cadence: 10m\n": "cadence: 10m\nstate: {passphrase: {env: FLEET_PASS}}\n",
    }
    plugins = walk.folder / "bin"
    walk.add("pulumi-resource-sim", PLUGIN)
    walk.environment |= {
        "FLEET_PASS": "a passphrase for tests",
        "FLEET_PULUMI_PLUGINS": str(plugins),
    }

    play_the_night(walk, play)

    assert list(walk.project.rglob(".pulumi/stacks/fleet-sim/debian-ci-builders.json"))


def play_the_night(walk: Walk, play: Play) -> None:
    """Play the page, and see that all is well in the end."""
    programs = {"bake": BAKE, "release": RELEASE, "spoil": SPOIL, "wait_for": WAIT_FOR}
    for name, text in programs.items():
        walk.add(name, text)
    walk.environment["LOGNAME"] = "ada"
    walk.words |= {f"ada{at}desk": f"ada{at}{socket.gethostname()}" for at in ("@", " at ")}

    play("a-bad-night", settled)

    plan = walk.json("fleet plan --json")
    assert (plan["actions"], plan.get("orders"), plan["attention"]) == ([], None, [])
    workers = walk.json("fleet status --json")["workers"]
    assert len(workers) == 5
    assert len({each["image"] for each in workers}) == 1
    kinds = [each["kind"] for each in walk.json("fleet log --last 0 --json")["entries"]]
    assert {"freeze", "hold", "rollback", "release", "unfreeze", "create", "delete"} <= {*kinds}
