"""Requests of a Debusine as text: `7 amd64 of=hello priority=5`."""

import re

import yaml

from tests.rigs.debusine_tables import RequestRow

_ARCHITECTURE = "worker:build-arch:"
_PACKAGE = "task:source-package:"
_TIMES = ("created_at", "started_at", "completed_at")
_DAY = "2026-11-21"


def split(text: str) -> list[str]:
    """Return the requests of a text, without commas in brackets."""
    return [each for each in re.split(r",(?![^\[{]*[\]}])", text) if each.strip()]


def short(tag: str) -> str:
    """Return a tag as texts have it."""
    return tag.removeprefix(_ARCHITECTURE)


def row_of(text: str) -> RequestRow:
    """Return a request: its id, the tags that it requires, and columns."""
    number, *words = re.split(r"\s+(?![^{]*})", text.strip())
    said: dict[str, object] = {}
    provided = []
    for word in words:
        key, _, value = word.partition("=")
        match key:
            case "of" | "gives":
                provided.append(_PACKAGE + value if key == "of" else value)
            case "took":
                said = {"status": "completed", "result": "success", "worker": 1} | said
                said |= {"started_at": f"{_DAY} 08:00+00"}
                said |= {"completed_at": f"{_DAY} 08:{int(value):02}+00"}
            case "used":
                memory = {"memory": (int(value) - 1) * 2**20 + 1, "disk_space": None}
                said["output"] = {"runtime_statistics": memory}
            case "in":
                said["dynamic"] = looked_up(*value.split(":"))
            case "timeout":
                said["data"] = {"timeout": {"global": int(value)}}
            case _ if key in _TIMES:
                said[key] = f"{_DAY} {value}+00"
            case _ if value:
                said[key] = yaml.safe_load(value)
    required = tuple(_ARCHITECTURE + word for word in words if "=" not in word)
    return RequestRow(int(number), required, tuple(provided), **said)  # type: ignore[arg-type] # columns


def looked_up(number: str, architecture: str = "") -> dict[str, object]:
    """Return what the server makes of task data; without a name, the environment is gone."""
    data = {"artifact_id": int(number), "data": {"architecture": architecture}}
    fields = {"task_input_fields": {"environment": data}} if architecture else {}
    return {"environment_id": int(number), **fields}
