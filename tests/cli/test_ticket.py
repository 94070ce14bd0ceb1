"""`fleet ticket`: what waits is ordered, what is closed is let go, and nobody takes all."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine

from fleet.cli.console import TerminalConsole
from fleet.model.facts import WorkerInputs
from fleet.model.tickets import first_id, highest_id_of_lost
from fleet.program import build_parser
from fleet.tickets.commands import run
from fleet.tickets.reasons import ITS_TURN
from tests.builders.sentences import tells
from tests.fakes.engine import FixedClock
from tests.fakes.waiter import FakeWaiter
from tests.rigs.stories import ticket_yaml
from tests.rigs.trial import Trial, fleet_yaml


@pytest.fixture
def counter(project: Path) -> Trial:
    """Return a fleet whose machines are asked for by tickets."""
    trial = Trial(project)
    trial.write(ticket_yaml())
    trial.init()
    return trial


def open_ticket(trial: Trial, *more: str, user: str = "ada", tag: str = "extra_powerful") -> str:
    """Open a ticket and return its id."""
    said = trial.told("ticket", "open", "--tag", tag, "--user", user, *more)
    return said.split()[0]


def tickets_of(trial: Trial) -> dict[str, dict[str, object]]:
    """Return the open tickets by id."""
    return {str(each["id"]): each for each in trial.json("ticket", "list")}


def hold_machine(trial: Trial, minutes: int = 10, tag: str = "extra_powerful") -> str:
    """Open a ticket, have its machine boot for so long, and return the id of the ticket."""
    number = open_ticket(trial, tag=tag)
    trial.apply()
    trial.age(minutes=minutes)
    trial.apply()
    return number


MANY = [part for number in range(1000) for part in ("--tag", f"t{number}")]
REFUSED = {
    "too many tags": (("open", *MANY), ("no ticket", "50", "1,000")),
    "a long id": (
        ("check", "--user", "ada", "--", "1" * 5000),
        ("fleet: error", "queue work", f" {'1' * 5000}"),
    ),
}


@pytest.mark.parametrize(("words", "parts"), REFUSED.values(), ids=REFUSED)
def test_ticket_command_is_refused_with_its_reason(
    counter: Trial, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    assert tells(counter.told("ticket", *words, code=1), *parts)


def test_ticket_wait_ends_after_timeout(
    counter: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    number = open_ticket(counter)
    words = ("ticket", "wait", number, "--user", "ada", "--for", "10s")
    args = build_parser().parse_args([*words, "-f", str(counter.folder / "fleet.yaml")])
    clock = FixedClock(datetime.now(UTC))
    waiter = FakeWaiter(clock)

    assert run(args, TerminalConsole(), waiter=waiter, clock=clock) == 1

    assert waiter.waits == [3, 3, 3, 3]
    assert capsys.readouterr().err.count(f"waits: {ITS_TURN}") == 1


# a store that is lost


def begin_again(trial: Trial) -> None:
    """Lose the store, and create another; all that exists is older than it."""
    (trial.folder / ".fleet/store.db").unlink()
    assert trial.do("state", "init")[0] == 0


def test_machine_of_lost_ticket_is_kept_until_closed(counter: Trial) -> None:
    lost = hold_machine(counter)
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
        hold_machine(counter, tag="arch_x86_64")
    begin_again(counter)
    open_ticket(counter, user="eve", tag="arch_x86_64")

    planned = counter.plan()
    counter.do("apply")
    later = counter.plan()

    def counted(plan: dict[str, Any]) -> float:
        return sum(float(each["reserved"]) + float(each["planned"]) for each in plan["budgets"])

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


@pytest.fixture
def real_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the ids of a new store where they start outside the tests."""
    monkeypatch.setattr("fleet.state.store.first_id", first_id)


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
    hold_machine(counter)
    begin_again(counter)
    ahead = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    counter.sql("update fleet_about set value = ? where key = 'made'", ahead)

    number = open_ticket(counter)
    counter.do("apply")

    assert tickets_of(counter)[number]["machine"] == ""
    assert "trial-powerful-0001" in {each["machine"] for each in tickets_of(counter).values()}


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


def test_ticket_starts_on_new_machine_when_limit_and_max_are_reached(counter: Trial) -> None:
    limit = "{kind: tickets, limits: {per: {owner: 1}}}"
    counter.write(ticket_yaml(limit, more="durations: {any: 1h}\n"))
    counter.change("workers: {max: 4}", "workers: {max: 1}")
    _, second = (open_ticket(counter) for _ in range(2))
    counter.apply()
    counter.age(minutes=2)
    counter.apply()
    given = datetime.now(UTC)

    answer = counter.json("explain", "request", second)

    wait = answer["suggestions"][0]["wait"]
    until, start = (datetime.fromisoformat(wait[key]) for key in ("until", "start"))
    assert abs(until - given - timedelta(hours=1)) < timedelta(minutes=1)
    # The next run after the end deletes the machine, the second one creates another.
    assert timedelta(minutes=10) <= start - until < timedelta(minutes=13)
    assert answer["expected"] == wait["start"]
