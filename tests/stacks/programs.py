"""Evaluate a stack program in a test, and hold inputs that it accepts."""

from collections.abc import Mapping
from typing import Any

from fleet.engines.projects import Resource, evaluate, load_project


def declared(project: str, inputs: Mapping[str, Any]) -> tuple[Resource, ...]:
    """Return what a program declares for these inputs."""
    program = load_project(project).program
    return evaluate(lambda: program(inputs), project=project, stack="test")


def a_worker_of(project: str, **overrides: object) -> dict[str, Any]:
    """Return one worker as a program takes it."""
    settings = {
        "aws": {"template": "debian-amazon-0123"},
        "hcloud": {"location": "fsn1"},
        "local": {"run": "sleep infinity"},
    }
    labels = {"fleet": "debian", "pool": "big", "worker": "debian-big-0001", "digest": "0123"}
    worker: dict[str, Any] = {
        "name": "debian-big-0001",
        "type": "ccx33",
        "image": "trixie",
        "architecture": "amd64",
        "labels": labels,
        "settings": settings.get(project, {}),
    }
    return worker | overrides


def accepted(project: str, *workers: object, **overrides: object) -> dict[str, Any]:
    """Return a program's inputs for these workers."""
    given: dict[str, Any] = {"workers": list(workers) or [a_worker_of(project)]}
    if project in ("aws", "hcloud"):
        given["user_data"] = {"debian-big-0001": "#cloud-config token: of-the-test"}
    return given | overrides
