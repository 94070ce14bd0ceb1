"""`fleet check`: a fleet's own policies, each failing one a finding with its place."""

import json
import shutil
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fleet.apply import policies as applied
from fleet.cli import check
from fleet.model.policies import Failure, PolicyTest
from fleet.schema.source import Document
from tests.rigs.process import Completed, RunFleet

FLEET = """\
fleet: policed
include: [fleet.d/*.yaml]
providers:
  desk: {kind: sim}
queues:
  work: {kind: world, path: world.json}
images:
  trixie: {suite: trixie, architecture: amd64}
templates:
  usual: {provider: desk, image: trixie, machine: ccx33}
pools:
  builders: {extends: [usual], workers: {max: 4, min: 1}}
"""
INCLUDED = """\
pools:
  large:
    extends: [usual]
    workers:
      max: 30
"""
POLICY = '''\
"""What this fleet asks of itself."""


def test_holds(fleet, plan, world, base):
    assert fleet.fleet == plan.fleet == world.fleet
    assert plan.change is None
    assert base is None


def test_pools_are_small(fleet, require):
    for name, pool in fleet.pools.items():
        require(pool.workers.max < 3, f"{name} is large", at=("pools", name, "workers", "max"))


def test_is_called_otherwise(fleet):
    name = fleet.fleet
    assert name == "other", f"it is called {name}"
'''
WORLD = {
    "format": "fleet-world-1",
    "fleet": "policed",
    "time": "2026-11-21T08:00:00Z",
    "queues": {"work": {"demand": {"read_at": "2026-11-21T08:00:00Z"}}},
    "providers": {"desk": {"read_at": "2026-11-21T08:00:00Z"}},
}
pytestmark = pytest.mark.usefixtures("policed")


@pytest.fixture
def policed(project: Path) -> Path:
    """Return a project with two pools, one of them in an included file, and one policy."""
    (project / "fleet.d").mkdir()
    (project / "policies").mkdir()
    (project / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    (project / "fleet.d/large.yaml").write_text(INCLUDED, encoding="utf-8")
    (project / "policies/own.py").write_text(POLICY, encoding="utf-8")
    (project / "world.json").write_text(json.dumps(WORLD), encoding="utf-8")
    return project


def places(ran: Completed) -> list[tuple[str, int, str]]:
    """Return file, line and rule of each finding."""
    found = json.loads(ran.stdout)["findings"]
    return [(each["span"]["file"], each["span"]["line"], each["rule"]) for each in found]


def test_each_report_has_the_place_of_a_key_or_a_test(policed: Path, run_fleet: RunFleet) -> None:
    ran = run_fleet(
        *("check", "--world", "world.json", "--json", "--junit", "junit.xml"),
        *("--gitlab-code-quality", "quality.json"),
    )

    issues = json.loads((policed / "quality.json").read_text())
    positions = [(each["location"]["path"], each["location"]["lines"]["begin"]) for each in issues]
    root = ET.parse(policed / "junit.xml").getroot()  # noqa: S314 - what this program wrote
    cases = {case.get("name"): [part.tag for part in case] for case in root.iter("testcase")}
    assert (ran.returncode, ran.stderr) == (1, "")
    assert places(ran) == [(*position, "failed-policy") for position in positions]
    assert positions == [("fleet.yaml", 12), ("fleet.d/large.yaml", 5), ("policies/own.py", 17)]
    assert len({each["fingerprint"] for each in issues}) == 3
    assert cases == {
        "test_holds": [],
        "test_pools_are_small": ["failure"],
        "test_is_called_otherwise": ["failure"],
    }
    assert [[s.get(k) for k in ("name", "tests", "failures", "errors")] for s in root] == [
        ["policies/own.py", "3", "2", "0"]
    ]


def test_check_reports_missing_policies(policed: Path, run_fleet: RunFleet) -> None:
    shutil.rmtree(policed / "policies")

    ran = run_fleet("check", "--world", "world.json")

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "policies/" in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "code"),
    [
        (json.dumps(WORLD | {"fleet": "another"}), 2),
        (json.dumps(WORLD)[:60], 1),
        (json.dumps(WORLD | {"format": "fleet-world-9"}), 1),
    ],
    ids=["of another fleet", "cut short", "of a newer format"],
)
def test_check_names_file_that_is_not_an_observation(
    policed: Path, run_fleet: RunFleet, world: str, code: int
) -> None:
    (policed / "world.json").write_text(world, encoding="utf-8")

    ran = run_fleet("check", "--world", "world.json")

    assert (ran.returncode, ran.stdout) == (code, "")
    assert ran.stderr.startswith("fleet: error: world.json")


GOOD = "def test_good(fleet):\n    assert fleet.fleet == 'policed'\n"
"""A policy that holds."""
PASSING = {
    # What one policy changes, the next does not see.
    "changes.py": """\
def test_deletes(fleet, plan, world):
    fleet.pools.clear()
    world.queues.clear()
    del plan
def test_sees_it(fleet, plan, world):
    assert len(fleet.pools) == len(plan.pools) == 2
    assert [*world.queues] == ["work"]
""",
    "costs.py": """\
def test_cost(fleet, base, plan):
    assert base.pools["builders"].workers.min == 1
    assert fleet.pools["builders"].workers.min == 3
    assert plan.change.rest_after.hour == 3 * plan.change.rest_before.hour > 0
""",
    "_shared.py": "MOST = 5\n",
    "conftest.py": "import pytest\n@pytest.fixture\ndef own(fleet):\n    return fleet.fleet\n",
    "own.py": """\
from _shared import MOST
def test_own(own):
    assert (own, MOST) == ("policed", 5)
""",
    # No part of what runs policies.
    "json.py": GOOD,
    "pytest.ini": "[pytest]\naddopts = --no-such-option\n",
    "../pytest.ini": "[pytest]\naddopts = --no-such-option\n",
    "../pytest.py": "raise SystemExit('not this one')\n",
}
"""Files beside each other in a folder of policies."""


@pytest.mark.slow
def test_policies_share_modules_and_fixtures_but_no_values(
    policed: Path, run_fleet: RunFleet
) -> None:
    shutil.copytree(policed, policed.parent / "base", dirs_exist_ok=True)
    (policed / "base").symlink_to(policed.parent / "base")
    (policed / "fleet.yaml").write_text(FLEET.replace("min: 1", "min: 3"), encoding="utf-8")
    for name, text in PASSING.items():
        (policed / "policies" / name).write_text(text, encoding="utf-8")

    ran = run_fleet(
        *("check", "--world", "world.json", "--base", "base/fleet.yaml"),
        env={"PYTEST_ADDOPTS": "--no-such-option"},
    )

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert ran.stdout.splitlines()[-1].endswith(": 5 passed")
    assert not [*policed.rglob("__pycache__"), *policed.rglob(".pytest_cache")]


BROKEN = {
    "syntax": ("def test_x(:\n", {"import": 1}),
    "imports": ("import not_installed\n", {"import": 1}),
    "quits": ("def test_a():\n    raise SystemExit(0)\n", {"test_a": 2}),
    "raises": ("def test_a():\n    raise ValueError('\u2028')\n", {"test_a": 2}),
    "deep": ("def test_a():\n    test_a()\n", {"test_a": 2}),
    "fixture": ("def test_a(nowhere): pass\n", {"test_a": 1}),
    "empty": ("x = 1\n", {"import": 1}),
    "json": ("import json\ndef test_a():\n    json.loads('')\n", {"test_a": 3}),
    "binary": ("\0", {"import": 1}),
}
"""Policies that do not come to an end: the test and the line of each finding."""
ENDING = {
    "ends_early": (
        "import os\ndef test_a():\n    os._exit(1)\ndef test_b(): pass\n",
        {"test_a": 2, "test_b": 4},
    ),
    "ends_at_import": ("import os\nos._exit(0)\n", {"import": 1}),
    "exits_at_import": ("raise SystemExit(0)\n", {"import": 1}),
    "ends_after": (
        "import atexit, os\natexit.register(os._exit, 7)\ndef test_a(): pass\n",
        {"import": 1},
    ),
    "aborts": ("import os\ndef test_a():\n    os.abort()\n", {"test_a": 2}),
    "interrupts": ("def test_a():\n    raise KeyboardInterrupt\n", {"test_a": 1}),
    "exits": ("import pytest\ndef test_a():\n    pytest.exit('enough')\n", {"test_a": 2}),
}
"""Policies that end their process too."""


def broken(ran: Completed) -> dict[str, dict[str, int]]:
    """Return the tests that did not come to an end, with the line of each, by file."""
    found: dict[str, dict[str, int]] = {}
    for each in json.loads(ran.stdout)["findings"]:
        if each["rule"] == "broken-policy":
            file, line = Path(each["span"]["file"]).stem, each["span"]["line"]
            found.setdefault(file, {})[each["path"][0]] = line
    return found


@pytest.mark.slow
@pytest.mark.parametrize("policies", [BROKEN, ENDING], ids=["broken", "ending"])
def test_check_finds_broken_policies_and_runs_the_others(
    policed: Path, run_fleet: RunFleet, policies: dict[str, tuple[str, dict[str, int]]]
) -> None:
    for name, (text, _) in policies.items():
        (policed / f"policies/{name}.py").write_text(text, encoding="utf-8")

    ran = run_fleet("check", "--world", "world.json", "--json", "--junit", "junit.xml")

    root = ET.parse(policed / "junit.xml").getroot()  # noqa: S314 - what this program wrote
    good = root.find(".//testcase[@name='test_holds']")
    expected = {name: found for name, (_, found) in policies.items()}
    assert (ran.returncode, broken(ran)) == (1, expected), ran.stdout
    assert len(places(ran)) == 3 + sum(map(len, expected.values()))
    assert good is not None
    assert [*good] == []


@pytest.mark.slow
def test_check_ends_when_a_policy_never_ends(
    policed: Path, run_fleet: RunFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applied, "SECONDS", 10)  # a start takes half a second of an idle machine
    (policed / "policies/own.py").write_text(
        "import subprocess\ndef test_a():\n    subprocess.run(['sleep', '987654'])\n"
        "def test_b(): pass\n"
    )
    began = time.monotonic()

    ran = run_fleet("check", "--world", "world.json", "--json")

    assert time.monotonic() - began < 60
    assert (ran.returncode, broken(ran)) == (1, {"own": {"test_a": 2, "test_b": 4}})
    assert len(places(ran)) == 2
    assert not [each for each in Path("/proc").iterdir() if b"987654" in _command_line(each)]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


MERGE_REQUEST = {"CI_MERGE_REQUEST_IID": "7"}


@pytest.mark.slow
def test_check_runs_no_policy_of_a_merge_request_unless_named(
    policed: Path, run_fleet: RunFleet
) -> None:
    (policed / "policies/own.py").write_text("open('ran', 'w').close()\n" + GOOD)

    (policed / "approved").mkdir()
    (policed / "approved/none.py").write_text("def test_no():\n    assert False, 'no'\n")

    refused = run_fleet("check", "--world", "world.json", env=MERGE_REQUEST)
    named = run_fleet(
        *("check", "--world", "world.json", "--policies", "approved", "--json"), env=MERGE_REQUEST
    )
    absent = run_fleet("check", "--policies", "nowhere", "--world", "world.json")

    assert (refused.returncode, refused.stdout) == (4, "")
    assert "--policies" in refused.stderr
    assert (named.returncode, places(named)) == (1, [("approved/none.py", 2, "failed-policy")])
    assert not (policed / "ran").exists()
    assert absent.returncode == 2


def test_check_of_a_merge_request_passes_when_it_has_no_policy(
    policed: Path, run_fleet: RunFleet
) -> None:
    shutil.rmtree(policed / "policies")

    ran = run_fleet("check", "--world", "world.json", env=MERGE_REQUEST)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_check_names_the_extra_when_pytest_is_missing(
    run_fleet: RunFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "find_spec", lambda _: None)

    ran = run_fleet("check", "--world", "world.json")

    assert (ran.returncode, ran.stdout) == (1, "")
    assert "[policies]" in ran.stderr


def test_messages_of_policies_are_escaped() -> None:
    hostile = "\x1b[2J\u202e\n::error::"
    failure = Failure(message=hostile)
    test = PolicyTest(file="policies/x.py", name=hostile, outcome="failed", failures=(failure,))
    document = Document("fleet.yaml", root=None, texts={}, roots=(), findings=())

    (finding,) = applied.find_failures([test], document)

    assert finding.message.isprintable()
