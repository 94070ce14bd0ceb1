"""This module starts a helper of the engine before fleet.yaml is understood: both take a while."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fleet.engines.helper_process import HelperProcess

HELPER = (sys.executable, "-P", "-m", "fleet.commands.engine_helper")
_REAL_ENGINE = re.compile(rb"\b(aws|hcloud|pulumi)\b")
_LOOKED_AT = 5_000_000
"""Bytes: a file that is larger is refused."""


@contextmanager
def early_process(file: str) -> Iterator[HelperProcess | None]:
    """Yield what gets ready where a fleet.yaml seems to name the real engine, and end it.

    A guess: who knows better ends it, or starts one later.
    """
    process = _start() if _seems_to_need(Path(file)) else None
    try:
        yield process
    finally:
        if process:
            process.end()


def _seems_to_need(path: Path) -> bool:
    with suppress(OSError):
        # What is no file can be read only once, and is left to who understands it.
        if path.is_file():
            with path.open("rb") as stream:
                return _REAL_ENGINE.search(stream.read(_LOOKED_AT)) is not None
    return False


def _start() -> HelperProcess | None:
    with suppress(OSError):
        return HelperProcess(HELPER)
    return None
