"""Declare machines that commands of your own make: one resource per worker.

Only fleet's embedded engine makes them: there is no plugin for another.
"""

from collections.abc import Mapping
from typing import Any

import pulumi

MACHINE = "hooks:index:Machine"
TEXTS = ("name", "type", "image", "architecture")
TABLES = ("labels", "settings")
LABELS = ("fleet", "pool", "worker", "digest")


class Machine(pulumi.CustomResource):
    """A machine of your own commands."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(MACHINE, name, dict(inputs), opts)


def program(inputs: Mapping[str, Any]) -> None:
    """Declare one machine per worker; `adopt` holds ids of machines that exist already.

    `owner` says which engine and provider the stack belongs to; the state records it.
    """
    adopt = _table(inputs.get("adopt", {}), "adopt")
    workers = inputs.get("workers")
    if not isinstance(workers, list):
        raise TypeError(f"workers must be a list, not {type(workers).__name__}")
    for worker in [_checked(each, index) for index, each in enumerate(workers)]:
        options = pulumi.ResourceOptions(import_=adopt.get(worker["name"]))
        Machine(worker["name"], worker, options)
    for key, text in _table(inputs.get("owner", {}), "owner").items():
        pulumi.export(key, text)


def _checked(worker: object, index: int) -> dict[str, Any]:
    where = f"workers[{index}]"
    if not isinstance(worker, Mapping):
        raise TypeError(f"{where} must be a mapping, not {type(worker).__name__}")
    unknown = sorted(set(worker) - {*TEXTS, *TABLES})
    if unknown:
        raise ValueError(f"{where} has unknown keys: {', '.join(map(str, unknown))}")
    for key in TEXTS:
        if not isinstance(worker.get(key), str) or not worker[key]:
            raise TypeError(f"{where}.{key} must be a text that is not empty")
    tables = {key: _table(worker.get(key), f"{where}.{key}") for key in TABLES}
    missing = [label for label in LABELS if label not in tables["labels"]]
    if missing:
        raise ValueError(f"{where}.labels lacks {', '.join(missing)}")
    return {key: worker[key] for key in TEXTS} | tables


def _table(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{where} must be a mapping, not {type(value).__name__}")
    wrong = sorted(str(key) for key, text in value.items() if not isinstance(text, str))
    if wrong:
        raise TypeError(f"{where} must hold texts, but not so: {', '.join(wrong)}")
    return dict(value)
