"""`fleet ticket`: what waits is ordered, what is closed is let go, and nobody takes all."""

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from fleet.cli.console import TerminalConsole
from fleet.model.facts import WorkerInputs
from fleet.model.tickets import first_id, highest_id_of_lost
from fleet.program import build_parser
from fleet.tickets.commands import run
from fleet.tickets.handout import ITS_TURN
from tests.builders.sentences import tells
from tests.fakes.engine import FixedClock
from tests.fakes.waiter import FakeWaiter
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml

POOLS = {
    "normal": "{provider: desk, machine: ccx13, image: trixie, workers: {max: 4},"
    " reuse: {opportunity: 5m}}",
    "powerful": "{provider: desk, machine: ccx63, image: trixie, provides: [extra_powerful],"
    " workers: {max: 4}}",
}
TAGS = """\
tags:
  arch_x86_64: {}
  extra_powerful: {on_demand: true, exclusive: true, limits: {per: {submitter: 1}, total: 2}}
"""


def ticket_yaml(queue: str = "{kind: tickets}", desk: str = "boot: 1m", more: str = TAGS) -> str:
    written = fleet_yaml(pools=POOLS, queue=queue, desk=desk, more=more)
    return written.replace("architecture: amd64}", "architecture: amd64, provides: [arch_x86_64]}")


@pytest.fixture
def counter(project: Path) -> Trial:
    """Return a fleet whose machines are asked for by tickets."""
    trial = Trial(project)
    trial.write(ticket_yaml())
    trial.init()
    return trial


def open_ticket(trial: Trial, *more: str, user: str = "ada", tag: str = "extra_powerful") -> str:
    """Open a ticket and return its id."""
    code, said = trial.do("ticket", "open", "--tag", tag, "--user", user, *more)
    assert code == 0, said
    return said.split()[0]


def tickets_of(trial: Trial) -> dict[str, dict[str, object]]:
    """Return the open tickets by id."""
    _, said = trial.do("ticket", "list", "--json")
    return {str(each["id"]): each for each in json.loads(said)}


def test_ready_machine_is_assigned_to_its_ticket(counter: Trial) -> None:
    number = open_ticket(counter)
    counter.apply()
    counter.age(minutes=2)

    assert tells(
        counter.apply(), "powerful", "trial-powerful-0001", "assigned", f"ticket {number}"
    )

    assert counter.do("ticket", "check", number, "--user", "ada") == (0, "trial-powerful-0001\n")


@pytest.mark.slow
def test_on_demand_machine_is_assigned_to_its_ticket_only(
    project: Path,
) -> None:
    """As Resalloc: four ordinary tickets wait before it, and its pool could make four."""
    trial = Trial(project)
    shared = ticket_yaml(more="tags:\n  extra_powerful: {on_demand: true}\n")
    reuse = "provides: [extra_powerful], reuse: {opportunity: 5m}"
    full = shared.replace("max: 4}, reuse", "max: 1}, reuse")
    trial.write(full.replace("provides: [extra_powerful]", reuse))
    trial.init()
    for user in ("ada", "cyd", "dan", "eve"):
        open_ticket(trial, "--sandbox", "s", tag="arch_x86_64", user=user)
    trial.apply()
    asking = open_ticket(trial, "--sandbox", "s", "--tag", "arch_x86_64", user="ben")
    made = {"trial-normal-0001", "trial-powerful-0001"}

    assert "create trial-powerful-0001" in trial.apply()
    assert tells(trial.apply(), "unchanged", "normal", "powerful")
    trial.age(minutes=2)
    said = trial.apply()

    assert tells(said, "trial-powerful-0001", "assigned", f"ticket {asking}")
    assert set(trial.machines()) == made
    trial.do("ticket", "close", asking, "--user", "ben")
    assert tells(trial.apply(), "trial-powerful-0001", "assigned", "ticket 2")
    assert set(trial.machines()) == made


def test_waiting_ticket_shows_reason_and_limit_of_its_user(
    counter: Trial,
) -> None:
    number = open_ticket(counter)

    code, said = counter.do("ticket", "check", number, "--user", "ada")

    assert code == 1
    assert said.startswith(f"ticket {number} waits: {ITS_TURN}; ")
    assert tells(said, "tags.extra_powerful.limits.total", "2", "0")
    assert tells(said, "tags.extra_powerful.limits.per.submitter", "1", "ada", "0")


@pytest.mark.slow
def test_ticket_open_shows_machines_in_use_by_the_user(counter: Trial) -> None:
    open_ticket(counter)
    counter.apply()
    counter.age(minutes=2)
    counter.apply()

    _, said = counter.do("ticket", "open", "--tag", "extra_powerful", "--user", "ada")

    assert said == (
        "2\nticket 2 waits: tags.extra_powerful.limits.per.submitter is 1 for ada: 1 in use\n"
    )


@pytest.mark.slow
def test_explain_names_limit_and_its_remedy_for_ticket(counter: Trial) -> None:
    counter.write(ticket_yaml("{kind: tickets, limits: {per: {owner: 1}}}"))
    first, second = (open_ticket(counter, user=user) for user in ("ada", "ada"))
    assert (first, second) == ("1", "2")

    _, said = counter.do("explain", "request", "2")

    assert tells(said, "limits.per.owner", "queue work", "1", "ada")
    assert "queues.work.limits.per.owner" in said


def test_blocked_owner_gets_no_machine_with_reason(counter: Trial) -> None:
    counter.write(ticket_yaml("{kind: tickets, blocked: [ada]}"))

    _, said = counter.do("ticket", "open", "--tag", "extra_powerful", "--user", "ada")

    assert re.search(r"queues\.work\.blocked .*\bada\b", said)
    plan = counter.plan()
    assert plan["actions"] == []
    assert tells(plan["unserved"][0]["because"], "queue work", "ada", "blocked")


def test_ticket_of_another_user_cannot_be_closed_by_mistake(counter: Trial) -> None:
    number = open_ticket(counter)

    code, said = counter.do("ticket", "close", number, "--user", "ben")

    assert code == 1
    assert tells(said, f"ticket {number}", "ada", "ben", "--user ada")
    assert list(tickets_of(counter)) == [number]


@pytest.mark.parametrize("name", ["99", "x", "1" * 5000, "-1", "²"])
def test_ticket_check_fails_when_ticket_is_unknown(counter: Trial, name: str) -> None:
    code, said = counter.do("ticket", "check", "--user", "ada", "--", name)

    assert code == 1
    assert tells(said, "fleet: error", "queue work")
    assert f" {name}\n" in said


def test_ticket_close_succeeds_when_already_closed(counter: Trial) -> None:
    number = open_ticket(counter)
    counter.do("ticket", "close", number, "--user", "ada")

    code, said = counter.do("ticket", "close", number, "--user", "ada")

    assert code == 0
    assert said.startswith(f"ticket {number} ")


def test_ticket_open_refuses_unprovided_tag_with_suggestion(counter: Trial) -> None:
    code, said = counter.do("ticket", "open", "--tag", "extra_powreful")

    assert code == 1
    assert tells(said, "no ticket", "work", "extra_powreful", "extra_powerful?")


def test_ticket_open_names_tags_that_no_pool_combines(counter: Trial) -> None:
    counter.write(ticket_yaml(more=TAGS + "  gpu: {}\n"))

    _, said = counter.do("ticket", "open", "--tag", "gpu", "--tag", "arch_x86_64")

    assert said.startswith("1\nticket 1 waits: ")
    for figure in ("normal", "gpu", "powerful", "extra_powerful"):
        assert re.search(rf"\b{figure}\b", said)


def test_ticket_open_refuses_too_many_tags(counter: Trial) -> None:
    tags = [part for number in range(1000) for part in ("--tag", f"t{number}")]

    code, said = counter.do("ticket", "open", *tags)

    assert code == 1
    assert tells(said, "no ticket", "50", "1,000")


def test_ticket_open_is_refused_only_to_client_above_its_limit(counter: Trial) -> None:
    counter.write(ticket_yaml("{kind: tickets, most_open_per_submitter: 2}"))
    for _ in range(2):
        open_ticket(counter)

    code, said = counter.do("ticket", "open", "--tag", "extra_powerful", "--user", "ada")

    assert code == 1
    assert re.search(r"\bada .* 2 .* queue work \(most_open_per_submitter: 2\)", said)
    assert open_ticket(counter, user="ben") == "3"


def test_ticket_open_is_refused_when_queue_is_full(counter: Trial) -> None:
    counter.write(ticket_yaml("{kind: tickets, most_open: 1}"))
    open_ticket(counter)

    code, said = counter.do("ticket", "open", "--tag", "extra_powerful", "--user", "ben")

    assert code == 1
    assert "queue work" in said
    assert "most_open: 1" in said


def test_ticket_list_prints_format_of_resalloc(counter: Trial) -> None:
    open_ticket(counter, "--tag", "arch_x86_64", "--sandbox", "ada/ping")

    _, said = counter.do("ticket", "list")

    assert said.startswith("1 - state=OPEN tags=arch_x86_64,extra_powerful owner=ada sandbox=")


def test_ticket_with_two_optional_tags_gets_the_available_one(counter: Trial) -> None:
    may = "otherwise: {after: 2h, drop: true}"
    tags = TAGS.replace("exclusive: true", f"exclusive: true, {may}") + f"  scarce: {{{may}}}\n"
    counter.write(ticket_yaml(more=tags).replace("reuse: {opportunity: 5m}", "mode: pause"))
    number = open_ticket(counter, "--tag", "scarce")
    waits = tickets_of(counter)[number]["because"]
    with sqlite3.connect(counter.folder / ".fleet/store.db") as connection:
        opened = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
        connection.execute("update fleet_tickets set opened_at = ?", (opened,))
    connection.close()

    assert not tells(str(waits), "no pool fits")
    assert "create trial-powerful-0001" in counter.apply()


def test_ticket_wait_ends_when_ticket_has_ended(counter: Trial) -> None:
    number = open_ticket(counter)
    counter.do("ticket", "close", number, "--user", "ada")

    code, said = counter.do("ticket", "wait", number, "--user", "ada")

    assert code == 1
    assert tells(said, f"ticket {number}", "closed")


def test_ticket_wait_ends_after_timeout(
    counter: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    number = open_ticket(counter)
    args = build_parser().parse_args(
        [
            "ticket",
            "wait",
            number,
            "--user",
            "ada",
            "--for",
            "10s",
            "-f",
            str(counter.folder / "fleet.yaml"),
        ]
    )
    clock = FixedClock(datetime.now(UTC))
    waiter = FakeWaiter(clock)

    assert run(args, TerminalConsole(), waiter=waiter, clock=clock) == 1

    assert waiter.waits == [3, 3, 3, 3]
    assert capsys.readouterr().err.count(f"waits: {ITS_TURN}") == 1


def test_ticket_wait_prints_answer_of_ready_ticket(counter: Trial) -> None:
    number = open_ticket(counter)
    counter.apply()
    counter.age(minutes=2)
    counter.apply()

    assert counter.do("ticket", "wait", number, "--user", "ada") == (0, "trial-powerful-0001\n")


def test_ticket_open_is_refused_without_ticket_queue(trial: Trial) -> None:
    code, said = trial.do("ticket", "list")

    assert code == 2
    assert tells(said, "fleet.yaml", "tickets", "`queues`")


def test_missing_store_is_reported(project: Path) -> None:
    trial = Trial(project)
    trial.write(ticket_yaml())

    code, said = trial.do("ticket", "open", "--tag", "extra_powerful")

    assert code == 4
    assert "fleet state init" in said


def test_ticket_shows_why_its_pool_creates_no_machine(counter: Trial) -> None:
    counter.told("freeze", "--creates", "--for", "1h", "--reason", "the image does not boot")
    number = open_ticket(counter, tag="arch_x86_64")
    counter.apply()

    waits = tickets_of(counter)[number]["because"]
    counter.told("freeze", "--end")
    counter.apply()

    assert tells(str(waits), "creates", "frozen by", "the image does not boot")
    assert tickets_of(counter)[number]["because"] == ITS_TURN


# a store that is lost


def begin_again(trial: Trial) -> None:
    """Lose the store, and create another; all that exists is older than it."""
    (trial.folder / ".fleet/store.db").unlink()
    assert trial.do("state", "init")[0] == 0


def test_machine_of_lost_ticket_is_kept_until_closed(counter: Trial) -> None:
    lost = open_ticket(counter)
    counter.apply()
    counter.age(minutes=10)
    counter.apply()
    begin_again(counter)

    assert counter.plan()["actions"] == []
    _, said = counter.do("apply")
    ((number, kept),) = tickets_of(counter).items()
    assert counter.machines() == ["trial-powerful-0001"] == [kept["machine"]]
    assert f"fleet ticket close {number} --queue work --user unknown" in said
    assert int(number) > int(lost)

    (attention,) = counter.plan()["attention"]
    assert tells(attention, "trial-powerful-0001", f"{number} --queue work --user unknown")

    later = open_ticket(counter)
    counter.do("apply")
    assert int(later) == int(number) + 1
    assert tickets_of(counter)[later]["machine"] != "trial-powerful-0001"

    assert counter.do("ticket", "close", number, "--user", "unknown")[0] == 0
    counter.apply()
    assert counter.plan()["attention"] == []
    assert "trial-powerful-0001" not in counter.machines()


@pytest.mark.parametrize("kept", [1, 2])
def test_plan_and_apply_agree_on_ids_when_store_was_lost(counter: Trial, kept: int) -> None:
    budget = "durations: {any: 10m}\nbudgets: {all: {per_month: 100 EUR}}\n"
    counter.write(ticket_yaml() + budget)
    for _ in range(kept):
        open_ticket(counter, tag="arch_x86_64")
    counter.apply()
    counter.age(minutes=10)
    counter.apply()
    begin_again(counter)
    open_ticket(counter, user="eve", tag="arch_x86_64")

    planned = counter.plan()
    counter.do("apply")
    later = counter.plan()

    def counted(plan: dict[str, object]) -> float:
        budgets = plan["budgets"]
        assert isinstance(budgets, list)
        return sum(float(each["reserved"]) + float(each["planned"]) for each in budgets)

    assert counted(planned) == pytest.approx(counted(later), rel=0.3)
    assert len(planned["attention"]) == kept
    assert len(counter.machines()) == kept + len(planned["actions"])


def served(
    clock: time_machine.Traveller, trial: Trial, user: str, count: int
) -> dict[str, object]:
    """Have tickets of a user served by machines that start at once; return id to machine."""
    numbers = [open_ticket(trial, user=user, tag="arch_x86_64") for _ in range(count)]
    trial.do("apply")
    clock.shift(1.1)
    trial.do("apply")
    return {number: tickets_of(trial)[number]["machine"] for number in numbers}


@pytest.mark.parametrize("way", [("init",), ("rebuild", "--apply")], ids=str)
def test_lost_ticket_ids_are_not_reused_when_machines_are_young(
    clock: time_machine.Traveller, counter: Trial, way: tuple[str, ...]
) -> None:
    """The machines are seconds old when the store is lost."""
    counter.write(ticket_yaml(desk="boot: 1s"))
    old = served(clock, counter, "o", 2)
    assert all(old.values())
    (counter.folder / ".fleet/store.db").unlink()
    counter.told("state", *way)

    new = served(clock, counter, "n", 2)

    assert min(map(int, new)) > max(map(int, old))
    assert set(new.values()).isdisjoint(old.values())
    code, said = counter.do("ticket", "close", "2", "--user", "o")
    assert code != 0, said
    assert tickets_of(counter).keys() >= new.keys()
    unknown = {each["machine"] for n, each in tickets_of(counter).items() if n not in new}
    assert unknown == set(old.values())


def test_lost_ticket_ids_are_not_reused_after_second_loss(
    clock: time_machine.Traveller, counter: Trial
) -> None:
    first = int(open_ticket(counter))
    begin_again(counter)
    second = int(open_ticket(counter))
    clock.shift(1.1)
    begin_again(counter)

    third = int(open_ticket(counter))

    assert first < second < third < 2**31


def test_lost_ticket_ids_are_not_reused_after_import(counter: Trial) -> None:
    open_ticket(counter)
    counter.told("state", "export", "--out", "state.json")
    later = int(open_ticket(counter, tag="arch_x86_64"))
    (counter.folder / ".fleet/store.db").unlink()

    counter.told("state", "import", "state.json")

    assert int(open_ticket(counter, tag="arch_x86_64")) > later


@pytest.fixture
def real_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the ids of a new store where they start outside the tests."""
    monkeypatch.setattr("fleet.state.store.first_id", first_id)


def days_later(days: int) -> Callable[[datetime], int]:
    """Return the start of ids that a store has which is created so many days from now."""
    return lambda now: first_id(now + timedelta(days=days))


@pytest.mark.usefixtures("real_ids")
def test_lost_ticket_ids_are_not_reused_without_machines(
    counter: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of fleet is lost with the store, each time before a machine was created."""
    given: list[int] = []
    for days in range(3):
        monkeypatch.setattr("fleet.state.store.first_id", days_later(days))
        shutil.rmtree(counter.folder / ".fleet")
        counter.told("state", "init")
        given += [int(open_ticket(counter)) for _ in range(3)]

    assert given == sorted(set(given))
    assert given[-1] < 2**31


@pytest.mark.usefixtures("real_ids")
def test_lost_ticket_ids_are_not_reused_after_fleet_init(
    run_fleet: RunFleet,
) -> None:
    assert run_fleet("init", "--queue", "tickets").returncode == 0

    opened = run_fleet("ticket", "open", "--tag", "worker:class:small")

    assert int(opened.stdout) > first_id(datetime(2026, 1, 1, tzinfo=UTC))


def test_ticket_ids_continue_when_older_fleet_started_at_1(counter: Trial) -> None:
    open_ticket(counter)
    with sqlite3.connect(counter.folder / ".fleet/store.db") as connection:
        connection.execute("delete from fleet_about where key = 'tickets-after'")
    connection.close()

    assert open_ticket(counter) == "2"


@pytest.mark.parametrize("year", [1970, 2019, 2087, 2199])
def test_ticket_ids_start_below_2_31_when_clock_is_wrong(year: int) -> None:
    now = datetime(year, 6, 1, tzinfo=UTC)

    assert 0 <= first_id(now) <= highest_id_of_lost(now) < 2**31 - 10**6


LISTS = {"machines": "cat listed", "unknown": "exit 1", "none": "echo []"}


@pytest.mark.parametrize("known", LISTS)
@pytest.mark.usefixtures("real_ids")
def test_ticket_ids_skip_a_block_when_a_machine_may_exist(project: Path, known: str) -> None:
    """The folder of fleet is gone with the store; machines are at their provider."""
    commands = f'new: [sh, -c, "exit 1"], delete: ["true"], list: [sh, -c, "{LISTS[known]}"]'
    pool = "{provider: desk, machine: {cores: 2, memory: 8GiB, price: 1 EUR/h}, image: trixie,"
    text = fleet_yaml(pools={"own": f"{pool} workers: {{max: 2}}}}"}, queue="{kind: tickets}")
    text = text.replace("kind: sim, boot: 1s", f"kind: hooks, {commands}")
    trial = Trial(project)
    trial.write(text.replace("architecture: amd64}", "architecture: amd64, provides: [deb]}"))
    labels = {"fleet": "trial", "pool": "own"}
    listed = {"name": "trial-own-0001", "type": "own", "created_at": "2026-01-01T00:00:00Z"}
    (project / "listed").write_text(json.dumps([{**listed, "labels": labels}]))
    trial.told("state", "init")

    number = open_ticket(trial, tag="deb")

    assert (int(number) <= first_id(datetime.now(UTC)) + 1) is (known == "none")


def test_old_machine_is_busy_when_its_store_is_from_the_future(counter: Trial) -> None:
    open_ticket(counter)
    counter.apply()
    counter.age(minutes=10)
    counter.apply()
    begin_again(counter)
    ahead = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    with sqlite3.connect(counter.folder / ".fleet/store.db") as connection:
        connection.execute("update fleet_about set value = ? where key = 'made'", (ahead,))
    connection.close()

    number = open_ticket(counter)
    counter.do("apply")

    assert tickets_of(counter)[number]["machine"] == ""
    assert "trial-powerful-0001" in {each["machine"] for each in tickets_of(counter).values()}


def test_ended_ticket_is_found_when_ids_continue_from_seconds(counter: Trial) -> None:
    number = open_ticket(counter)
    counter.told("ticket", "close", number, "--user", "ada")
    counter.told("state", "rebuild", "--apply")
    later = open_ticket(counter)

    counter.apply()

    assert int(later) > 50_000
    assert tells(counter.told("ticket", "show", number), "state", "closed")


def test_machine_younger_than_its_store_is_free(counter: Trial) -> None:
    begin_again(counter)
    number = open_ticket(counter)
    counter.apply()
    counter.age(minutes=3)

    counter.apply()

    assert list(tickets_of(counter)) == [number]


def test_adopted_machine_is_free(counter: Trial) -> None:
    counter.apply()
    counter.write(ticket_yaml().replace("max: 4}, reuse", "max: 4, min: 1}, reuse"))
    inputs = WorkerInputs(name="by-hand", type="ccx13", image="trixie", labels={"rack": "a"})
    counter.cloud.create(inputs)
    counter.age(minutes=10)
    begin_again(counter)
    counter.told("adopt", "--select", "rack=a", "--pool", "normal")

    counter.apply()

    assert tickets_of(counter) == {}


def test_moved_store_keeps_its_tickets(counter: Trial) -> None:
    open_ticket(counter)
    counter.apply()
    counter.age(minutes=10)
    counter.apply()
    assert counter.do("state", "export", "--out", "state.json")[0] == 0
    for name in ("store.db", "embedded.db"):
        (counter.folder / ".fleet" / name).unlink()
    assert counter.do("state", "init")[0] == 0

    assert counter.do("state", "import", "state.json")[0] == 0

    before = tickets_of(counter)
    counter.apply()
    assert tickets_of(counter).keys() == before.keys() == {"1"}


def test_ticket_starts_on_new_machine_when_limit_and_max_are_reached(counter: Trial) -> None:
    limit = ticket_yaml(
        "{kind: tickets, limits: {per: {owner: 1}}}", more="durations: {any: 1h}\n"
    )
    counter.write(limit.replace("workers: {max: 4}", "workers: {max: 1}"))
    _, second = (open_ticket(counter) for _ in range(2))
    counter.apply()
    counter.age(minutes=2)
    counter.apply()
    given = datetime.now(UTC)

    _, said = counter.do("explain", "request", second, "--json")

    answer = json.loads(said)
    wait = answer["suggestions"][0]["wait"]
    until, start = (datetime.fromisoformat(wait[key]) for key in ("until", "start"))
    assert abs(until - given - timedelta(hours=1)) < timedelta(minutes=1)
    # The next run after the end deletes the machine, the second one creates another.
    assert timedelta(minutes=10) <= start - until < timedelta(minutes=13)
    assert answer["expected"] == wait["start"]
