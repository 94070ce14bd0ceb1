"""What the rules make of a ticket at the command line: a tag is refused, given or dropped."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from tests.builders.sentences import tells
from tests.cli.test_ticket import TAGS, counter, open_ticket, ticket_yaml, tickets_of
from tests.rigs.trial import Trial, fleet_yaml

__all__ = ["counter"]

RULED = TAGS.replace("exclusive: true", "exclusive: true, asked_by: [rules]") + (
    'powerful:\n  - {match: "ada/ping/fedora-.*/chromium", ask: [extra_powerful]}\n'
)


def test_ticket_with_a_forbidden_tag_is_refused_with_its_line(counter: Trial) -> None:
    counter.write(ticket_yaml(more=RULED))

    code, said = counter.do("ticket", "open", "--tag", "extra_powerful", "--user", "ada")

    assert code == 1
    for part in ("user ada ", "--build", "(tags.extra_powerful.asked_by, fleet.yaml:"):
        assert part in said
    assert tickets_of(counter) == {}


def test_ticket_gets_cheapest_free_machine(counter: Trial) -> None:
    pool = "{provider: desk, machine: TYPE, image: trixie, workers: {max: 2, min: 1}}"
    pools = {"a": pool.replace("TYPE", "ccx33"), "b": pool.replace("TYPE", "ccx13")}
    written = fleet_yaml(pools=pools, queue="{kind: tickets}")
    counter.write(written.replace("amd64}", "amd64, provides: [x86]}"))
    counter.apply()
    counter.age(minutes=2)
    number = open_ticket(counter, tag="x86")
    counter.apply()

    said = json.loads(counter.do("ticket", "show", number, "--user", "ada", "--json")[1])

    assert said["machine"] == "trial-b-0001"


@pytest.mark.slow
def test_ticket_gets_machine_of_rule_that_matches_its_build(counter: Trial) -> None:
    counter.write(ticket_yaml(more=RULED))
    build = ("--build", "ada/ping/fedora-43-x86_64/chromium")
    number = open_ticket(counter, *build, tag="arch_x86_64")
    counter.apply()
    counter.age(minutes=2)
    counter.apply()

    _, shown = counter.do("ticket", "show", number, "--user", "ada")
    said = json.loads(counter.do("ticket", "show", number, "--user", "ada", "--json")[1])

    assert tells(shown, "extra_powerful", "powerful[0]", "fleet.yaml")
    assert (said["machine"], said["granted"]) == (
        "trial-powerful-0001",
        ["arch_x86_64", "extra_powerful"],
    )


def test_plan_names_rule_that_gave_a_ticket_its_tag(counter: Trial) -> None:
    counter.write(ticket_yaml(more=RULED))
    build = ("--build", "ada/ping/fedora-43-x86_64/chromium")
    open_ticket(counter, *build, tag="arch_x86_64")
    open_ticket(counter, tag="arch_x86_64")

    _, planned = counter.do("plan")
    signatures = json.loads(counter.do("plan", "--json")[1])["signatures"]

    rule = {"tag": "extra_powerful", "path": ["powerful", 0]}
    assert [(each["requests"], each["ruled"]) for each in signatures] == [
        (["work/1"], [rule]),
        (["work/2"], []),
    ]
    assert "1 request: work/1\n      extra_powerful by powerful[0]\n" in planned


@pytest.mark.slow
def test_ticket_shows_waived_tag_while_running(counter: Trial) -> None:
    otherwise = "otherwise: {after: 30m, drop: true}, asked_by: [rules]"
    more = TAGS.replace("exclusive: true", f"exclusive: true, {otherwise}")
    counter.write(ticket_yaml(more=more))

    _, said = counter.do(
        *("ticket", "open", "--tag", "arch_x86_64", "--tag", "extra_powerful", "--user", "ada")
    )
    counter.apply()
    counter.age(minutes=2)
    counter.apply()
    _, checked = counter.do("ticket", "check", "1", "--user", "ada")

    assert tells(said, "ticket 1", "without extra_powerful", "user ada")
    assert checked.startswith("trial-normal-0001\nticket 1 runs without extra_powerful: user ada")
    assert tickets_of(counter)["1"]["granted"] == ["arch_x86_64"]


@pytest.mark.slow
def test_ticket_with_waived_tag_does_not_count_to_limit_of_tag(counter: Trial) -> None:
    may = "exclusive: true, otherwise: {after: 30m, drop: true}, asked_by: [{users: [ada]}]"
    more = TAGS.replace("total: 2", "total: 1").replace("exclusive: true", may)
    counter.write(ticket_yaml(more=more))
    counter.do("ticket", "open", "--tag", "extra_powerful", "--user", "ben")
    counter.apply()
    counter.age(minutes=2)
    counter.apply()
    counter.do("ticket", "open", "--tag", "extra_powerful", "--user", "ada")
    counter.apply()
    counter.age(minutes=2)
    counter.apply()

    found = tickets_of(counter)
    shown = json.loads(counter.do("observe")[1])

    assert [(t["machine"], t["granted"]) for t in found.values()] == [
        ("trial-normal-0001", []),
        ("trial-powerful-0001", ["extra_powerful"]),
    ]
    work = {each["name"]: each["work"]["required"] for each in shown["queues"]["work"]["workers"]}
    assert work == {"trial-normal-0001": [], "trial-powerful-0001": ["extra_powerful"]}


@pytest.mark.slow
def test_ticket_waives_tag_after_waiting_for_its_limit(counter: Trial) -> None:
    may = "exclusive: true, otherwise: {after: 30m, drop: true}"
    more = TAGS.replace("total: 2", "total: 1").replace("exclusive: true", may)
    counter.write(ticket_yaml(more=more))
    with time_machine.travel(datetime.now(UTC), tick=False) as clock:
        for user in ("ada", "ben"):
            open_ticket(counter, user=user)
        for minutes in (1, 5, 25, 5):
            counter.apply()
            clock.shift(timedelta(minutes=minutes))
        _, waits = counter.do("ticket", "check", "2", "--user", "ben")
        counter.apply()

        found = tickets_of(counter)
        (total, *_) = json.loads(counter.do("plan", "--json")[1])["limits"]

    assert [(t["machine"], t["granted"]) for t in found.values()] == [
        ("trial-powerful-0001", ["extra_powerful"]),
        ("trial-normal-0001", []),
    ]
    assert (total["in_use"], total["waiting"]) == (1, 0)
    assert "limits.total" not in waits


def test_ticket_waits_when_group_members_are_unreadable(counter: Trial) -> None:
    may = "otherwise: {after: 30m, drop: true}, asked_by: [{groups: [toolchain]}]"
    more = TAGS.replace("exclusive: true", f"exclusive: true, {may}")
    counter.write(ticket_yaml(more=f"{more}members: {{file: members.yaml}}\n"))
    members = counter.folder / "members.yaml"
    members.write_text("toolchain: [ada]\n", encoding="utf-8")
    tags = ("--tag", "arch_x86_64", "--tag", "extra_powerful")
    counter.do("ticket", "open", *tags, "--user", "ada")
    members.unlink()

    counter.apply()
    counter.age(minutes=2)
    counter.apply()
    dark, told = counter.do("ticket", "check", "1", "--user", "ada")
    refused, because = counter.do("ticket", "open", *tags, "--user", "ada")
    members.write_text("toolchain: [ada]\n", encoding="utf-8")
    counter.apply()
    counter.age(minutes=2)
    counter.apply()
    lit, machine = counter.do("ticket", "check", "1", "--user", "ada")

    assert (dark, refused, lit) == (1, 1, 0)
    assert "members.yaml" in told
    assert "extra_powerful" in told
    assert "members.yaml" in because
    assert machine.startswith("trial-powerful-0001")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ("ada/ping", "--build ada/ping: expected OWNER/PROJECT/CHROOT/PACKAGE"),
        ("ada/ping/fedora/a/b", "--build ada/ping/fedora/a/b: expected OWNER/PROJECT/CHROOT"),
        ("ben/ping/fedora/a", "--owner ada: build ben/ping/fedora/a "),
    ],
)
def test_ticket_open_refuses_invalid_build_name(counter: Trial, build: str, said: str) -> None:
    code, told = counter.do(
        *("ticket", "open", "--tag", "arch_x86_64", "--owner", "ada", "--build", build)
    )

    assert (code, said in told) == (2, True)
