"""This module lets a process of fleet start with as little as it can."""

import gc
import sys
from types import ModuleType


def start_lean() -> None:
    """Leave out what costs a third of start-up and does nothing for this program.

    pydantic reads the metadata of every installed package to look for plugins; none may change
    what our models mean. And while modules load, nearly everything that is made stays.
    """
    no_plugins = ModuleType("pydantic.plugin._loader")
    vars(no_plugins)["get_plugins"] = tuple
    sys.modules.setdefault(no_plugins.__name__, no_plugins)
    gc.set_threshold(5_000_000, 20, 20)
