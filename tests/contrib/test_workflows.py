"""The workflows for GitHub and Forgejo: their commands, run on this machine as far as they go."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders.recording import made_up
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.process import ROOT, Completed, clean_environment, git
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml
from tests.rigs.warm import Warm

pytestmark = pytest.mark.slow

GITHUB, COMMENT, FORGEJO = (
    ROOT / "contrib" / name
    for name in ("github/fleet.yml", "github/fleet-comment.yml", "forgejo/fleet.yml")
)
# It answers as GitHub's own program is documented to, and writes down what it was asked.
GH = r"""#!/usr/bin/env python3
import json, os, pathlib, shutil, sys
asked = sys.argv[1:]
with open(os.environ["GH_ASKED"], "a") as log:
    log.write(json.dumps(asked) + "\n")
if asked[:2] == ["run", "list"]:
    print(77)
elif asked[:2] == ["run", "download"]:
    folder = pathlib.Path(asked[asked.index("--dir") + 1] if "--dir" in asked else ".")
    folder.mkdir(exist_ok=True)
    for saved in pathlib.Path(os.environ["GH_ARTIFACT"]).iterdir():
        shutil.copy(saved, folder)
elif "--paginate" in asked:
    print(os.environ.get("GH_OWN", ""), end="")
elif any(each.endswith("/pulls") for each in asked):
    print(os.environ.get("GH_NUMBER", ""))
"""


def steps(workflow: Path, job: str) -> dict[str, dict[str, Any]]:
    """Return the steps of a job that have a name."""
    read = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    return {step["name"]: step for step in read["jobs"][job]["steps"] if "name" in step}


class Runner:
    """A checkout in which steps are run, with `fleet` on PATH."""

    def __init__(self, folder: Path, warm: Warm) -> None:
        self.folder = folder / "checkout"
        self.folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        self.program("fleet", f'#!/bin/sh\nexec {shlex.join(warm.command())} "$@"\n')
        home = clean_environment(folder)
        self.environment = home | {
            "PATH": f"{programs}:{home['PATH']}",
            "PYTHONPATH": str(ROOT),
            "FLEET_FILE": "fleet.yaml",
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "GH_ASKED": str(folder / "asked"),
            "GH_ARTIFACT": str(folder / "artifact"),
        }
        (folder / "artifact").mkdir()
        self._folder = folder

    def program(self, name: str, text: str) -> None:
        path = self.folder.parent / "bin" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def run(self, step: Mapping[str, Any], **environment: str) -> Completed:
        """Run a step as a runner does: bash that ends at the first error."""
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def asked(self) -> list[list[str]]:
        lines = (self._folder / "asked").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def runner(tmp_path: Path, warm: Warm) -> Runner:
    """Return a checkout of a merge whose second parent removes a pool."""
    runner = Runner(tmp_path, warm)
    runner.program("gh", GH)
    trial = Trial(runner.folder)
    trial.wait_for("1", big=["2"])
    shutil.copy(runner.folder / "world.json", tmp_path / "artifact")
    git(runner.folder, "init", "--quiet", "--initial-branch", "main")
    git(runner.folder, "add", ".")
    git(runner.folder, "commit", "--quiet", "--message", "base")
    git(runner.folder, "checkout", "--quiet", "-b", "change")
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    git(runner.folder, "commit", "--quiet", "--all", "--message", "change")
    git(runner.folder, "checkout", "--quiet", "main")
    git(runner.folder, "merge", "--quiet", "--no-ff", "change")
    return runner


@pytest.mark.parametrize("workflow", [GITHUB, COMMENT, FORGEJO], ids=lambda path: str(path.name))
def test_workflow_scripts_contain_no_expressions(workflow: Path) -> None:
    read = yaml.safe_load(workflow.read_text(encoding="utf-8"))

    scripts = [
        step["run"] for job in read["jobs"].values() for step in job["steps"] if "run" in step
    ]

    assert scripts
    assert [each for each in scripts if "${{" in each] == []


def test_pull_request_at_github_shows_its_plan_in_the_summary(runner: Runner) -> None:
    made = steps(GITHUB, "plan")
    # The artifact of the default branch is compressed; that of this test need not be.
    script = {"run": made["plan"]["run"].replace("world.json.zst", "world.json")}

    fetched = runner.run(made["fetch the observation"], DEFAULT="main")
    planned = runner.run(script, GITHUB_HEAD_REF="change")

    assert (fetched.returncode, planned.returncode) in ((0, 0), (0, 1)), planned.stderr
    assert "`big`" in Path(runner.environment["GITHUB_STEP_SUMMARY"]).read_text()
    assert json.loads((runner.folder / "plan.json").read_text())["change"]["pools"]
    assert ["run", "download", "77", "--name", "world"] in runner.asked()


def test_github_pull_request_is_simulated_when_history_exists(runner: Runner) -> None:
    made = steps(GITHUB, "plan")
    plan = made["plan"]["run"].replace("world.json.zst", "world.json")
    runner.run({"run": plan})
    without = runner.run(made["simulate"])
    made_up(runner.folder / "history.jsonl.zst", days=1)

    done = runner.run(made["simulate"])

    assert (without.returncode, done.returncode) == (0, 0), without.stderr + done.stderr
    found = json.loads((runner.folder / "simulation.json").read_text())
    assert found["against"] == ".base/fleet.yaml"
    assert found["before"]["config"] != found["after"]["config"]
    assert "1.87 EUR" in Path(runner.environment["GITHUB_STEP_SUMMARY"]).read_text()


POLICY = """\
def test_has_all_pools(fleet):
    assert len(fleet.pools) == {pools}
"""


@pytest.mark.parametrize(
    ("folder", "code"), [("policies", 0), (".base/policies", 1), ("nowhere", 0)]
)
def test_policies_at_github_are_named_by_the_workflow(
    runner: Runner, folder: str, code: int
) -> None:
    git(runner.folder, "checkout", "--quiet", "--detach", "HEAD^1")
    (runner.folder / "policies").mkdir()
    for pools in (3, 2):
        (runner.folder / "policies/own.py").write_text(POLICY.format(pools=pools))
        git(runner.folder, "add", "policies")
        git(runner.folder, "commit", "--quiet", "--message", "policies")
    shutil.copy(runner.folder.parent / "artifact/world.json", runner.folder)
    check = steps(GITHUB, "policies")["check"]["run"].replace("world.json.zst", "world.json")

    ran = runner.run({"run": check}, GITHUB_HEAD_REF="change", FLEET_POLICIES=folder)

    assert ran.returncode == code, ran.stdout + ran.stderr
    assert (runner.folder / "policies.xml").exists() is (folder != "nowhere")
    assert (runner.folder / "policies.json").exists() is (folder != "nowhere")


def test_observe_job_keeps_history_of_store(runner: Runner) -> None:
    step = steps(GITHUB, "observe")["history"]
    without = runner.run(step)
    runner.run({"run": "fleet state init && fleet apply"})

    done = runner.run(step)

    assert (without.returncode, done.returncode) == (0, 0), without.stderr + done.stderr
    assert (runner.folder / "history.jsonl.zst").stat().st_size > 0


@pytest.mark.parametrize("own", ["", "91\n"], ids=["the first", "again"])
def test_pull_request_at_github_gets_one_comment(runner: Runner, tmp_path: Path, own: str) -> None:
    made = steps(GITHUB, "plan")
    runner.run({"run": made["plan"]["run"].replace("world.json.zst", "world.json")})
    if own:
        made_up(runner.folder / "history.jsonl.zst", days=1)
        runner.run(made["simulate"])
        shutil.copy(runner.folder / "simulation.json", tmp_path / "artifact")
    shutil.copy(runner.folder / "plan.json", tmp_path / "artifact")

    done = runner.run(
        steps(COMMENT, "comment")["comment"],
        GH_REPO="debian/fleet",
        RUN="78",
        OWNER="ada",
        BRANCH="$(touch pwned)",
        GH_NUMBER="5",
        GH_OWN=own,
    )

    assert done.returncode == 0, done.stderr
    *_, last = runner.asked()
    path = "repos/debian/fleet/issues/" + ("comments/91" if own else "5/comments")
    assert last[:4] == ["api", "--method", "PATCH" if own else "POST", path]
    comment = (runner.folder / "comment.md").read_text()
    assert comment.startswith("<!-- fleet report -->\n")
    assert ("1.87 EUR" in comment) == bool(own)
    assert not (runner.folder / "pwned").exists()


class Forgejo:
    """The pull request 5 of a project, and its comments."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []

    def answer(self, asked: Received) -> Answer:
        if asked.headers.get("authorization") != "token made-up":
            return Answer(401, b"{}")
        if asked.path.endswith("/pulls"):
            return Answer(200, b'[{"number": 5}]')
        body = json.loads(asked.body)["body"] if asked.body else ""
        if asked.method == "GET":
            return Answer(200, json.dumps(self.comments).encode())
        if asked.method == "POST":
            user = {"login": "fleet-bot"}
            self.comments.append({"id": len(self.comments) + 1, "user": user, "body": body})
        else:
            self.comments[int(asked.path.rpartition("/")[2]) - 1]["body"] = body
        return Answer(200, b"{}")


@pytest.mark.skipif(not shutil.which("jq") or not shutil.which("curl"), reason="no jq or curl")
def test_pull_request_at_forgejo_gets_one_comment(runner: Runner, tmp_path: Path) -> None:
    forgejo = Forgejo()
    forgejo.comments.append({"id": 1, "user": {"login": "ada"}, "body": "<!-- fleet report -->"})
    step = steps(FORGEJO, "plans")["comment"]
    git(runner.folder, "clone", "--quiet", "--bare", ".", str(tmp_path / "hub.git"))
    git(tmp_path / "hub.git", "update-ref", "refs/pull/5/head", "change")
    shutil.copy(runner.folder / "world.json", tmp_path)
    shutil.rmtree(runner.folder)
    runner.folder.mkdir()
    git(runner.folder, "init", "--quiet")
    git(runner.folder, "remote", "add", "origin", str(tmp_path / "hub.git"))
    git(runner.folder, "fetch", "--quiet", "origin", "main")
    (runner.folder / "base").mkdir()
    assert runner.run({"run": "git archive FETCH_HEAD^1 | tar -x -C base"}).returncode == 0
    shutil.copy(tmp_path / "world.json", runner.folder)
    made_up(runner.folder / "history.jsonl.zst", days=1)

    with Loopback(forgejo.answer) as server:
        settings = {
            "API": f"{server.url}/api/v1/repos/debian/fleet",
            "TOKEN": "made-up",
            "USER_NAME": "fleet-bot",
        }
        first = runner.run(step, **settings)
        second = runner.run(step, **settings)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    theirs, own = forgejo.comments
    assert theirs["body"] == "<!-- fleet report -->"
    assert "`big`" in own["body"]
    assert "1.87 EUR" in own["body"]
    assert not (runner.folder / "header").exists()


def test_policies_at_forgejo_have_a_job_without_secret() -> None:
    read = yaml.safe_load(FORGEJO.read_text(encoding="utf-8"))

    job = read["jobs"]["policies"]
    named = {step["name"]: step for step in job["steps"] if "name" in step}
    assert (job["needs"], job["timeout-minutes"]) == ("plans", 10)
    assert "secrets." not in json.dumps(job)
    assert {name for name, step in named.items() if "env" in step} == {"fetch"}
    assert "--policies base/policies" in named["check"]["run"]
    assert job["steps"][-1]["with"] == {"name": "policies", "path": "policies-*"}
    assert "fleet check " not in json.dumps(read["jobs"]["plans"])


def test_pull_requests_at_github_have_jobs_without_secret_or_token() -> None:
    read = yaml.safe_load(GITHUB.read_text(encoding="utf-8"))

    plan, job = read["jobs"]["plan"], read["jobs"]["policies"]
    assert set(read["permissions"].values()) == {"read"}
    assert "secrets." not in json.dumps([plan, job])
    assert "pull_request" in plan["if"]
    assert "!= 'pull_request'" in read["jobs"]["observe"]["if"]
    assert [each["name"] for each in plan["steps"] if "fleet check " in each.get("run", "")] == []
    assert "world.json.zst" in plan["steps"][-1]["with"]["path"].split()
    assert (job["needs"], job["permissions"]) == ("plan", {"contents": "read"})
    assert job["timeout-minutes"] == 10
    assert "github.token" not in json.dumps(job)
    assert [step for step in job["steps"] if "env" in step] == []
    assert job["steps"][0]["with"]["persist-credentials"] is False
    saved = job["steps"][-1]["with"]
    assert (saved["name"], saved["path"].split()) == (
        *("policies", ["policies.json", "policies.xml"]),
    )


@pytest.mark.skipif(not shutil.which("jq"), reason="no jq")
def test_forgejo_checks_pull_requests_with_policies_of_default_branch(
    runner: Runner, tmp_path: Path
) -> None:
    git(runner.folder, "checkout", "--quiet", "-B", "main", "HEAD^1")
    (runner.folder / "policies").mkdir()
    (runner.folder / "policies/own.py").write_text(POLICY.format(pools=2))
    git(runner.folder, "add", "policies")
    git(runner.folder, "commit", "--quiet", "--message", "policies")
    git(runner.folder, "checkout", "--quiet", "change")
    (runner.folder / "policies").mkdir()
    (runner.folder / "policies/own.py").write_text("open('pwned', 'w')\n")
    git(runner.folder, "add", "policies")
    git(runner.folder, "commit", "--quiet", "--message", "other policies")
    git(runner.folder, "clone", "--quiet", "--bare", ".", str(tmp_path / "hub.git"))
    git(tmp_path / "hub.git", "update-ref", "refs/pull/5/head", "change")
    shutil.rmtree(runner.folder)
    runner.folder.mkdir()
    shutil.copy(tmp_path / "artifact/world.json", runner.folder)
    (runner.folder / "pulls.json").write_text('[{"number": 5}]')
    named = steps(FORGEJO, "policies")
    settings = {"REPOSITORY": str(tmp_path / "hub.git"), "TOKEN": "made-up", "GITHUB_SHA": "main"}

    fetched = runner.run(named["fetch"], **settings)
    checked = runner.run(named["check"])

    assert (fetched.returncode, checked.returncode) == (0, 0), fetched.stderr + checked.stderr
    assert "failed-policy" in checked.stdout
    assert len(json.loads((runner.folder / "policies-5.json").read_text())) == 1
    assert "test_has_all_pools" in (runner.folder / "policies-5.xml").read_text()
    assert not (runner.folder / "pwned").exists()
    assert "made-up" not in (runner.folder / ".git/config").read_text()
