"""What a ticket is told while it waits: the limit that stops it, with who counts to it."""

import re
from datetime import timedelta

import pytest

from fleet.model.facts import Unknown
from fleet.schema.model import Fleet
from fleet.tickets.handout import ITS_TURN, judge, why_all_wait, why_waits
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.ticketing import a_ticket, a_ticket_fleet

TAGS = ("arch_x86_64", "extra_powerful")


def limited(**limits: object) -> Fleet:
    return a_ticket_fleet(tag={"limits": limits})


def told(fleet: Fleet, *tickets: dict[str, object]) -> list[str]:
    """Return what each of these is told that waits, in their order."""
    each = [a_ticket(n, **({"tags": TAGS} | ask)) for n, ask in enumerate(tickets, 1)]
    return [said for _, said in sorted(why_all_wait(fleet, "tickets", each, NOW).items())]


@pytest.mark.parametrize("of", ["submitter", "owner", "team", "sandbox"])
def test_per_field_limit_names_tickets_waiting_before(of: str) -> None:
    ours: dict[str, object] = {of: "lea"}
    others: dict[str, object] = {of: "ben"}

    said = told(limited(per={of: 1}), ours, ours, others)

    limit = f"tags.extra_powerful.limits.per.{of}"
    assert [each.startswith(f"{ITS_TURN}; {limit}") for each in said] == [True, False, True]
    assert tells(said[0], limit, "1", "lea", "0")
    assert tells(said[1], limit, "1", "lea", "0", "1 waiting")
    assert tells(said[2], limit, "1", "ben", "0")
    assert [tells(each, "waiting before") for each in said] == [False, True, False]


def test_total_limit_counts_held_and_waiting_tickets() -> None:
    held: dict[str, object] = {"machine": "m1", "state": "ready", "owner": "ben"}

    said = told(limited(total=2), held, {"owner": "lea"}, {"owner": "ada"})

    limit = "tags.extra_powerful.limits.total"
    assert said[0].startswith(f"{ITS_TURN}; {limit}")
    assert tells(said[0], limit, "2", "1")
    assert tells(said[1], limit, "2", "1", "1 waiting")


def test_owner_limit_of_tag_applies_per_architecture() -> None:
    fleet = a_ticket_fleet(tags={"arch_x86_64": {"limits": {"per": {"owner": 1}}}})

    said = told(fleet, {"tags": ("arch_x86_64",)}, {"tags": ("arch_x86_64",)})

    assert tells(said[1], "tags.arch_x86_64.limits.per.owner", "1", "ada", "0", "1")


def test_limit_of_queue_counts_tickets_with_any_tags() -> None:
    fleet = a_ticket_fleet(queues={"tickets": {"kind": "tickets", "limits": {"total": 1}}})

    said = told(fleet, {"tags": ("arch_x86_64",)}, {})

    assert tells(said[1], "queues.tickets.limits.total", "1", "0", "1")


def test_background_ticket_waits_behind_later_ones() -> None:
    said = told(limited(per={"owner": 1}), {"background": True}, {})

    assert tells(said[0], "1", "ada", "0", "1")
    assert said[1].startswith(ITS_TURN)


def test_unservable_ticket_blocks_no_other() -> None:
    fleet = a_ticket_fleet(
        tag={"limits": {"total": 1}}, queues={"tickets": {"kind": "tickets", "blocked": ["eve"]}}
    )

    said = told(fleet, {"owner": "eve"}, {"tags": (*TAGS, "arch_riscv64")}, {})

    assert re.match(r"queues\.tickets\.blocked .*\beve\b", said[0])
    assert tells(said[1], "queue tickets", "arch_riscv64")
    assert said[2].startswith(ITS_TURN)


def test_reason_of_one_ticket_equals_that_of_all() -> None:
    fleet = limited(per={"owner": 1})
    first, second = (a_ticket(n, tags=TAGS, heard_at=NOW) for n in (1, 2))

    said = why_waits(fleet, "tickets", second, [first, second])

    assert said == why_all_wait(fleet, "tickets", [first, second], NOW)[2]


def test_reasons_of_thousands_of_tickets_need_one_pass() -> None:
    fleet = limited(total=1)
    tickets = [
        a_ticket(n, tags=TAGS, opened_at=NOW - timedelta(seconds=n)) for n in range(1, 3001)
    ]

    said = why_all_wait(fleet, "tickets", tickets, NOW)

    assert sum(each.startswith(ITS_TURN) for each in said.values()) == 1


def test_reason_names_pools_that_create_no_machine() -> None:
    fleet = a_ticket_fleet(pool={"mode": "pause"})

    because = why_waits(fleet, "tickets", a_ticket(), ())

    assert tells(because, "pools.powerful.mode", "pause")


@pytest.mark.parametrize(("priority", "waits"), [("low", 1), ("normal", 2), ("high", 2)])
def test_priority_of_tag_decides_turn(priority: str, waits: int) -> None:
    fleet = a_ticket_fleet(
        tag={"priority": priority}, queues={"tickets": {"kind": "tickets", "limits": {"total": 1}}}
    )

    said = why_all_wait(fleet, "tickets", [a_ticket(1, tags=TAGS), a_ticket(2)], NOW)

    held_back = [number for number, because in said.items() if not because.startswith(ITS_TURN)]
    assert held_back == [waits]


# what the rules make of a ticket's tags

RULED = a_ticket_fleet(
    tag={"asked_by": ["rules", {"groups": ["porters"]}]},
    powerful=[{"match": "praiskup/ping/fedora-.*/chromium", "ask": ["extra_powerful"]}],
)
CHROMIUM = {
    "owner": "praiskup",
    "project": "ping",
    "chroot": "fedora-43-x86_64",
    "package": "chromium",
}
NOBODY: dict[str, list[str]] = {}


def test_allow_list_rule_gives_ticket_the_tag_of_its_build() -> None:
    ticket = a_ticket(1, tags=("arch_x86_64",), **CHROMIUM)

    (given,) = judge(RULED, ticket, NOBODY, NOW.date()).given

    assert (given.tag, given.path) == ("extra_powerful", ("powerful", 0))


def test_ticket_may_request_tag_that_a_rule_grants() -> None:
    ticket = a_ticket(1, tags=TAGS, **CHROMIUM)

    assert judge(RULED, ticket, NOBODY, NOW.date()).denied == ()


@pytest.mark.parametrize(
    ("build", "hint"),
    [({}, "--build"), (CHROMIUM | {"package": "bash"}, "praiskup/ping/fedora-43-x86_64/bash")],
)
def test_ticket_is_denied_a_tag_with_a_hint(build: dict[str, object], hint: str) -> None:
    (denied,) = judge(RULED, a_ticket(1, tags=TAGS, **build), NOBODY, NOW.date()).denied

    assert denied.path == ("tags", "extra_powerful", "asked_by")
    assert denied.because.startswith("user ada ")
    assert hint in denied.because.rpartition("; ")[2]


def test_group_member_may_request_tag_unless_membership_is_unknown() -> None:
    ticket = a_ticket(tags=TAGS)

    allowed = judge(RULED, ticket, {"porters": ["ada"]}, NOW.date())
    unsure = judge(RULED, ticket, Unknown(unknown="no such file"), NOW.date())

    assert (allowed.denied, allowed.unknown) == ((), "")
    assert (len(unsure.denied), unsure.unknown) == (1, "no such file")


def test_waivable_tag_is_waived_when_denied() -> None:
    fleet = a_ticket_fleet(
        tag={"asked_by": ["rules"], "otherwise": {"after": "30m", "drop": True}}
    )

    judged = judge(fleet, a_ticket(tags=TAGS), NOBODY, NOW.date())

    assert ([each.tag for each in judged.dropped], judged.denied) == (["extra_powerful"], ())


def test_rule_does_not_make_a_project_a_source_build() -> None:
    fleet = a_ticket_fleet(derive=[{"source_build": True, "ask": "extra_powerful"}])

    of_project = judge(fleet, a_ticket(project="ping"), NOBODY, NOW.date())
    of_source = judge(fleet, a_ticket(project="ping", chroot="srpm-builds"), NOBODY, NOW.date())

    assert of_project.given == ()
    assert [each.tag for each in of_source.given] == ["extra_powerful"]


def test_waiting_ticket_names_limit_of_rule_tag() -> None:
    fleet = a_ticket_fleet(
        tag={"asked_by": ["rules"], "limits": {"per": {"owner": 1}}},
        powerful=[{"match": "praiskup/ping/fedora-.*/chromium", "ask": ["extra_powerful"]}],
    )
    tags: dict[str, object] = {"tags": ("arch_x86_64",)}

    said = told(fleet, tags | CHROMIUM, tags | CHROMIUM)

    assert tells(said[1], "tags.extra_powerful.limits.per.owner", "1", "praiskup", "0", "1")
