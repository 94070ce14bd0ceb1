"""What a request asks for: which tags count, where each is from, which are refused and why."""

from datetime import date

import pytest

from fleet.facts import Request, Unknown
from fleet.schema.model import Fleet
from fleet.tagrules.asking import Asking, Memberships, ask_of
from fleet.tagrules.told import Told
from tests.builders import a_fleet, a_request

TODAY = date(2026, 11, 21)
PING = {"owner": "praiskup", "project": "ping", "chroot": "fedora-42-x86_64"}


def asking(
    fleet: Fleet,
    request: Request,
    *,
    stored: bool = False,
    memberships: Memberships | None = None,
) -> Asking:
    known: Memberships = {} if memberships is None else memberships
    return ask_of(fleet, request, Told(stored=stored), memberships=known, today=TODAY)


def asked_by(*askers: object) -> Fleet:
    return a_fleet(tags={"power": {"asked_by": list(askers)}})


def by(source: str, **overrides: object) -> Request:
    return a_request(required=["power"], asked={"power": source}, requester="alice", **overrides)


def test_a_tag_that_nothing_is_said_about_anyone_may_ask_for() -> None:
    found = asking(a_fleet(), by("user"))

    assert found.ask.required == {"power"}
    assert [(o.tag, o.source) for o in found.origins] == [("power", "user")]


@pytest.mark.parametrize(
    ("source", "word"), [("user", "user"), ("task", "task"), ("ticket", "tickets")]
)
def test_a_word_lets_its_source_ask_and_no_other(source: str, word: str) -> None:
    others = {"user", "task", "tickets", "rules", "system"} - {word}

    assert asking(asked_by(word), by(source)).ask.required == {"power"}
    assert asking(asked_by(*sorted(others)), by(source)).ask.required == set()


def test_a_tag_only_for_the_system_counts_when_the_system_asks() -> None:
    assert asking(asked_by("system"), by("system")).ask.required == {"power"}
    assert asking(asked_by("system"), by("user")).refused


@pytest.mark.parametrize(
    ("askers", "request_"),
    [
        ({"users": ["alice"]}, by("user")),
        ({"groups": ["toolchain"]}, by("user", groups=("toolchain",))),
        ({"workspaces": ["kernel"]}, by("user", workspace="kernel")),
        ({"scopes": ["debian"]}, by("ticket")),
    ],
)
def test_who_is_named_may_ask(askers: object, request_: Request) -> None:
    assert asking(asked_by(askers), request_).ask.required == {"power"}


def test_a_group_is_known_from_the_file_of_members_too() -> None:
    fleet = asked_by({"groups": ["toolchain"]})

    known = asking(fleet, by("user"), memberships={"toolchain": ["alice"]})
    other = asking(fleet, by("user"), memberships={"toolchain": ["bob"]})

    assert known.ask.required == {"power"}
    assert other.ask.required == set()


def test_a_group_that_cannot_be_looked_up_permits_nothing_and_says_so() -> None:
    dark = Unknown(unknown="members.yaml: gone")

    found = asking(asked_by({"groups": ["toolchain"]}), by("user"), memberships=dark)

    assert found.ask.required == set()
    assert found.refused[0].because.endswith("is not known: members.yaml: gone)")


def test_a_refusal_says_who_asked_and_which_line_forbids_it() -> None:
    fleet = asked_by("rules", {"groups": ["toolchain"], "workspaces": ["kernel"]})

    refusal = asking(fleet, by("user")).refused[0]

    assert refusal.who == "user alice"
    assert refusal.path == ("tags", "power", "asked_by")
    assert refusal.because == (
        "user alice may not ask for power: tags.power.asked_by lets only rules, group toolchain, "
        "workspace kernel ask for it"
    )


def test_a_tag_whose_asker_the_queue_does_not_tell_counts_and_says_so() -> None:
    found = asking(asked_by("system"), a_request(required=["power"]))

    assert found.ask.required == {"power"}
    assert found.origins[0].because.endswith("and does not tell who asked")


def test_a_minimum_is_permitted_by_the_rule_of_its_name() -> None:
    fleet = a_fleet(tags={"memory_gib": {"kind": "number", "asked_by": ["task"]}})
    request = a_request(required=["memory_gib>=64"], asked={"memory_gib": "user"})

    found = asking(fleet, request)

    assert found.ask.minimums == ()
    assert found.refused[0].tag == "memory_gib>=64"


def test_a_tag_that_one_may_not_ask_for_counts_when_a_rule_asks_for_it_too() -> None:
    fleet = a_fleet(
        tags={"power": {"asked_by": ["rules"]}},
        powerful=[{"match": "praiskup/.*/chromium", "ask": ["power"]}],
    )

    found = asking(fleet, by("user", package="chromium", **PING))

    assert found.ask.required == {"power"}
    assert found.refused == ()
    assert found.origins[0].path == ("powerful", 0)


def test_a_rule_whose_tag_rules_may_not_ask_for_is_refused() -> None:
    fleet = a_fleet(
        tags={"power": {"asked_by": ["tickets"]}},
        powerful=[{"match": "praiskup/.*/chromium", "ask": ["power"]}],
    )

    found = asking(fleet, a_request(package="chromium", **PING))

    assert found.ask.required == set()
    assert found.refused[0].who == "the rule powerful[0]"


def test_all_rules_that_match_apply_and_an_expired_one_is_inert() -> None:
    rules = [
        {"match": "praiskup/ping/fedora-.*-.*/chromium", "ask": ["power"]},
        {"match": "praiskup/.*", "ask": ["swap"]},
        {"match": "praiskup/.*", "ask": ["gpu"], "expires": date(2026, 11, 20)},
    ]

    found = asking(a_fleet(powerful=rules), a_request(package="chromium", **PING))

    assert found.ask.required == {"power", "swap"}


def test_the_tags_a_queue_stored_win_over_a_rule_of_today() -> None:
    fleet = a_fleet(
        powerful=[{"match": "praiskup/.*", "ask": ["power"]}],
        derive=[{"from": "host_architecture", "ask": "worker:build-arch:{value}"}],
    )
    request = a_request(
        package="chromium",
        required=["worker:build-arch:amd64"],
        task_data={"host_architecture": "arm64"},
        **PING,
    )

    found = asking(fleet, request, stored=True)

    unstored = "which the queue did not store with the request"
    assert found.ask.required == {"worker:build-arch:amd64"}
    assert [each.because for each in found.differences] == [
        f"rule newer than request: powerful[0] asks for power, {unstored}",
        f"derive[0] gives worker:build-arch:arm64 (from host_architecture: arm64), {unstored}",
    ]


def test_a_stored_tag_that_was_asked_without_permission_holds_the_request() -> None:
    found = asking(asked_by("rules"), by("user"), stored=True)

    assert found.held
    assert found.refused[0].tag == "power"
