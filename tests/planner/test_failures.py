"""What is remembered of failures: which ways to make machines are closed, until when, and why."""

from datetime import timedelta
from pathlib import Path

import pytest

from fleet.model.facts import Attempt, Unknown, World
from fleet.planner.failures import (
    FAILURE_MEMORY,
    MAX_BACKOFF,
    MIN_BACKOFF,
    classify,
    find_failing,
    recall,
    settle,
)
from fleet.planner.inventory import take_inventory
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_pool,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
    an_attempt,
    some_inputs,
)
from tests.builders.deciding import FIRST, with_machines
from tests.builders.sentences import tells

OUT = "out-of-stock"
TWO_POOLS = {"builders": a_pool(provider="desk"), "other": a_pool(provider="desk")}


def closed(*attempts: Attempt, fleet: Fleet | None = None, **way: str) -> str:
    """Return why machines of `builders` are not made, after these tries."""
    fleet = fleet or a_sim_fleet()
    world = a_sim_world(attempts=attempts)
    memory = recall(fleet, world, take_inventory(fleet, world))
    asked = {"pool": "builders", "kind": "ccx33", "market": "on-demand", "provider": "desk"}
    reason, _ = find_failing(memory, **(asked | way))  # type: ignore[arg-type]  # a market is text
    return reason


def some(results: str, *, minutes: float = 10, **said: object) -> list[Attempt]:
    """Return one try for each word, the first the oldest, `minutes` between one and the next."""
    words = results.split()
    return [
        an_attempt(
            result=word,
            worker=f"debian-ci-builders-{number:04}",
            at=ago(minutes=minutes * (len(words) - number) - minutes + 1),
            **said,
        )
        for number, word in enumerate(words)
    ]


REFUSALS = [
    line.partition(": ")[::2]
    for line in (Path(__file__).parent / "refusals.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize(("result", "said"), REFUSALS)
def test_refusal_of_debian_1_is_classified_by_its_code(result: str, said: str) -> None:
    assert classify(said, "debian-1") == result


def at_hooks(new: str) -> Fleet:
    """Return a fleet whose pool has machines of own commands with this time limit of `new`."""
    commands = {each: ["sh", each] for each in ("new", "delete", "list")}
    desk = {"kind": "hooks", **commands, "timeouts": {"new": new}}
    machine = {"cores": 4, "memory": "8GiB", "price": "0.10 EUR/h"}
    return a_sim_fleet(
        providers={"desk": desk}, pools={"builders": a_pool(provider="desk", machine=machine)}
    )


def test_attempt_is_failed_when_run_died_before_command_new_ended() -> None:
    begun = a_stack(provider="desk", workers=(some_inputs(),), ids={}, interrupted=True)
    fleet = at_hooks("30m")

    def results(minutes: int) -> list[str]:
        tried = an_attempt(result="starting", at=ago(minutes=minutes))
        world = a_sim_world(attempts=(tried,), stacks={"builders": begun})
        return [each.result for each in settle(fleet, world, take_inventory(fleet, world))]

    assert (results(29), results(31)) == ([], ["error"])


TAKEN, SOLD = "name-taken ", f"{OUT} "


@pytest.mark.parametrize(
    ("results", "words"),
    [
        pytest.param(TAKEN * 7, None, id="names taken in seven runs"),
        pytest.param(TAKEN * 8, ["8 runs"], id="names taken in eight runs"),
        pytest.param("error error name-taken error error", ["4", "4"], id="name taken in between"),
        pytest.param(f"{SOLD * 2}registered {OUT}", ["in 1 run"], id="success ends a streak"),
        pytest.param(f"registered {OUT} {OUT}", ["2 runs"], id="success before a streak"),
        pytest.param(f"{OUT} gone {OUT}", ["2 runs"], id="no result ends no streak"),
        pytest.param("error", None, id="one error"),
        pytest.param("registered " * 5 + "error", None, id="one error after successes"),
        pytest.param("error error error", None, id="three errors are too few for a rate"),
        pytest.param("failed failed failed failed", ["4", "4"], id="unregistered boots"),
        pytest.param("error " * 4 + "registered", None, id="the latest attempt succeeded"),
        pytest.param(SOLD * 4 + "registered error", None, id="out of stock is no error"),
    ],
)
def test_option_closes_by_its_latest_attempts(results: str, words: list[str] | None) -> None:
    tries = some(results)

    assert tells(closed(*tries), *words) if words else closed(*tries) == ""
    assert closed(*tries) == closed(*reversed(tries))


def test_failure_leaves_other_types_markets_and_pools_open() -> None:
    out = an_attempt(result=OUT, at=ago(minutes=1))

    assert closed(out, kind="ccx63") == ""
    assert closed(out, market="spot") == ""
    assert closed(out, fleet=a_sim_fleet(pools=TWO_POOLS), pool="other") == ""


def test_out_of_stock_is_retried_after_three_minutes() -> None:
    assert closed(an_attempt(result=OUT, at=NOW - MIN_BACKOFF + timedelta(seconds=1)))
    assert not closed(an_attempt(result=OUT, at=NOW - MIN_BACKOFF))


def test_backoff_doubles_per_failing_run_up_to_half_an_hour() -> None:
    # The latest try was a minute ago; 3, 6, 12, 24, 30, 30 minutes after it is the next.
    ends = [closed(*some(f"{OUT} " * runs)) for runs in range(1, 7)]

    assert [end[-12:-4] for end in ends] == [
        "08:02:00",
        "08:05:00",
        "08:11:00",
        "08:23:00",
        "08:29:00",
        "08:29:00",
    ]
    assert timedelta(minutes=30) == MAX_BACKOFF


def test_failure_is_ignored_after_three_hours() -> None:
    long_ago = an_attempt(result=OUT, at=ago(minutes=1) - FAILURE_MEMORY - timedelta(seconds=1))

    assert "(in 1 run)" in closed(long_ago, an_attempt(result=OUT, at=ago(minutes=1)))


def test_quota_closes_market_in_every_pool_of_provider() -> None:
    fleet = a_sim_fleet(pools=TWO_POOLS)
    full = an_attempt(pool="other", type="ccx63", result="quota", at=ago(minutes=1))

    assert tells(closed(full, fleet=fleet), "desk", "in 1 run", "2026-11-21 08:02:00 UTC")
    assert closed(full, fleet=fleet, market="spot") == ""
    assert closed(full, fleet=fleet, provider="elsewhere") == ""


def test_option_closes_when_half_of_its_attempts_fail() -> None:
    tries = some("registered registered error error", minutes=1)

    assert tells(closed(*tries), "2", "4", "2", "2026-11-21 08:05:00 UTC")


# what became of tries that an earlier run began

BEGUN = an_attempt(result="starting")


def settled(world: World, *attempts: Attempt) -> list[str]:
    """Return the results of the tries that the world says have ended."""
    fleet = a_sim_fleet()
    known = world.altered(attempts=attempts or (BEGUN,))
    return [each.result for each in settle(fleet, known, take_inventory(fleet, known))]


OVERDUE = with_machines(a_sim_world(starting=(FIRST,)), created_at=ago(minutes=11))


@pytest.mark.parametrize(
    ("world", "results"),
    [
        pytest.param(a_sim_world(starting=(FIRST,)), [], id="its machine boots"),
        pytest.param(OVERDUE, ["failed"], id="registration is late"),
        pytest.param(a_sim_world(), ["gone"], id="apply died before the creation"),
        pytest.param(a_sim_world(a_worker()).altered(stacks={}), [], id="one source lists it"),
    ],
)
def test_attempt_has_result_of_its_machine(world: World, results: list[str]) -> None:
    assert settled(world) == results


@pytest.mark.parametrize(
    "dark",
    [
        {"providers": {"desk": Unknown(unknown="no answer")}},
        {"stacks": Unknown(unknown="no store")},
        {"stacks": {"builders": Unknown(unknown="no state")}},
    ],
)
def test_attempt_is_open_when_sources_are_unknown(dark: dict[str, object]) -> None:
    assert settled(a_sim_world().altered(**dark)) == []


def test_result_of_attempt_never_changes() -> None:
    assert settled(a_sim_world(), an_attempt(result="error"), an_attempt()) == []
