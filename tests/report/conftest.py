"""Golden files of what a person reads; `pytest --update-golden` rewrites them."""

from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"

Golden = Callable[[str, str], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with a file of `golden/`."""
    updates = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        if updates:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_text(text, encoding="utf-8")
        assert text == (FOLDER / name).read_text(encoding="utf-8")

    return compare
