"""What every stack program promises: one resource per worker, read back as it was written."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.engines.projects import load_project
from fleet.errors import FleetError, PlanRefused
from fleet.model.facts import WorkerInputs
from fleet.state.storage import shipped_folder
from tests.stacks.programs import a_worker_of, accepted, declared

STACKS = shipped_folder("stacks")
PROJECTS = sorted(path.parent.name for path in STACKS.glob("*/Pulumi.yaml"))
CLOUDS = ("aws", "hcloud")
"""Programs whose machines get user data and notes."""
FULL = {
    "aws": {"template": "t", "subnet": "subnet-1", "disk": "344", "market": "spot"},
    "hcloud": {
        "location": "fsn1",
        "network_ids": "7",
        "firewall_ids": "8 9",
        "ssh_keys": "key other",
    },
}
IMPORTS = {"collections", "json", "program", "pulumi", "pulumi_aws", "pulumi_hcloud", "typing"}
each_project = pytest.mark.parametrize("project", PROJECTS)
each_cloud = pytest.mark.parametrize("project", CLOUDS)


@pytest.mark.parametrize(
    ("project", "settings"), [*((each, None) for each in PROJECTS), *FULL.items()]
)
def test_worker_is_one_labelled_resource_that_reads_back(
    project: str, settings: dict[str, str] | None
) -> None:
    worker = a_worker_of(project, **({"settings": settings} if settings else {}))
    (resource,) = declared(project, accepted(project, worker))

    assert (resource.name, resource.adopts) == ("debian-big-0001", "")
    read_back = load_project(project).worker_of(resource.type, resource.inputs)
    assert read_back == WorkerInputs.model_validate(worker)
    marks = worker["labels"]
    if project == "aws":
        marks = {key if key == "fleet" else f"fleet:{key}": text for key, text in marks.items()}
    assert marks.items() <= resource.inputs["tags" if project == "aws" else "labels"].items()


@each_project
def test_other_resources_are_not_read_as_workers(project: str) -> None:
    assert declared(project, accepted(project, workers=[])) == ()
    assert load_project(project).worker_of("aws:ec2:Instance", {}) is None
    (resource,) = declared(project, accepted(project))
    with pytest.raises(PlanRefused, match=r"stacks/\w+: a recorded \w+:"):
        load_project(project).worker_of(resource.type, {})


@each_project
def test_adopted_machine_is_imported_by_its_id(project: str) -> None:
    (resource,) = declared(project, accepted(project, adopt={"debian-big-0001": "42"}))

    assert (resource.adopts, resource.secrets) == ("42", ())


@each_project
@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"workers": None}, "workers must be a list, not NoneType"),
        ({"workers": "all"}, "workers must be a list, not str"),
        ({"workers": ["one"]}, r"workers\[0\] must be a mapping, not str"),
        ({"adopt": ["1"]}, "adopt must be a mapping, not list"),
        ({"adopt": {"a": 1}}, "adopt must hold texts, but not so: a"),
    ],
)
def test_invalid_inputs_are_refused_with_path(
    project: str, broken: dict[str, object], says: str
) -> None:
    with pytest.raises(PlanRefused, match=f"stacks/{project}: {says}"):
        declared(project, accepted(project, **broken))


@each_project
@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"name": 7}, "name must be a text that is not empty"),
        ({"type": ""}, "type must be a text that is not empty"),
        ({"image": None}, "image must be a text that is not empty"),
        ({"labels": {}}, "labels lacks fleet, pool, worker, digest"),
        ({"labels": "fleet"}, "labels must be a mapping, not str"),
        ({"settings": {"location": 5}}, "settings must hold texts, but not so: location"),
        ({"surprise": "x"}, "has unknown keys: surprise"),
    ],
)
def test_hostile_worker_is_refused_with_path(
    project: str, broken: dict[str, Any], says: str
) -> None:
    with pytest.raises(PlanRefused, match=r"workers\[0\][. ]" + re.escape(says)):
        declared(project, accepted(project, a_worker_of(project, **broken)))


@each_project
def test_stack_program_runs_with_pulumi_and_imports_nothing_else(project: str) -> None:
    sources = sorted(Path(STACKS / project).glob("*.py"))
    imports = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
    assert {name for path in sources for name in imports.findall(path.read_text())} <= IMPORTS

    settings = yaml.safe_load((STACKS / project / "Pulumi.yaml").read_text())
    assert (settings["name"], settings["runtime"]) == (f"fleet-{project}", "python")
    assert (STACKS / project / "__main__.py").is_file()
    with pytest.raises(FleetError, match=f"'nope'.*\\b{project}\\b"):
        load_project("nope")


@each_cloud
def test_user_data_is_a_secret_of_new_machines_only(project: str) -> None:
    (new,) = declared(project, accepted(project))
    (there,) = declared(project, accepted(project, user_data={}))

    assert new.secrets == ("userData",)
    assert "of-the-test" not in new.model_dump_json()
    assert "userData" not in there.inputs


@each_cloud
def test_notes_are_labels_and_no_inputs_of_a_worker(project: str) -> None:
    notes = {"expires": "20261122T090000Z", "commit": "0123456"}
    (resource,) = declared(project, accepted(project, notes=notes))

    found = resource.inputs["tags" if project == "aws" else "labels"]
    prefix = "fleet:" if project == "aws" else ""
    assert {f"{prefix}{key}": text for key, text in notes.items()}.items() <= found.items()
    read_back = load_project(project).worker_of(resource.type, resource.inputs)
    assert read_back == WorkerInputs.model_validate(a_worker_of(project))


@pytest.mark.parametrize(
    ("project", "settings", "says"),
    [
        ("aws", {}, r"workers\[0\].settings lacks template"),
        ("aws", {"template": "t", "size": "1"}, "settings has unknown keys: size"),
        ("aws", {"template": "t", "disk": "big"}, "debian-big-0001: disk must be whole GiB"),
        ("aws", {"template": "t", "market": "black"}, "-0001: market must be spot or on-demand"),
        ("hcloud", {}, r"workers\[0\].settings lacks location"),
        ("hcloud", {"location": "fsn1", "size": "1"}, "settings has unknown keys: size"),
        ("hcloud", {"location": "fsn1", "network_ids": "net"}, "network_ids must hold ids"),
    ],
)
def test_wrong_settings_are_refused(project: str, settings: dict[str, str], says: str) -> None:
    with pytest.raises(PlanRefused, match=says):
        declared(project, accepted(project, a_worker_of(project, settings=settings)))
