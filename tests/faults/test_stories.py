"""What goes wrong around a fleet, told in tests/faults/stories/*.txt."""

from pathlib import Path

import pytest
import time_machine

from tests.rigs.stories import Story, read_stories
from tests.rigs.trial import Trial


@pytest.mark.parametrize("steps", read_stories(Path(__file__).parent / "stories"))
def test_fleet_gets_along_as_its_story_tells(
    trial: Trial, clock: time_machine.Traveller, steps: list[str]
) -> None:
    Story(trial, clock).play(steps)
