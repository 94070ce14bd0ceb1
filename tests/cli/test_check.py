"""`fleet check`: a fleet's own policies, each failing one a finding with its place."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fleet.apply.policies import Ran
from fleet.apply.policy_runner import Means
from fleet.cli import check
from fleet.cli.console import TerminalConsole
from fleet.cli.main import build_parser
from fleet.model.policies import PolicyFile
from tests.builders.sentences import tells
from tests.rigs.process import Completed, RunFleet, unwrapped

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


def test_a_failing_policy_is_a_finding_at_its_line_or_at_the_key_it_names(
    run_fleet: RunFleet,
) -> None:
    ran = run_fleet("check", "--world", "world.json", "--json")

    assert (ran.returncode, ran.stderr) == (1, "")
    assert places(ran) == [
        ("fleet.yaml", 12, "failed-policy"),
        ("fleet.d/large.yaml", 5, "failed-policy"),
        ("policies/own.py", 17, "failed-policy"),
    ]


@pytest.mark.slow
def test_findings_quote_fleet_yaml_and_name_the_policy(run_fleet: RunFleet) -> None:
    ran = run_fleet("check", "--world", "world.json")

    assert ran.returncode == 1
    assert "fleet.d/large.yaml:5:12: error[failed-policy] " in ran.stdout
    assert "large is large (policies/own.py:12)\n" in unwrapped(ran.stdout)
    assert "\n5 |       max: 30\n" in ran.stdout
    assert ran.stdout.splitlines()[-1].endswith(": 1 passed, 2 failed")


@pytest.mark.slow
def test_policies_that_hold_are_no_finding(policed: Path, run_fleet: RunFleet) -> None:
    (policed / "policies/own.py").write_text(POLICY.partition("def test_pools")[0])

    ran = run_fleet("check", "--world", "world.json")

    assert (ran.returncode, ran.stderr) == (0, "")
    assert tells(ran.stdout, "1 file", "1 test", "1 passed")


def test_a_fleet_without_policies_says_so(policed: Path, run_fleet: RunFleet) -> None:
    shutil.rmtree(policed / "policies")

    ran = run_fleet("check", "--world", "world.json")

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "policies/" in ran.stdout


@pytest.mark.slow
def test_policies_of_another_folder_are_run_in_their_place(
    policed: Path, run_fleet: RunFleet
) -> None:
    (policed / "approved").mkdir()
    (policed / "approved/none.py").write_text("def test_no():\n    assert False, 'no'\n")

    ran = run_fleet("check", "--world", "world.json", "--policies", "approved", "--json")

    assert (ran.returncode, places(ran)) == (1, [("approved/none.py", 2, "failed-policy")])
    assert run_fleet("check", "--policies", "nowhere", "--world", "world.json").returncode == 2


@pytest.mark.slow
def test_the_difference_from_the_target_branch_is_there_for_policies(
    policed: Path, run_fleet: RunFleet
) -> None:
    shutil.copytree(policed, policed.parent / "base", dirs_exist_ok=True)
    (policed / "base").symlink_to(policed.parent / "base")
    (policed / "fleet.yaml").write_text(FLEET.replace("min: 1", "min: 3"), encoding="utf-8")
    (policed / "policies/own.py").write_text(
        "def test_cost(fleet, base, plan):\n"
        "    assert base.pools['builders'].workers.min == 1\n"
        "    assert fleet.pools['builders'].workers.min == 3\n"
        "    assert plan.change.rest_after.hour == 3 * plan.change.rest_before.hour > 0\n"
    )

    ran = run_fleet("check", "--world", "world.json", "--base", "base/fleet.yaml")

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


@pytest.mark.slow
def test_a_base_that_cannot_be_read_is_told_to_person_and_policy(
    policed: Path, run_fleet: RunFleet
) -> None:
    (policed / "policies/own.py").write_text(
        "def test_none(base, plan):\n    assert base is None\n    assert plan.change.unknown\n"
    )

    ran = run_fleet("check", "--world", "world.json", "--base", "base/fleet.yaml")

    assert ran.returncode == 0
    assert "base/fleet.yaml" in ran.stderr


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
def test_an_observation_that_is_none_is_named(
    policed: Path, run_fleet: RunFleet, world: str, code: int
) -> None:
    (policed / "world.json").write_text(world, encoding="utf-8")

    ran = run_fleet("check", "--world", "world.json")

    assert (ran.returncode, ran.stdout) == (code, "")
    assert ran.stderr.startswith("fleet: error: world.json")


@pytest.mark.slow
def test_a_report_for_gitlab_has_the_place_of_each_finding(
    policed: Path, run_fleet: RunFleet
) -> None:
    ran = run_fleet("check", "--world", "world.json", "--gitlab-code-quality", "quality.json")

    issues = json.loads((policed / "quality.json").read_text())
    places = [(each["location"]["path"], each["location"]["lines"]["begin"]) for each in issues]
    assert ran.returncode == 1
    assert places == [("fleet.yaml", 12), ("fleet.d/large.yaml", 5), ("policies/own.py", 17)]
    assert len({each["fingerprint"] for each in issues}) == 3


@pytest.mark.slow
def test_junit_has_a_case_for_each_test(policed: Path, run_fleet: RunFleet) -> None:
    (policed / "policies/broken.py").write_text("raise ValueError('<\\x1b&>')\n")

    ran = run_fleet("check", "--world", "world.json", "--junit", "junit.xml")

    root = ET.parse(policed / "junit.xml").getroot()  # noqa: S314 - what this program wrote
    cases = {case.get("name"): [part.tag for part in case] for case in root.iter("testcase")}
    suites = [[s.get(k) for k in ("name", "tests", "failures", "errors")] for s in root]
    assert ran.returncode == 1
    assert cases == {
        "import": ["error"],
        "test_holds": [],
        "test_pools_are_small": ["failure"],
        "test_is_called_otherwise": ["failure"],
    }
    assert suites == [["policies/broken.py", "1", "0", "1"], ["policies/own.py", "3", "2", "0"]]


@pytest.mark.slow
def test_a_policy_that_one_test_changes_is_whole_for_the_next(
    policed: Path, run_fleet: RunFleet
) -> None:
    (policed / "policies/own.py").write_text(
        "def test_deletes(fleet, plan, world):\n"
        "    fleet.pools.clear()\n"
        "    world.queues.clear()\n"
        "    del plan\n"
        "def test_sees_it(fleet, plan, world):\n"
        "    assert len(fleet.pools) == 2\n"
        "    assert [*world.queues] == ['work']\n"
        "    assert len(plan.pools) == 2\n"
    )

    ran = run_fleet("check", "--world", "world.json")

    assert ran.returncode == 0, ran.stdout


@pytest.mark.slow
def test_what_is_no_file_of_the_folder_is_a_finding_and_others_are_judged(
    policed: Path, run_fleet: RunFleet
) -> None:
    os.mkfifo(policed / "policies/pipe.py")
    (policed / "policies/link.py").symlink_to("/etc/passwd")
    (policed / "policies/device.py").symlink_to("/dev/zero")
    (policed / "policies/nowhere.py").symlink_to("absent")
    (policed / "policies/large.py").write_text("#" * 1_000_001)
    (policed / "policies/folder.py").mkdir()

    ran = run_fleet("check", "--world", "world.json", "--json")

    broken = {place[0] for place in places(ran) if place[2] == "broken-policy"}
    assert (ran.returncode, ran.stderr) == (1, "")
    assert broken == {
        f"policies/{name}.py" for name in ("device", "folder", "large", "link", "nowhere", "pipe")
    }
    assert len(places(ran)) == len(broken) + 3


class NoKernel:
    """A process that runs policies where the kernel lends no hand."""

    def run(self, files: Sequence[str], *_: object) -> Ran:
        return Ran(
            tuple(PolicyFile(file=each) for each in files), Means(network=False, files=True)
        )


def test_where_the_kernel_lends_no_hand_it_is_said(
    policed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(policed)
    args = build_parser("check").parse_args(["check", "--world", "world.json"])
    args.process = NoKernel()

    code = check.run(args, TerminalConsole())

    assert code == 0
    assert "namespaces" in capsys.readouterr().err


@pytest.mark.slow
def test_policies_share_files_that_begin_with_an_underscore(
    policed: Path, run_fleet: RunFleet
) -> None:
    (policed / "policies/_shared.py").write_text("MOST = 5\n")
    (policed / "policies/conftest.py").write_text(
        "import pytest\n@pytest.fixture\ndef own(fleet):\n    return fleet.fleet\n"
    )
    (policed / "policies/own.py").write_text(
        "from _shared import MOST\ndef test_own(own):\n    assert (own, MOST) == ('policed', 5)\n"
    )

    ran = run_fleet("check", "--world", "world.json")

    assert ran.returncode == 0, ran.stdout
