"""Stores in SQLite for tests of other rooms; in memory, where tests have their folders there."""

import os
import shutil
import weakref
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.state.store import Store

_NUMBERS = count()


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))


@cache
def _empty_store(fleet: str) -> Path:
    """Return a file that each store of a fleet starts as a copy of: tables take milliseconds."""
    path = Path(_folder().name, f"empty-{next(_NUMBERS)}.db")
    Store(f"sqlite:///{path}", fleet).init()
    return path


def new_store(fleet: str = "debian-ci", *, created: bool = True) -> Store:
    """Return an empty store, or one that was not created; its file is removed with the value."""
    path = Path(_folder().name, f"store-{next(_NUMBERS)}.db")
    if created:
        shutil.copy(_empty_store(fleet), path)
    store = Store(f"sqlite:///{path}", fleet)
    weakref.finalize(store, path.unlink, missing_ok=True)
    return store
