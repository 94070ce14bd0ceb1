"""A machine that a ticket gave back, where time is billed by the hour and `reuse` is set."""

import json
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.clocked import Clocked
from tests.rigs.repeats import slow_but

FLEET = """\
fleet: trial
cadence: 10m
providers:
  desk: {kind: sim, boot: 30s, billing: {increment: BILLED}}
queues:
  tickets: {kind: tickets}
images:
  builder: {existing: {desk: b-1}, provides: [plain]}
pools:
  powerful:
    provider: desk
    machine: ccx63
    image: builder
    provides: [big]
    workers: {max: MOST}
    reuse: {opportunity: 5m, max_uses: 9, max_age: 8h}
    retire: {at: WHEN}
tags:
  big: {on_demand: true}
"""
FIRST = "trial-powerful-0001"


class Story(Clocked):
    """A fleet whose tickets give a machine back."""

    def open(self, sandbox: str, user: str = "ada") -> None:
        self.run("ticket", "open", "--tag", "big", "--user", user, "--sandbox", sandbox)

    def given_back(self, billed: str = "1h", most: str = "2", when: str = "paid-end") -> None:
        """Have a ticket had a machine and closed, eight minutes after that was made."""
        self.write(FLEET, billed=billed, most=most, when=when)
        self.open("ada/ping")
        self.run("apply")
        self.later(3)
        self.run("apply")
        self.later(5)
        self.run("ticket", "close", "1", "--user", "ada")

    def planned(self) -> dict[str, tuple[str, str]]:
        """Return what a plan says of each worker, and why."""
        plan = json.loads(self.run("plan", "--json"))
        return {each["worker"]: (each["verdict"], each["reason"]) for each in plan["workers"]}


def test_returned_machine_is_kept_for_its_sandbox_in_paid_hour(story: Story) -> None:
    story.given_back()
    story.later(10)

    kept = story.planned()
    story.run("apply")
    story.later(5)
    story.open("ada/ping")
    story.run("apply")

    assert kept == {FIRST: ("keep", "paid-for")}
    assert story.planned() == {FIRST: ("keep", "busy")}


GOES, PAID = ("delete", "ticket-returned"), ("keep", "paid-for")
ONE = {"most": "1"}
SECONDS = {"billed": "1s"}
ADA, BEN = ("ada/ping",), ("ben/ping", "ben")
Case = tuple[dict[str, str], str, int, list[tuple[str, ...]], tuple[str, str]]
LATER: dict[str, Case] = {
    "in its paid hour": ({}, "", 39, [], PAID),
    "in the last run of its paid hour": ({}, "", 45, [], GOES),
    "within its time of reuse, without paid time": (SECONDS, "", 4, [], ("keep", "idle-recently")),
    "after its time of reuse, billed by the second": (SECONDS, "", 5, [], GOES),
    "after its time of reuse, retired at once": ({"when": "once"}, "", 5, [], GOES),
    "when its slot is needed": (ONE, "", 10, [BEN], GOES),
    "when there is room for another": ({}, "", 10, [BEN], PAID),
    "when its sandbox is over a limit": (ONE | SECONDS, "limits: {total: 0}", 420, [ADA], GOES),
    "when its sandbox is blocked": ({}, "blocked: [ada]", 10, [ADA], PAID),
    "when its sandbox is blocked, and another waits": ({}, "blocked: [ada]", 10, [ADA, BEN], PAID),
    "when its blocked sandbox has no paid time": ({}, "blocked: [ada]", 45, [ADA], GOES),
    "when its sandbox waits late": ({}, "", 51, [ADA], ("keep", "serves-waiting")),
    "when who waits is blocked": (ONE, "blocked: [ben]", 10, [BEN], PAID),
    "when who waits is over a limit": (ONE, "limits: {per: {owner: 0}}", 10, [BEN], PAID),
}


@pytest.mark.parametrize("name", slow_but(list(LATER)[1:3], LATER))
def test_returned_machine_is_kept_or_deleted(story: Story, name: str) -> None:
    given, declared, minutes, opened, expected = LATER[name]
    story.given_back(**given)
    path = Path("fleet.yaml")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("{kind: tickets}", f"{{kind: tickets, {declared}}}"), "utf-8")
    story.later(minutes)
    for sandbox, *user in opened:
        story.open(sandbox, *user)

    assert story.planned()[FIRST] == expected


@pytest.mark.slow
def test_returned_machine_is_kept_when_rule_selects_another_pool(story: Story) -> None:
    story.given_back(most="1")
    rule = "powerful: [{match: 'ben/ping/f43/chromium', ask: [huge]}]\n"
    with Path("fleet.yaml").open("a", encoding="utf-8") as file:
        file.write(f"  huge: {{}}\n{rule}")
    story.later(10)
    story.run("ticket", "open", "--tag", "big", "--build", "ben/ping/f43/chromium")

    assert story.planned() == {FIRST: PAID}


def test_explain_shows_time_for_which_returned_machine_is_kept(story: Story) -> None:
    story.given_back(billed="1s")
    story.later(1)

    told = json.loads(story.run("explain", "worker", FIRST, "--json"))

    said = {".".join(map(str, each["path"])): each["because"] for each in told["reasons"]}
    assert "pools.powerful.retire.idle_after" not in said
    key = "pools.powerful.reuse.opportunity"
    assert tells(said[key], "reuse.opportunity (5m)", "2026-11-23 08:13 UTC")


def test_explain_omits_returned_machine_for_other_sandboxes(story: Story) -> None:
    story.given_back()
    story.open("ben/ping")
    story.run("apply")
    story.later(1)
    story.run("apply")
    story.open("cat/ping")

    told = json.loads(story.run("explain", "request", "3", "--json"))

    assert not [fact for fact in told["facts"] if tells(fact, "fit", "idle")]


def test_one_returned_machine_is_deleted_for_one_waiting_ticket(story: Story) -> None:
    story.given_back()
    story.open("ben/ping", user="ben")
    story.run("apply")
    story.later(3)
    story.run("apply")
    story.run("ticket", "close", "2", "--user", "ben")
    story.later(10)
    story.open("cat/ping", user="cat")

    verdicts = story.planned()

    assert verdicts[FIRST] == ("delete", "ticket-returned")
    assert verdicts["trial-powerful-0002"] == ("keep", "paid-for")
