"""Moving to fleet from what makes machines today, and back: docs/walks/move-from-….md."""

import json
from collections.abc import Callable

from tests.rigs.loopback import Answer, Loopback, Received
from tests.walks.walking import Walk

ADMIN = """#!/bin/sh
echo "$*" >> told
"""


def test_moving_from_debusine_s_own_pools(walk: Walk, play: Callable[..., None]) -> None:
    walk.add("debusine-admin", ADMIN)

    play("move-from-debusine-pools")

    told = (walk.project / "told").read_text(encoding="utf-8").splitlines()
    assert told == ["worker_pool disable builders", "worker_pool enable builders"]
    cloud = json.loads((walk.project / ".fleet/sim-lab-account.json").read_text(encoding="utf-8"))
    assert cloud["machines"] == {}


def test_moving_from_copr(walk: Walk, play: Callable[..., None]) -> None:
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


def test_moving_from_resalloc(walk: Walk, play: Callable[..., None]) -> None:
    """Resalloc's own commands are played: it has no machines left once its pool has max 0."""
    walk.add("resalloc-maint", "#!/bin/sh\ntrue\n")
    walk.add("systemctl", ADMIN)

    play("move-from-resalloc")

    assert list((walk.project / "machines").iterdir()) == []
    changes = json.loads((walk.project / "changes.json").read_text(encoding="utf-8"))
    assert len(changes["changes"]) == 10
    told = (walk.project / "told").read_text(encoding="utf-8").splitlines()
    assert told == ["disable --now resalloc", "enable --now resalloc"]
