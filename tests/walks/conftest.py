"""Give each walk its folder, and plays its page: docs/walks/NAME.md."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.test_documents import steady
from tests.rigs.golden import Golden
from tests.rigs.warm import Warm
from tests.walks.walking import Walk

Play = Callable[..., None]


@pytest.fixture
def walk(tmp_path: Path, warm: Warm) -> Walk:
    """Return an empty folder with the program; `later` moves its clock."""
    return Walk(tmp_path, warm)


@pytest.fixture
def play(walk: Walk, golden: Golden) -> Play:
    """Return a function that plays a page; `pytest --update-golden` rewrites it."""

    def played(page: str, settle: Callable[[str], str] = steady) -> None:
        walk.play(page, golden, settle)

    return played
