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

    def given_back(self, billed: str = "1h", most: int = 2, when: str = "paid-end") -> None:
        """Have a ticket had a machine and closed, eight minutes after that was made."""
        self.write(FLEET, billed=billed, most=str(most), when=when)
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


@pytest.mark.parametrize("minutes", slow_but([45], [39, 45]))
def test_returned_machine_is_deleted_in_last_run_of_paid_hour(story: Story, minutes: int) -> None:
    story.given_back()
    story.later(minutes)

    goes = ("delete", "ticket-returned")
    assert story.planned() == {FIRST: ("keep", "paid-for") if minutes == 39 else goes}


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [{"when": "once"}, {"billed": "1s"}],
    ids=["at once", "by the second"],
)
def test_returned_machine_is_deleted_after_reuse_without_paid_time(
    story: Story, said: dict[str, str]
) -> None:
    story.given_back(**said)  # type: ignore[arg-type]  # texts alone
    story.later(4)
    within = story.planned()
    story.later(1)

    assert within == {FIRST: ("keep", "idle-recently")}
    assert story.planned() == {FIRST: ("delete", "ticket-returned")}


@pytest.mark.slow
def test_returned_machine_is_deleted_when_its_slot_is_needed(story: Story) -> None:
    story.given_back(most=1)
    story.later(10)
    alone = story.planned()
    story.open("ben/ping")

    verdicts = story.planned()

    assert alone == {FIRST: ("keep", "paid-for")}
    assert verdicts.pop(FIRST) == ("delete", "ticket-returned")


@pytest.mark.slow
def test_new_machine_is_created_next_to_paid_one_when_below_max(story: Story) -> None:
    story.given_back(most=2)
    story.later(10)
    story.open("ben/ping")

    verdicts = story.planned()

    assert verdicts[FIRST] == ("keep", "paid-for")
    assert verdicts["trial-powerful-0002"][0] == "create"


def declare(addition: str) -> None:
    path = Path("fleet.yaml")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("{kind: tickets}", f"{{kind: tickets, {addition}}}"), "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("addition", ["limits: {total: 0}"])
def test_returned_machine_is_deleted_when_ticket_is_not_served(
    story: Story, addition: str
) -> None:
    story.given_back(billed="1s", most=1)
    declare(addition)
    story.later(7 * 60)
    story.open("ada/ping")

    alone = story.planned()
    story.open("ben/ping", user="ben")

    assert alone == {FIRST: ("delete", "ticket-returned")}
    assert story.planned()[FIRST] == ("delete", "ticket-returned")


@pytest.mark.slow
def test_returned_machine_is_kept_for_paid_hour_of_blocked_ticket(story: Story) -> None:
    story.given_back()
    declare("blocked: [ada]")
    story.later(10)
    story.open("ada/ping")

    paid = story.planned()
    story.open("ben/ping", user="ben")
    beside = story.planned()
    story.run("ticket", "close", "3", "--user", "ben")
    story.later(35)

    assert paid == {FIRST: ("keep", "paid-for")}
    assert beside[FIRST] == ("keep", "paid-for")
    assert beside["trial-powerful-0002"][0] == "create"
    assert story.planned() == {FIRST: ("delete", "ticket-returned")}


@pytest.mark.slow
def test_ticket_of_its_sandbox_gets_returned_machine_when_late(story: Story) -> None:
    story.given_back()
    story.later(51)
    story.open("ada/ping")

    assert story.planned() == {FIRST: ("keep", "serves-waiting")}


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


@pytest.mark.parametrize(
    "addition", slow_but(["blocked: [ben]"], ["blocked: [ben]", "limits: {per: {owner: 0}}"])
)
def test_returned_machine_is_kept_when_its_deletion_would_not_help(
    story: Story, addition: str
) -> None:
    story.given_back(most=1)
    declare(addition)
    story.later(10)
    story.open("ben/ping", user="ben")

    assert story.planned() == {FIRST: ("keep", "paid-for")}


@pytest.mark.slow
def test_returned_machine_is_kept_when_rule_selects_another_pool(story: Story) -> None:
    story.given_back(most=1)
    path = Path("fleet.yaml")
    rule = "powerful: [{match: 'ben/ping/f43/chromium', ask: [huge]}]\n"
    path.write_text(f"{path.read_text(encoding='utf-8')}  huge: {{}}\n{rule}", "utf-8")
    story.later(10)
    story.run("ticket", "open", "--tag", "big", "--build", "ben/ping/f43/chromium")

    assert story.planned() == {FIRST: ("keep", "paid-for")}


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
