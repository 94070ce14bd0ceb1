"""This module finds the stack projects, in the checkout or in the wheel, and loads programs.

A stack's program is a file of its own that knows nothing of fleet: it is loaded by path.
"""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

import fleet
from fleet.errors import EngineAbsent, FleetError, PlanRefused
from fleet.facts import WorkerInputs

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Project:
    """One stack project: `recorded` reads a worker back, without what running a program needs."""

    name: str
    folder: Path
    recorded: Callable[[str, Inputs], dict[str, Any] | None]
    parts: Mapping[str, str]
    """Type of a resource that machines share, to the kind of part that it is."""

    @property
    def program(self) -> Callable[[Inputs], None]:
        """Return what declares resources; EngineAbsent where the provider's SDK is missing."""
        program: Callable[[Inputs], None] = _load(self.folder / "program.py").program
        return program

    def worker_of(self, kind: str, inputs: Inputs) -> WorkerInputs | None:
        """Return the worker that a resource was declared for; None when it is not one."""
        try:
            found = self.recorded(kind, inputs)
            return None if found is None else WorkerInputs.model_validate(found)
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise PlanRefused(
                f"stacks/{self.name}: a recorded {kind} is not of this program's making: {error}"
            ) from error


def stacks_folder() -> Path:
    """Return the folder of stack projects: the wheel's own, else the checkout's."""
    package = Path(fleet.__file__).parent
    for folder in (package / "_shipped" / "stacks", package.parent / "stacks"):
        if folder.is_dir():
            return folder
    raise FleetError(f"the stack projects are missing beside {package}; install fleet again")


@cache
def load_project(name: str) -> Project:
    """Return stacks/<name>, of which only the record's reader is loaded."""
    folder = stacks_folder() / name
    if not (folder / "recorded.py").is_file():
        known = ", ".join(sorted(each.parent.name for each in folder.parent.glob("*/recorded.py")))
        raise FleetError(f"there is no stack project {name!r}; there are: {known}")
    record = _load(folder / "recorded.py")
    return Project(name, folder, record.recorded, getattr(record, "PARTS", {}))


@cache
def _load(path: Path) -> ModuleType:
    """Load a module by its path; EngineAbsent where it needs what is not installed."""
    project = path.parent.name
    spec = importlib.util.spec_from_file_location(f"fleet_stack_{project}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FleetError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise EngineAbsent(
            f"stacks/{project} needs {error.name}, which is not installed: "
            f"install fleet with its extra `{project}`"
        ) from error
    return module
