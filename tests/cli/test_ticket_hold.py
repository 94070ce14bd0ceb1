"""A machine with a ticket that is held and released goes on to serve tickets."""

import json

import pytest

from tests.cli.test_ticket_turns import REUSE, Story
from tests.rigs.repeats import slow_but

FIRST = "trial-powerful-0001"


def states(story: Story) -> dict[str, tuple[str, str]]:
    """Return what a plan does with each worker, and why."""
    workers = json.loads(story.run("plan", "--json"))["workers"]
    return {each["worker"]: (each["verdict"], each["reason"]) for each in workers}


def held_and_released(story: Story, *, closed: bool) -> None:
    """Have the machine of a ticket held for two runs; the ticket ends meanwhile, or later."""
    story.open("ada")
    for _ in range(2):
        story.step(holds=99)
    story.run("hold", FIRST, "--for", "1h", "--reason", "looked at")
    story.step(holds=99)
    if closed:
        story.run("ticket", "close", "1", "--user", "ada")
    story.step(holds=99)
    story.run("hold", FIRST, "--end")
    story.step(holds=99)
    if not closed:
        story.run("ticket", "close", "1", "--user", "ada")


@pytest.mark.parametrize("closed", slow_but([False], [False, True]))
def test_released_machine_serves_the_next_ticket(story: Story, *, closed: bool) -> None:
    story.begin(1)
    held_and_released(story, closed=closed)

    story.open("ada")
    story.step(holds=99)

    assert states(story) == {FIRST: ("keep", "busy")}


def test_released_machine_is_deleted_without_reuse(story: Story) -> None:
    story.begin(1, REUSE.replace("reuse: {opportunity: 15m, max_uses: 99, max_age: 8h}", ""))
    held_and_released(story, closed=False)

    assert states(story) == {FIRST: ("delete", "ticket-returned")}
