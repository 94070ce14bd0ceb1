"""Repositories that hold a fleet.yaml and little else run the jobs of templates/fleet.yml.

What they hold is cut out of docs/how-to/run-in-gitlab.md. Repositories that they include lie in
folders, which git is told of; all else of an include is gitlab-ci-local's own.
"""

import json
import os
import re
import shlex
import shutil
from decimal import Decimal
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.builders.sentences import tells
from tests.docs.test_documents import BLOCK
from tests.rigs.gitlab_ci import ARTIFACT, MERGE_REQUEST, SCHEDULE, TOKEN, Checkout, Gitlab, jobs
from tests.rigs.process import ROOT, Completed, run_process
from tests.rigs.warm import Warm

pytestmark = pytest.mark.gitlab

PAGE = ROOT / "docs" / "how-to" / "run-in-gitlab.md"
APPROVAL = PAGE.with_name("approve-in-gitlab.md")
FLEET = """\
fleet: ci
state: {{backend: "file://{state}"}}
providers:
  desk: {{kind: sim}}
queues:
  people: {{kind: tickets}}
images:
  trixie: {{existing: {{desk: trixie}}}}
  sid: {{suite: sid, architecture: amd64, publish: [desk]}}
pools:
  builders: {{provider: desk, machine: ccx33, image: trixie, workers: {{max: 2, min: 1}}}}
"""
POLICY = """\
def test_pools_are_small(fleet):
    assert fleet.pools["builders"].workers.max == 2
"""
PLANNED = ("plan.md", "plan.json", "terraform.json", "world.json.zst")
BASE = "https://gitlab.example.org"
SERVED = f"{BASE}:443"
JUDGING = {"fleet validate", "fleet plan", "fleet policies", "fleet simulate"}
HOLDING = {"fleet observe", "fleet history", "fleet apply", "fleet images due", "pages"}


def files_of_the_page() -> dict[str, str]:
    texts = (page.read_text(encoding="utf-8") for page in (PAGE, APPROVAL))
    found = (match for text in texts for match in BLOCK.finditer(text))
    return {match["file"]: match["body"] for match in found if match["file"]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Path:
    """Return a home whose PATH has fleet, as its image has."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "bin").mkdir()
    program = folder / "bin" / "fleet"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(warm.command())} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def server(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the repositories that others include."""
    served = tmp_path_factory.mktemp("served")
    component = Checkout(served / "debian" / "fleet.git", home, f"{BASE}/debian/fleet.git")
    (component.folder / "templates").mkdir(parents=True)
    shutil.copy(ROOT / "templates" / "fleet.yml", component.folder / "templates")
    component.commit()
    component.git("tag", "0.2.0")
    settings = Checkout(served / "debian" / "ci.git", home, f"{BASE}/debian/ci.git")
    settings.folder.mkdir()
    name = "fleet.gitlab-ci.yml"
    (settings.folder / name).write_text(files_of_the_page()[name], encoding="utf-8")
    settings.commit()
    return served


class Machines(Checkout):
    """The repository of a fleet.yaml."""

    def fleet(self, *arguments: str) -> None:
        program = self.home / "bin" / "fleet"
        done = run_process(program, *arguments, cwd=self.folder, env=self.environment())
        assert done.returncode == 0, done.stderr

    def environment(self) -> dict[str, str]:
        found = super().environment()
        return found | {"PATH": f"{self.home / 'bin'}{os.pathsep}{found['PATH']}"}


class Elsewhere(Machines):
    """One whose setting "CI/CD configuration file" names a file of another project."""

    def run(self, *arguments: str) -> Completed:
        # What GitLab makes of that setting.
        stub = self.folder / ".git" / "configuration.yml"
        include = "include: [{project: debian/ci, file: fleet.gitlab-ci.yml}]"
        stub.write_text(include, encoding="utf-8")
        return super().run(*arguments, "--file", ".git/configuration.yml")


def a_repository(kind: type[Machines], folder: Path, home: Path, server: Path) -> Machines:
    """Return a repository with a fleet.yaml, and with the lines of the page unless elsewhere."""
    made = kind(folder / "machines", home, f"{BASE}/debian/machines.git", served={SERVED: server})
    made.folder.mkdir()
    files = {"fleet.yaml": FLEET.format(state=folder / "state")}
    if kind is Machines:
        files[".gitlab-ci.yml"] = files_of_the_page()[".gitlab-ci.yml"]
    for name, text in files.items():
        (made.folder / name).write_text(text, encoding="utf-8")
    made.commit()
    made.fleet("state", "init")
    return made


IDS = ["own-lines", "jobs-elsewhere"]


@pytest.fixture(params=[Machines, pytest.param(Elsewhere, marks=pytest.mark.long)], ids=IDS)
def machines(request: pytest.FixtureRequest, tmp_path: Path, home: Path, server: Path) -> Machines:
    """Return a repository, once for each set-up of the page."""
    return a_repository(request.param, tmp_path, home, server)


@pytest.fixture
def own_lines(tmp_path: Path, home: Path, server: Path) -> Machines:
    """Return a repository with the lines of the page."""
    return a_repository(Machines, tmp_path, home, server)


@pytest.mark.parametrize("machines", [Machines, Elsewhere], ids=IDS, indirect=True)
def test_component_needs_few_lines_in_a_repository(machines: Machines) -> None:
    lines = files_of_the_page()[".gitlab-ci.yml"].splitlines()
    push = ("--variable", "CI_PIPELINE_SOURCE=push")
    images = ("--variable", "FLEET_IMAGES=due")

    assert len(lines) <= 5
    assert jobs(machines.run("--list-csv", *MERGE_REQUEST)) == JUDGING
    assert jobs(machines.run("--list-csv", *push)) == {
        *{"fleet validate", "fleet observe", "fleet history", "fleet apply", "pages"}
    }
    assert jobs(machines.run("--list-csv", *SCHEDULE, *images)) == HOLDING | {"fleet images"}


def test_default_branch_observes_applies_and_publishes(machines: Machines) -> None:
    for job in ("fleet observe", "fleet apply", "pages", "fleet images due"):
        ran = machines.run(job, *SCHEDULE)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    page = machines.folder / "public" / "-" / "status" / "workers" / "index.html"
    assert "ci-builders-0001" in page.read_text(encoding="utf-8")
    child = yaml.safe_load((machines.folder / "images.yml").read_text(encoding="utf-8"))
    job = child["image sid"]
    assert job["image"] == "registry.example.org/debian/fleet@sha256:DIGEST"
    assert job["environment"] == {"name": "fleet", "action": "access"}
    assert "tags" not in job


def test_merge_request_is_planned_with_only_its_job_token(
    machines: Machines,
) -> None:
    observed = machines.run("fleet observe", *SCHEDULE)
    assert observed.returncode == 0, observed.stdout + observed.stderr
    world = machines.folder / "world.json.zst"
    text = (machines.folder / "fleet.yaml").read_text(encoding="utf-8")
    changed = text.replace("max: 2, min: 1", "max: 2, min: 2")
    (machines.folder / "fleet.yaml").write_text(changed, encoding="utf-8")
    policies = machines.folder / "policies"
    policies.mkdir()
    (policies / "size.py").write_text(POLICY, encoding="utf-8")
    target = machines.target_branch(f"file://{machines.folder}")

    with Gitlab(world.read_bytes()) as gitlab:
        world.unlink()
        validated = machines.run("fleet validate", *MERGE_REQUEST)
        planned = machines.run("fleet plan", *MERGE_REQUEST, *gitlab.variables, *target)
        was_run = (machines.folder / "policies.xml").exists()
        made = {name: (machines.folder / name).read_bytes() for name in PLANNED}
        checked = machines.run("fleet policies", *MERGE_REQUEST, *gitlab.variables, *target)

    assert validated.returncode == 0, validated.stdout + validated.stderr
    assert planned.returncode == 0, planned.stdout + planned.stderr
    ((address, token),) = gitlab.asked
    asked = urlsplit(address)
    assert (asked.path, parse_qs(asked.query), token) == (
        *(ARTIFACT, {"job": ["fleet observe"]}),
        TOKEN,
    )
    plan = (machines.folder / "plan.md").read_text(encoding="utf-8")
    assert tells(plan, "| pool `builders` |", "1", "2", "1", "ccx33")
    quality = (machines.folder / "code-quality.json").read_text(encoding="utf-8")
    assert json.loads(quality) == []
    assert (checked.returncode, was_run) == (0, False), checked.stdout + checked.stderr
    junit = (machines.folder / "policies.xml").read_text(encoding="utf-8")
    assert "test_pools_are_small" in junit
    assert "<failure" not in junit
    assert {name: (machines.folder / name).read_bytes() for name in PLANNED} == made


def test_policies_job_has_two_reports_and_no_secret(own_lines: Machines) -> None:
    found = own_lines.expanded(*MERGE_REQUEST)

    job, plan = found["fleet policies"], found["fleet plan"]
    needed = [need["job"] if isinstance(need, dict) else need for need in job["needs"]]
    assert needed == ["fleet plan"]
    assert job["timeout"] == "10 minutes"
    assert job["cache"] == []
    assert not {"environment", "variables", "secrets", "id_tokens"} & job.keys()
    assert "paths" not in job["artifacts"]
    kept = {str(path) for path in job["artifacts"]["reports"].values()}
    assert job["artifacts"]["reports"].keys() == {"codequality", "junit"}
    assert not kept & {
        *plan["artifacts"]["paths"],
        *map(str, plan["artifacts"]["reports"].values()),
    }
    assert [name for name, each in found.items() if "fleet check " in str(each.get("script"))] == [
        "fleet policies"
    ]


@pytest.mark.parametrize("base", ["max: 1", ""], ids=["of the base", "base without any"])
def test_policies_of_target_branch_apply_when_named(own_lines: Machines, base: str) -> None:
    with (own_lines.folder / ".gitlab-ci.yml").open("a", encoding="utf-8") as file:
        file.write("      policies: .base/policies\n")
    policies = own_lines.folder / "policies"
    policies.mkdir()
    policy = POLICY.replace("== 2", "== 1") if base else ""
    (policies / ("size.py" if base else "size.txt")).write_text(policy, encoding="utf-8")
    own_lines.git("add", "--all")
    own_lines.git("commit", "--quiet", "--message", "policies")
    observed = own_lines.run("fleet observe", *SCHEDULE)
    assert observed.returncode == 0, observed.stdout + observed.stderr
    target = own_lines.target_branch(f"file://{own_lines.folder}")
    (policies / "size.py").write_text("def test_nothing(): pass\n", encoding="utf-8")

    found = own_lines.run("fleet policies", *MERGE_REQUEST, *target)
    unread = own_lines.run("fleet policies", *MERGE_REQUEST)

    assert found.returncode == (1 if base else 0), found.stdout + found.stderr
    assert ("failed-policy" in found.stdout) is bool(base)
    # It is not judged by no policy where the target branch cannot be fetched.
    assert unread.returncode == 1


def test_merge_request_shows_simulated_cost(machines: Machines) -> None:
    for _ in range(2):
        machines.fleet("apply")
    kept = machines.run("fleet history", *SCHEDULE)
    assert kept.returncode == 0, kept.stdout + kept.stderr
    history = machines.folder / "history.jsonl.zst"
    text = (machines.folder / "fleet.yaml").read_text(encoding="utf-8")
    changed = text.replace("max: 2, min: 1", "max: 2, min: 2")
    (machines.folder / "fleet.yaml").write_text(changed, encoding="utf-8")
    target = machines.target_branch(f"file://{machines.folder}")

    with Gitlab(history.read_bytes()) as gitlab:
        history.unlink()
        ran = machines.run("fleet simulate", *MERGE_REQUEST, *gitlab.variables, *target)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    ((address, token),) = gitlab.asked
    asked = urlsplit(address)
    assert (asked.path, parse_qs(asked.query), token) == (
        *(ARTIFACT.replace("world.json.zst", history.name), {"job": ["fleet history"]}),
        TOKEN,
    )
    found = json.loads((machines.folder / "simulation.json").read_text(encoding="utf-8"))
    assert (found["against"], found["worlds"]) == ("origin/main", 2)
    assert found["before"]["most"] < found["after"]["most"]
    said = (machines.folder / "simulation.md").read_text(encoding="utf-8").splitlines()[0]
    money = [f"{Decimal(found[side]['money']):.2f}" for side in ("before", "after")]
    assert tells(said, *money, "EUR")
    assert said.replace("→", "") in ran.stdout.replace("→", "")


def test_merge_request_without_history_is_not_simulated(own_lines: Machines) -> None:
    kept = own_lines.run("fleet history", *SCHEDULE)
    assert kept.returncode == 0, kept.stdout + kept.stderr
    assert not (own_lines.folder / "history.jsonl.zst").exists()

    with Gitlab(None) as gitlab:
        ran = own_lines.run("fleet simulate", *MERGE_REQUEST, *gitlab.variables)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "not simulated" in ran.stdout
    assert not (own_lines.folder / "simulation.json").exists()


def test_simulation_jobs_are_absent_when_disabled(own_lines: Machines) -> None:
    with (own_lines.folder / ".gitlab-ci.yml").open("a", encoding="utf-8") as file:
        file.write("      simulate: ''\n")

    assert jobs(own_lines.run("--list-csv", *MERGE_REQUEST)) == JUDGING - {"fleet simulate"}
    assert "fleet history" not in jobs(own_lines.run("--list-csv", *SCHEDULE))


def test_apply_job_can_be_manual(own_lines: Machines) -> None:
    path = own_lines.folder / ".gitlab-ci.yml"
    with path.open("a", encoding="utf-8") as file:
        file.write(files_of_the_page()["button.yml"])
    push = ("--variable", "CI_PIPELINE_SOURCE=push")

    offered = jobs(own_lines.run("--list-csv", *push))
    proposed = own_lines.run("fleet propose", *push)
    applied = own_lines.run("fleet apply proposed", *push)

    assert "fleet apply" not in offered
    assert "fleet apply" in jobs(own_lines.run("--list-csv", *SCHEDULE))
    assert proposed.returncode == 0, proposed.stdout + proposed.stderr
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert own_lines.expanded(*push)["fleet apply proposed"]["resource_group"] == "fleet"


def test_jobs_have_tags_image_cache_and_access_of_the_page(own_lines: Machines) -> None:
    with (own_lines.folder / ".gitlab-ci.yml").open("a", encoding="utf-8") as file:
        file.write(".fleet merge request: {tags: [shared]}\n.fleet secrets: {tags: [protected]}\n")
        file.write("default: {cache: [{key: all, paths: [.cache]}]}\n")

    found = own_lines.expanded(*SCHEDULE)

    tags = {name: job["tags"] for name, job in found.items() if "tags" in job}
    assert tags == {
        **{name: ["shared"] for name in JUDGING},
        **{name: ["protected"] for name in HOLDING},
    }
    holding = {name for name, job in found.items() if "environment" in job}
    assert holding == HOLDING
    assert [name for name in holding if found[name].get("cache") != []] == []
    # What a person sets for one pipeline changes neither image nor file nor command.
    assert set(re.findall(r"\$FLEET_\w+", str(found))) == {"$FLEET_WORLD", "$FLEET_IMAGES"}
    image = {"name": "registry.example.org/debian/fleet@sha256:DIGEST"}
    assert [n for n, job in found.items() if "script" in job and job["image"] != image] == []
    access = {
        name: job["artifacts"].get("access") for name, job in found.items() if "artifacts" in job
    }
    named = (JUDGING | HOLDING) - {"fleet validate", "fleet apply"}
    assert access == {"fleet validate": "all"} | dict.fromkeys(named, "developer")
    # Nor does a push to a branch without a merge request run a job.
    own_lines.git("checkout", "--quiet", "-b", "idea")
    assert jobs(own_lines.run("--list-csv")) == set()


@pytest.mark.parametrize(
    "wrong",
    [
        "file: $(touch x)",
        "prefix: 'a;b'",
        "read-environment: ''",
        "image-tags: root",
        "simulate: a b",
    ],
)
def test_invalid_input_creates_no_pipeline(own_lines: Machines, wrong: str) -> None:
    with (own_lines.folder / ".gitlab-ci.yml").open("a", encoding="utf-8") as file:
        file.write(f"      {wrong}\n")

    listed = own_lines.run("--list-csv", *MERGE_REQUEST)

    assert listed.returncode != 0
    assert wrong.partition(":")[0] in listed.stdout + listed.stderr


@pytest.mark.long
def test_image_of_the_page_has_fleet_at_one_commit(tmp_path: Path, home: Path) -> None:
    # Its commands, without a container: in a folder, from this repository.
    (tmp_path / "bin").mkdir()
    own = Checkout(ROOT, home, ROOT.as_uri())
    script = files_of_the_page()["Containerfile"].replace("\nRUN ", "\n").partition("\n")[2]
    for old, new in {
        f"{BASE}/debian/fleet.git": ROOT.as_uri(),
        "COMMIT": own.git("rev-parse", "HEAD"),
        "/opt": str(tmp_path),
        "/usr/local": str(tmp_path),
    }.items():
        assert old in script
        script = script.replace(old, new)

    made = run_process("sh", "-ec", script, cwd=tmp_path, env=own.environment(), timeout=1800)
    asked = run_process(tmp_path / "bin/fleet", "--version", cwd=tmp_path, env=own.environment())

    assert made.returncode == 0, made.stdout + made.stderr
    assert asked.stdout.startswith("fleet "), asked.stderr


def test_pipeline_of_this_project_runs_the_same_jobs() -> None:
    own = (ROOT / ".gitlab-ci.yml").read_text(encoding="utf-8")

    assert "/templates/fleet.yml" in own
    assert re.findall(r"fleet (?:validate|plan|observe|apply|status)\b.*--", own) == []
