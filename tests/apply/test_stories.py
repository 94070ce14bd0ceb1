"""What an apply does with each pool, worker and token, over written fakes: tests/apply/stories."""

from pathlib import Path

import pytest

from tests.rigs.bench import Bench
from tests.rigs.stories import read_stories


@pytest.mark.parametrize("steps", read_stories(Path(__file__).parent / "stories"))
def test_apply_does_as_its_story_tells(steps: list[str]) -> None:
    Bench().play(steps)
