"""The plain `pulumi` command runs `__main__.py`, which reads the stack's own configuration."""

import json
import runpy
import sys

import pytest
from pulumi.runtime.config import set_all_config

from fleet.engines.projects import Resource, evaluate
from fleet.errors import PlanRefused
from fleet.state.storage import shipped_folder
from tests.stacks.programs import a_worker_of, accepted

PROJECTS = ["aws", "hcloud", "hooks", "local", "sim"]


def by_hand(project: str, config: dict[str, object]) -> tuple[Resource, ...]:
    texts = {f"fleet-{project}:{key}": json.dumps(value) for key, value in config.items()}

    def run() -> None:
        set_all_config(texts, [f"fleet-{project}:user_data"])
        runpy.run_path(str(shipped_folder("stacks") / project / "__main__.py"))

    try:
        return evaluate(run, project=f"fleet-{project}", stack="by-hand")
    finally:
        set_all_config({})
        sys.modules.pop("program", None)


@pytest.mark.parametrize("project", PROJECTS)
def test_manual_pulumi_run_keeps_recorded_workers(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(shipped_folder("stacks") / project)
    owner = {"engine": "pulumi", "provider": "desk"}

    resources = by_hand(project, accepted(project, owner=owner))

    assert [each.name for each in resources] == [a_worker_of(project)["name"]]


@pytest.mark.parametrize("project", PROJECTS)
def test_manual_pulumi_run_is_refused_without_workers(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(shipped_folder("stacks") / project)

    with pytest.raises(PlanRefused, match="workers"):
        by_hand(project, {})
