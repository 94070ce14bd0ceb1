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
from fleet.tickets.tenancy import Tenancy, may_serve_again, occupy
from tests.builders import NOW, ago
from tests.builders.ticketing import a_tenancy, a_ticket, used

REUSE = Reuse.model_validate({"opportunity": "5m", "max_uses": 3, "max_age": "1h"})
UNLIMITED = Reuse.model_validate({"opportunity": "1d", "max_age": None})


@pytest.mark.parametrize("state", [TicketState.CLOSED, TicketState.FAILED, TicketState.EXPIRED])
def test_ended_ticket_is_unchanged_by_later_events(state: TicketState) -> None:
    ended = a_ticket(state=state, lease=1)

    after = [close(ended, NOW), fail(ended, "gone", NOW), expire(ended, NOW), hear(ended, NOW)]
    assert after == [ended] * 4


def test_closed_or_failed_ticket_has_its_time_and_reason() -> None:
    closed, failed = close(a_ticket(), NOW), fail(a_ticket(), "its machine is gone", NOW)

    assert (closed.state, closed.ended_at) == (TicketState.CLOSED, NOW)
    assert failed.because == "its machine is gone"


def test_ticket_expires_when_client_is_silent_for_its_lease() -> None:
    silent = a_ticket(lease=300, heard_at=ago(minutes=5))
    gone = expire(silent, NOW)

    assert gone.state is TicketState.EXPIRED
    assert gone.because.count("5m") == 2
    assert expire(hear(silent, NOW), NOW).is_open
    assert expire(a_ticket(heard_at=ago(days=400)), NOW).is_open, "it has no lease"


def test_heartbeat_is_kept_when_clock_was_set_back() -> None:
    assert hear(hear(a_ticket(), NOW), ago(hours=1)).heard_at == NOW


@pytest.mark.parametrize(
    ("before", "uses", "first"), [(a_tenancy(), 1, NOW), (used(), 2, ago(minutes=9))]
)
def test_machine_counts_its_tickets_and_has_the_sandbox_of_the_first(
    before: Tenancy, uses: int, first: object
) -> None:
    occupied = occupy(before, a_ticket(sandbox="ada/ping"), NOW)

    assert (occupied.sandbox, occupied.uses, occupied.first_used) == ("ada/ping", uses, first)


@pytest.mark.parametrize(
    ("tenancy", "sandbox", "says"),
    [
        (used(), "ben/ping", r"m1.*ada/ping"),
        (used(), "", r"m1.*ada/ping"),
        (a_tenancy(draining=True), "", "machine m1 "),
        (a_tenancy(disabled=True), "", "machine m1 "),
    ],
)
def test_machine_of_another_sandbox_or_deleted_gets_no_ticket(
    tenancy: Tenancy, sandbox: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        occupy(tenancy, a_ticket(sandbox=sandbox), NOW)


@pytest.mark.parametrize(
    ("tenancy", "reuse", "may"),
    [
        (a_tenancy(since=ago(days=3)), None, True),
        (used(), REUSE, True),
        (used(since=ago(minutes=5)), REUSE, True),  # how long it is kept for that, a plan says
        (used(uses=99, first_used=ago(days=9)), UNLIMITED, True),
        (used(), None, False),
        (occupy(a_tenancy(), a_ticket(), NOW), REUSE, False),
        (used(uses=3), REUSE, False),
        (used(first_used=ago(hours=1)), REUSE, False),
        (used(draining=True), REUSE, False),
        (used(disabled=True), REUSE, False),
    ],
    ids=[
        *("unused", "released", "kept", "unlimited", "no-reuse", "no-sandbox", "max-uses"),
        *("max-age", "draining", "disabled"),
    ],
)
def test_machine_may_serve_again_within_its_limits(
    tenancy: Tenancy, reuse: Reuse | None, *, may: bool
) -> None:
    assert may_serve_again(tenancy, reuse, NOW) is may


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
    assert find_fault(("a",), (a_ticket(7).effective_sandbox,)) != ""
