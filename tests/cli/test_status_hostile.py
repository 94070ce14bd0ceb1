"""Pages of `fleet status --site`: names of requests do nothing, and no secret is in any byte."""

import json
from pathlib import Path

import pytest

from tests.rigs.canary import find_leaks, in_files
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml
from tests.site.test_site import SitePage

HOSTILE = (
    "<script>alert(1)</script>\"'&",
    "<img src=x onerror=alert(1)>",
    "![x](https://evil.example.org/x.png) `x` /approve @all",
    "\x1b[2J\x1b]8;;https://evil.example.org\x07x",
    "\u202eevil\u2066x\u200b",
    "../../../../etc/passwd",
)
SECRETS = {"TOKEN": "canary-cloud-token-1f", "OF_HOOKS": "canary-of-hooks-2e"}
POOLS = {
    "builders": "{provider: desk, machine: ccx33, image: trixie, workers: {max: 1}}",
    "mine": "{provider: own, machine: {cores: 1, memory: 1GiB, price: 0 EUR/h},"
    " image: trixie, provides: [mine], workers: {max: 1}}",
}
OWN = """  own:
    kind: hooks
    new: [sh, -c, 'cat; echo "$OF_HOOKS" >&2; exit 1']
    delete: [sh, -c, 'echo "$OF_HOOKS"; exit 1']
    list: [sh, -c, 'echo "$OF_HOOKS $TOKEN" >&2; echo "[]"']
    environment: [OF_HOOKS, TOKEN]
queues:"""


def hostile_world() -> dict[str, object]:
    """Return requests that wait, in which every text of the queue is hostile."""
    moment = "2026-11-21T08:00:00Z"
    requests = [
        {
            "id": f"{number}{text}",
            "required": [*([text] if number % 2 else []), *(["mine"] if number == 0 else [])],
            "pending_since": moment,
            **dict.fromkeys(("package", "task", "scope", "workspace", "requester", "team"), text),
        }
        for number, text in enumerate(HOSTILE)
    ]
    demand = {"demand": {"read_at": moment, "requests": requests}}
    return {"fleet": "trial", "time": moment, "queues": {"work": demand}}


def test_status_escapes_hostile_names_and_contains_no_secret(
    project: Path, run_fleet: RunFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    trial = Trial(project)
    trial.write(fleet_yaml(pools=POOLS).replace("queues:", OWN, 1))
    (project / "world.json").write_text(json.dumps(hostile_world()), encoding="utf-8")
    trial.init()
    trial.do("apply")

    done = run_fleet("status", "--site", "site")

    assert done.returncode == 0, done.stderr
    pages = {str(path): path.read_text("utf-8") for path in (project / "site").rglob("*.html")}
    shown = "".join(pages.values())
    assert "&lt;script&gt;" in shown
    assert "&lt;img src=x" in shown
    assert [path for path, text in pages.items() if SitePage(text).broken] == []
    for acts in ("<script", "<img", 'href="https:', 'href="javascript:'):
        assert acts not in shown
    for page in pages.values():
        assert page.replace("\n", "").isprintable()
    assert {path.name for path in project.parent.iterdir()} <= {"project", "home"}
    assert find_leaks(SECRETS, in_files(project)) == []
