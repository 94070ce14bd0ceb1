"""What the rules make of a ticket at the command line: a tag is refused, given or dropped."""

import json

import pytest

from tests.builders.sentences import tells
from tests.cli.test_ticket import counter, open_ticket, tickets_of
from tests.rigs.stories import TAGS, ticket_yaml
from tests.rigs.trial import Trial

__all__ = ["counter"]

RULED = TAGS.replace("exclusive: true", "exclusive: true, asked_by: [rules]") + (
    'powerful:\n  - {match: "ada/ping/fedora-.*/chromium", ask: [extra_powerful]}\n'
)


def test_ticket_with_a_forbidden_tag_is_refused_with_its_line(counter: Trial) -> None:
    counter.write(ticket_yaml(more=RULED))

    said = counter.told("ticket", "open", "--tag", "extra_powerful", "--user", "ada", code=1)

    for part in ("user ada ", "--build", "(tags.extra_powerful.asked_by, fleet.yaml:"):
        assert part in said
    assert tickets_of(counter) == {}


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
