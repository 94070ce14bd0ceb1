"""When machines expire, who extends that, and what a sweep deletes: cases of `expiries/`."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.machine import sweep
from fleet.guard import guard
from fleet.model.facts import Listing, Unknown, World
from fleet.planner.inventory import expired_at, extended, find_due
from tests.builders import NOW, a_machine, a_sim_fleet, a_sim_world, a_stack, ago
from tests.builders.cases import Block, read_blocks
from tests.builders.deciding import with_machines
from tests.builders.decisions import Case, because, decided, world_of
from tests.builders.sentences import tells

DAILY = a_sim_fleet(expire_after="1d")
LOST = Unknown(unknown="there is no store")
CASES = [*read_blocks(Path(__file__).parent / "expiries")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_expiry_is_extended_and_swept_as_in_its_case(case: Block) -> None:
    pool, text, expiry = case.parts
    fleet = Case("", pool, text, "", ()).fleet.model_copy(update={"expire_after": 86_400})
    world = expiring(world_of(text), *expiry.split())
    due = [m.name[-1] for _, machines in find_due(fleet, world) for m in machines]

    plan = guard(fleet, sweep(fleet, world))

    found = f"due {' '.join(due) or 'none'}; {decided(plan)}"
    assert found + (f"; withheld {len(plan.withheld)}" if plan.withheld else "") == case.result
    for about, words in case.because:
        told = plan.unknown if about == "unknown" else [because(plan, about)]
        assert any(tells(each, *words.split()) for each in told), told


def expiring(world: World, hours: str, *more: str) -> World:
    """Return a world whose machines all expire then, in hours; `-` where no expiry is kept."""
    expires = None if hours in ("-", "none") else NOW + timedelta(hours=int(hours))
    seen = with_machines(world, expires=expires)
    listing = seen.providers["desk"]
    assert isinstance(listing, Listing)
    noted: dict[str, Any] = {"providers": {"desk": listing.altered(notes_expiry=hours != "-")}}
    if "unread" in more:
        reading = world.queues["debian"].altered(workers=Unknown(unknown="it is down"))
        noted["queues"] = {"debian": reading}
    stacks = {"lost": LOST, "lost-stack": {"builders": LOST}}
    stacks["empty"] = {"builders": a_stack(provider="desk")}
    for word in stacks.keys() & {*more}:
        noted["stacks"] = stacks[word]
    return seen.altered(**noted)


def test_expiry_is_at_least_expire_after_from_end_of_run() -> None:
    assert extended(DAILY, NOW) - NOW == timedelta(hours=30)


@pytest.mark.parametrize(("days", "over"), [(2, True), (0, False)])
def test_expiry_is_assumed_from_age_when_journal_is_lost(days: int, *, over: bool) -> None:
    world = expiring(a_sim_world(runs=LOST), "none")

    found = expired_at(DAILY, world, "desk", a_machine(created_at=ago(days=days, hours=3)))
    assert (found is not None) is over
