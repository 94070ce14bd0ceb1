"""Declare simulated machines: one resource per worker, nothing else.

It imports only pulumi, so that people can run it with the official release and no fleet.
"""

from collections.abc import Mapping
from typing import Any

import pulumi

MACHINE = "sim:index:Machine"
TEXTS = ("name", "type", "image", "architecture")
TABLES = ("labels", "settings")
LABELS = ("fleet", "pool", "worker", "digest")


class Machine(pulumi.CustomResource):
    """A simulated machine."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(MACHINE, name, dict(inputs), opts)


def program(inputs: Mapping[str, Any]) -> None:
    """Declare one machine per worker; `adopt` holds ids of machines that exist already.

    `user_data` holds a secret text per new worker; `owner` says which engine and provider the
    stack belongs to; the state records it.
    """
    adopt = _table(inputs.get("adopt", {}), "adopt")
    secret = _table(inputs.get("user_data", {}), "user_data")
    workers = inputs.get("workers")
    if not isinstance(workers, list):
        raise TypeError(f"workers must be a list, not {type(workers).__name__}")
    for worker in [_checked(each, index) for index, each in enumerate(workers)]:
        name = worker["name"]
        given = secret.get(name) if name not in adopt else None
        options = pulumi.ResourceOptions(
            # An import fails on a difference, so an adopted machine is exactly what was asked for.
            import_=adopt.get(name),
            # What a machine was given at its first boot never makes another.
            ignore_changes=[] if given else ["userData"],
        )
        extra = {"userData": pulumi.Output.secret(given)} if given else {}
        Machine(name, worker | extra, options)
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
