"""Moving to fleet from what makes machines today, and back: docs/walks/move-from-….md."""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.rigs.loopback import Answer, Loopback, Received, free_ports
from tests.rigs.process import ROOT
from tests.walks.walking import Walk

pytestmark = pytest.mark.slow

ADMIN = """#!/bin/sh
echo "$*" >> told
"""


# The unit fleet-tickets is `fleet serve` at the time of the story; the others are only noted.
SYSTEMCTL = """#!{python} -I
import os, select, signal, subprocess, sys
verb, *_, unit = sys.argv[1:]
with open("told", "a") as told:
    print(*sys.argv[1:], file=told)
if (unit, verb) == ("fleet-tickets", "enable"):
    program = [sys.executable, "-c", "from tests.walks.later import main; main()"]
    with open("serve.log", "w") as log:
        serve = subprocess.Popen(
            [*program, "serve", "--listen", "127.0.0.1:{port}", "--every", "1h"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    with open("serve.pid", "w") as file:
        file.write(str(serve.pid))
elif unit == "fleet-tickets":
    with open("serve.pid") as file:
        pid = int(file.read())
    serve = os.pidfd_open(pid)
    os.kill(pid, signal.SIGTERM)
    select.select([serve], [], [])
    os.remove("serve.pid")
"""
# Its own clients ask again, too, where nobody listens yet.
RESALLOC = """#!{python} -I
import argparse, sys, time
sys.path.insert(0, "{root}")
from tests.rigs.resalloc_client import OldClient
client = OldClient("http://127.0.0.1:{port}", patience=600, pause=lambda: time.sleep(0.1))
parser = argparse.ArgumentParser()
commands = parser.add_subparsers(dest="command")
ticket = commands.add_parser("ticket")
ticket.add_argument("--tag", action="append")
ticket.add_argument("--sandbox")
for name in ("ticket-wait", "ticket-close"):
    commands.add_parser(name).add_argument("ticket", type=int)
args = parser.parse_args()
match args.command:
    case "ticket":
        print(client.take(*args.tag, sandbox=args.sandbox))
    case "ticket-wait":
        print(str(client.wait(args.ticket)).rstrip())
    case "ticket-close":
        client.close(args.ticket)
"""


def test_walk_of_the_move_from_debusines_pools(walk: Walk, play: Callable[..., None]) -> None:
    walk.add("debusine-admin", ADMIN)

    play("move-from-debusine-pools")

    told = (walk.project / "told").read_text(encoding="utf-8").splitlines()
    assert told == ["worker_pool disable builders", "worker_pool enable builders"]
    cloud = json.loads((walk.project / ".fleet/sim-lab-account.json").read_text(encoding="utf-8"))
    assert cloud["machines"] == {}


def test_walk_of_the_move_from_copr(walk: Walk, play: Callable[..., None]) -> None:
    """Copr itself is a frontend that lists builds, and reads its tags from copr.conf."""
    packages = {"7": ("ping", "chromium"), "9": ("copr-pull-requests:pr:7", "copr-cli")}

    def answer(received: Received) -> Answer:
        *_, last = received.path.split("/")
        if last in packages:
            named = dict(zip(("project_dirname", "package_name"), packages[last], strict=True))
            return Answer(200, json.dumps(named).encode())
        rules = (walk.project / "copr.conf").read_text(encoding="utf-8")
        jobs = [a_job(7, "praiskup", "ping", ["extra_powerful"])]
        delivered = ["extra_powerful"] if "(?::" in rules else []
        jobs += [a_job(9, "@copr", "copr-pull-requests", delivered)]
        headers = {"Content-Type": "application/json", "Copr-FE-BE-API-Version": "8"}
        return Answer(200, json.dumps(jobs).encode(), headers)

    with Loopback(answer) as frontend:
        walk.words["https://copr.example.org"] = frontend.url
        play("move-from-copr")

        (verdict,) = walk.json("fleet plan --json")["rules"]
    assert (verdict["state"], len(verdict["missing"]), len(verdict["extra"])) == ("differs", 3, 4)


def a_job(number: int, owner: str, project: str, tags: list[str]) -> dict[str, object]:
    """Return a build as Copr's list tells it."""
    return {
        "task_id": str(number),
        "build_id": number * 100,
        "project_owner": owner,
        "sandbox": f"{owner}/{project}--somebody",
        "background": False,
        "chroot": "fedora-42-x86_64",
        "tags": tags,
    }


def test_walk_of_the_move_from_resalloc(walk: Walk, play: Callable[..., None]) -> None:
    """Resalloc's own commands are played: it has no machines left once its pool has max 0."""
    walk.add("resalloc-maint", "#!/bin/sh\ntrue\n")
    (port,) = free_ports(1)
    played = {"python": sys.executable, "root": ROOT, "port": port}
    walk.add("systemctl", SYSTEMCTL.format(**played))
    walk.add("resalloc", RESALLOC.format(**played))

    try:
        play("move-from-resalloc")
    finally:
        with suppress(OSError, ValueError):
            os.kill(int((walk.project / "serve.pid").read_text()), signal.SIGTERM)

    assert list((walk.project / "machines").iterdir()) == []
    changes = json.loads((walk.project / "changes.json").read_text(encoding="utf-8"))
    assert len(changes["changes"]) == 8
    told = (walk.project / "told").read_text(encoding="utf-8").splitlines()
    assert told == [
        "disable --now resalloc",
        "enable --now fleet-tickets",
        "disable --now fleet-tickets",
        "enable --now resalloc",
    ]


def test_walk_imports_commands_of_resalloc(walk: Walk, play: Callable[..., None]) -> None:
    """Scripts and operators of Resalloc do their day's work; no machine is left in the end."""
    (port,) = free_ports(1)
    played = {"python": sys.executable, "root": ROOT, "port": port}
    walk.add("systemctl", SYSTEMCTL.format(**played))
    walk.add("resalloc", RESALLOC.format(**played))
    walk.words["http://127.0.0.1:49100"] = f"http://127.0.0.1:{port}"

    try:
        play("commands-of-resalloc")
    finally:
        with suppress(OSError, ValueError):
            os.kill(int((walk.project / "serve.pid").read_text()), signal.SIGTERM)

    assert list((walk.project / "machines").iterdir()) == []
    runs = walk.json("fleet state show --json")["runs"]
    assert not runs[0]["plan"]
