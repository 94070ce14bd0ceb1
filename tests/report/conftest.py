"""Golden files of what a person reads; `pytest --update-golden` rewrites them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rigs import golden as files

FOLDER = Path(__file__).parent / "golden"

Golden = Callable[[str, str], None]


@pytest.fixture
def golden(golden: files.Golden) -> Golden:
    """Compare a text with a file of `golden/`."""
    return lambda name, text: golden.compare(FOLDER / name, text)
