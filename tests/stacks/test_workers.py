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

PROJECTS = sorted(path.parent.name for path in shipped_folder("stacks").glob("*/Pulumi.yaml"))
pytestmark = pytest.mark.parametrize("project", PROJECTS)


def test_worker_is_one_resource_with_its_name(project: str) -> None:
    (resource,) = declared(project, accepted(project))

    assert resource.name == "debian-big-0001"
    assert resource.adopts == ""


def test_worker_round_trips_through_its_resource(project: str) -> None:
    worker = a_worker_of(project)

    (resource,) = declared(project, accepted(project, worker))

    read_back = load_project(project).worker_of(resource.type, resource.inputs)
    assert read_back == WorkerInputs.model_validate(worker)


def test_every_machine_has_ownership_labels(project: str) -> None:
    (resource,) = declared(project, accepted(project))

    labels = a_worker_of(project)["labels"]
    if project == "aws":
        marks = {key if key == "fleet" else f"fleet:{key}": text for key, text in labels.items()}
        assert marks.items() <= resource.inputs["tags"].items()
    else:
        assert labels.items() <= resource.inputs["labels"].items()


def test_empty_workers_declare_no_resource(project: str) -> None:
    assert declared(project, accepted(project, workers=[])) == ()


def test_adopted_machine_is_imported_by_its_id(project: str) -> None:
    (resource,) = declared(project, accepted(project, adopt={"debian-big-0001": "42"}))

    assert resource.adopts == "42"


def test_resource_of_other_type_is_not_a_worker(project: str) -> None:
    assert load_project(project).worker_of("aws:ec2:Instance", {}) is None


def test_recorded_machine_of_another_program_is_refused(project: str) -> None:
    (resource,) = declared(project, accepted(project))

    with pytest.raises(PlanRefused, match=r"stacks/\w+: a recorded \w+:"):
        load_project(project).worker_of(resource.type, {})


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


def test_stack_program_imports_only_pulumi(project: str) -> None:
    sources = sorted(Path(shipped_folder("stacks") / project).glob("*.py"))

    imported = {
        match
        for source in sources
        for match in re.findall(r"^(?:from|import) (\w+)", source.read_text(), flags=re.MULTILINE)
    }

    assert imported <= {
        "collections",
        "typing",
        "json",
        "pulumi",
        "pulumi_aws",
        "pulumi_hcloud",
        "program",
    }


def test_stack_program_runs_with_plain_pulumi_command(project: str) -> None:
    settings = yaml.safe_load((shipped_folder("stacks") / project / "Pulumi.yaml").read_text())

    assert settings["name"] == f"fleet-{project}"
    assert settings["runtime"] == "python"
    assert (shipped_folder("stacks") / project / "__main__.py").is_file()


def test_unknown_project_error_lists_known_projects(project: str) -> None:
    with pytest.raises(FleetError, match=f"'nope'.*\\b{project}\\b"):
        load_project("nope")
