"""What a ticket is, what may become of it, and how long its machine may be used again."""

import re
from datetime import timedelta

import pytest

from fleet.model.facts import Request
from fleet.model.tickets import (
    MOST_LETTERS,
    MOST_TAGS,
    TicketState,
    close,
    expire,
    fail,
    find_fault,
    hear,
    to_request,
)
from fleet.schema.model import Reuse
from fleet.tickets.assignment import Tenancy, may_serve_again, occupy
from tests.builders import NOW, ago
from tests.builders.ticketing import a_tenancy, a_ticket, used

REUSE = Reuse.model_validate({"opportunity": "5m", "max_uses": 3, "max_age": "1h"})


@pytest.mark.parametrize("state", [TicketState.CLOSED, TicketState.FAILED, TicketState.EXPIRED])
def test_ended_ticket_is_unchanged_by_later_events(state: TicketState) -> None:
    ended = a_ticket(state=state, lease=1)

    assert close(ended, NOW) == ended
    assert fail(ended, "gone", NOW) == ended
    assert expire(ended, NOW) == ended
    assert hear(ended, NOW) == ended


def test_closed_ticket_has_time() -> None:
    closed = close(a_ticket(), NOW)

    assert (closed.state, closed.ended_at) == (TicketState.CLOSED, NOW)


def test_failed_ticket_has_reason() -> None:
    assert fail(a_ticket(), "its machine is gone", NOW).because == "its machine is gone"


def test_ticket_expires_when_client_is_silent_for_its_lease() -> None:
    silent = a_ticket(lease=300, heard_at=ago(minutes=5))

    gone = expire(silent, NOW)

    assert gone.state is TicketState.EXPIRED
    assert gone.because.count("5m") == 2


def test_ticket_is_kept_when_client_was_heard_in_time() -> None:
    silent = a_ticket(lease=300, heard_at=ago(minutes=5))

    assert expire(hear(silent, NOW), NOW).is_open


def test_ticket_without_lease_never_expires() -> None:
    assert expire(a_ticket(heard_at=ago(days=400)), NOW).is_open


def test_heartbeat_is_kept_when_clock_was_set_back() -> None:
    heard = hear(a_ticket(), NOW)

    assert hear(heard, ago(hours=1)).heard_at == NOW


def test_machine_is_in_the_sandbox_of_its_first_ticket() -> None:
    occupied = occupy(a_tenancy(), a_ticket(sandbox="ada/ping"), NOW)

    assert (occupied.sandbox, occupied.uses, occupied.first_used) == ("ada/ping", 1, NOW)


def test_machine_counts_its_tickets_and_stores_the_first() -> None:
    occupied = occupy(used(), a_ticket(sandbox="ada/ping"), NOW)

    assert (occupied.uses, occupied.first_used) == (2, ago(minutes=9))


@pytest.mark.parametrize("sandbox", ["ben/ping", ""])
def test_machine_never_serves_another_sandbox(sandbox: str) -> None:
    with pytest.raises(ValueError, match=r"m1.*ada/ping"):
        occupy(used(), a_ticket(sandbox=sandbox), NOW)


@pytest.mark.parametrize("over", ["draining", "disabled"])
def test_deleted_machine_gets_no_ticket(over: str) -> None:
    with pytest.raises(ValueError, match="machine m1 "):
        occupy(a_tenancy(**{over: True}), a_ticket(), NOW)


def test_unused_machine_may_get_a_ticket() -> None:
    assert may_serve_again(a_tenancy(since=ago(days=3)), None, NOW)


def test_released_machine_may_be_used_again_in_its_sandbox() -> None:
    assert may_serve_again(used(), REUSE, NOW)
    # How long it is kept for that, a plan says.
    assert may_serve_again(used(since=ago(minutes=5)), REUSE, NOW)


@pytest.mark.parametrize(
    ("tenancy", "reuse"),
    [
        (used(), None),
        (occupy(a_tenancy(), a_ticket(), NOW), REUSE),
        (used(uses=3), REUSE),
        (used(first_used=ago(hours=1)), REUSE),
        (used(draining=True), REUSE),
        (used(disabled=True), REUSE),
    ],
    ids=["no-reuse", "no-sandbox", "max-uses", "max-age", "draining", "disabled"],
)
def test_used_up_machine_gets_no_ticket(tenancy: Tenancy, reuse: Reuse | None) -> None:
    assert not may_serve_again(tenancy, reuse, NOW)


def test_omitted_reuse_limit_is_unlimited() -> None:
    reuse = Reuse.model_validate({"opportunity": "1d", "max_age": None})

    assert may_serve_again(used(uses=99, first_used=ago(days=9)), reuse, NOW)


def test_ticket_is_a_waiting_request() -> None:
    ticket = a_ticket(7, sandbox="ada/ping", team="core", priority=3, background=True)

    assert to_request(ticket) == Request(
        id="7",
        required=("arch_x86_64",),
        provided=("sandbox:ada/ping",),
        asked={"arch_x86_64": "ticket"},
        priority=2,
        pending_since=NOW - timedelta(minutes=5),
        requester="ada",
        owner="ada",
        team="core",
        sandbox="ada/ping",
    )


def test_ticket_without_sandbox_has_none() -> None:
    assert to_request(a_ticket()).provided == ()


@pytest.mark.parametrize(
    ("tags", "fault"),
    [
        ((), "at least one"),
        (("",), "empty"),
        ((" a",), "' a'"),
        (("a\nb",), r"'a\\nb'"),
        (("a", "a b"), "tag 'a b'"),
        (("x" * (MOST_LETTERS + 1),), f"'{'x' * 20}'.* 201 .* 200"),
        (tuple(map(str, range(MOST_TAGS + 1))), "50 .* 51"),
        (("arch_x86_64",), "^$"),
    ],
)
def test_invalid_tags_are_named(tags: tuple[str, ...], fault: str) -> None:
    assert re.search(fault, find_fault(tags, ()))


def test_sandbox_that_resembles_that_of_a_ticket_is_refused() -> None:
    own = a_ticket(7).effective_sandbox

    assert find_fault(("a",), (own,)) != ""
