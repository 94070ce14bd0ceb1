"""What a ticket is told while it waits: the limit that stops it, with who counts to it."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from fleet.schema.model import Fleet
from fleet.tickets.reasons import ITS_TURN, judge, why_all_wait, why_waits
from tests.builders import NOW
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells
from tests.builders.ticketing import a_ticket, a_ticket_fleet

TAGS = ("arch_x86_64", "extra_powerful")


def limited(**limits: object) -> Fleet:
    return a_ticket_fleet(tag={"limits": limits})


CASES = [*read_blocks(Path(__file__).parent / "prospects")]
KEY = re.compile(r"\b(?:tags|queues|pools)\.[\w.]+\w")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_waiting_tickets_learn_limits_as_in_their_case(case: Block) -> None:
    said = told(*case.parts)

    assert describe(said) == case.result
    for number, words in case.because:
        assert tells(said[int(number)], *words.split())


def told(of_fleet: str, tickets: str) -> dict[int, str]:
    """Return what each of these is told that waits."""
    keys = yaml.safe_load(f"{{{of_fleet}}}")
    tag = keys.pop("tag", {}) | ({"limits": keys.pop("limits")} if "limits" in keys else {})
    fleet = a_ticket_fleet(tag=tag, **keys)
    each = []
    for number, words in enumerate(re.split(r",(?![^\[]*\])", tickets), start=1):
        pairs = (word.partition("=")[::2] for word in words.split())
        said = {"tags": TAGS} | {key: yaml.safe_load(value) for key, value in pairs}
        build = CHROMIUM if said.pop("build", "") else {}
        each.append(a_ticket(number, **said, **build))
    return why_all_wait(fleet, "tickets", each, NOW)


def describe(said: Mapping[int, str]) -> str:
    """Return whether it is the turn of a ticket, and the key that it is told of."""
    return ", ".join(
        f"{number} {'turn' if because.startswith(ITS_TURN) else 'behind'}"
        + "".join(f" {key}" for key in KEY.findall(because)[:1])
        for number, because in sorted(said.items())
    )


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


@pytest.mark.parametrize(
    ("build", "hint"),
    [({}, "--build"), (CHROMIUM | {"package": "bash"}, "praiskup/ping/fedora-43-x86_64/bash")],
)
def test_ticket_is_denied_a_tag_with_a_hint(build: dict[str, object], hint: str) -> None:
    (denied,) = judge(RULED, a_ticket(1, tags=TAGS, **build), NOBODY, NOW.date()).denied

    assert denied.path == ("tags", "extra_powerful", "asked_by")
    assert denied.because.startswith("user ada ")
    assert hint in denied.because.rpartition("; ")[2]


def test_rule_does_not_make_a_project_a_source_build() -> None:
    fleet = a_ticket_fleet(derive=[{"source_build": True, "ask": "extra_powerful"}])

    of_project = judge(fleet, a_ticket(project="ping"), NOBODY, NOW.date())
    of_source = judge(fleet, a_ticket(project="ping", chroot="srpm-builds"), NOBODY, NOW.date())

    assert of_project.given == ()
    assert [each.tag for each in of_source.given] == ["extra_powerful"]
