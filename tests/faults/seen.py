"""What became of applies that were struck, and the tables that tell of it.

They are in docs/explanation/failure-model.md, one for each cloud; `--update-golden` writes
into them what the tests have seen. pytest does not rewrite what is asserted here: each says what
was seen.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic

import pytest

from tests.faults.cloud_trial import BUSY, Beginning, C, CloudTrial
from tests.rigs.process import ROOT

PAGE = ROOT / "docs/explanation/failure-model.md"
MAKING_KILLED = "SIGKILL while 2 are created"
DELETING_KILLED = "SIGKILL while 2 are deleted"
AT_ONCE = 5
"""How many trials run at once: much of each is waiting."""


@dataclass(frozen=True)
class Seen:
    """What became of an apply that was struck, and of the one after it."""

    struck: int
    made: int
    """How many machines the struck one left more than there were."""
    following: int
    machines: int
    wrongs: tuple[str, ...]
    left_to_do: bool
    busy_kept: bool
    said: str = field(default="", compare=False)
    """What the one after it said, where it failed."""
    moment: str = field(default="", compare=False)
    """When it was killed, where it was."""

    def is_healed(self, machines: int) -> bool:
        """Say whether all is as desired, with this many machines."""
        return self == Seen(self.struck, self.made, 0, machines, (), False, True)


Kill = Callable[[CloudTrial[Any]], None]
"""Applies, and kills that at a moment."""


@dataclass(frozen=True)
class Case(Generic[C]):
    """A fault, how it ends, and what it is expected to come to."""

    strike: Callable[[CloudTrial[C]], None]
    code: int
    made: int
    cure: Callable[[CloudTrial[C]], None] = lambda trial: trial.cloud.heal()


def wait(_: CloudTrial[C]) -> None:
    """Leave a fault as it is: the next apply gets along with it."""


def apply_meanwhile(trial: CloudTrial[C]) -> None:
    """Have a second apply be refused in the middle of the first, or break the first."""

    def watch(moment: str) -> None:
        if moment == f"asked {trial.cloud.create}":
            trial.cloud.watch = lambda _: None
            code = trial.fleet("apply").returncode
            assert code == 1, f"the second apply ended with {code}"

    trial.cloud.watch = watch


def follow(trial: CloudTrial[C], struck: int, made: int, busy: str) -> Seen:
    """Apply again, and look at everything."""
    following = trial.fleet("apply")
    return Seen(
        struck=struck,
        made=made,
        following=following.returncode,
        machines=len(trial.machines()),
        wrongs=tuple(trial.wrongs()),
        left_to_do=trial.fleet("plan", "--exit-code").returncode != 0,
        busy_kept=trial.id_of(BUSY) == busy,
        said=f"{following.stdout}{following.stderr}" if following.returncode else "",
    )


def try_case(beginning: Beginning[C], folder: Path, case: Case[C]) -> Seen:
    """Apply while a fault strikes, then once more after its cure."""
    with beginning.trial(folder) as trial:
        before = trial.id_of(BUSY)
        case.strike(trial)
        code = trial.fleet("apply").returncode
        made = len(trial.machines()) - 1
        case.cure(trial)
        return follow(trial, code, made, before)


def try_all(
    beginning: Beginning[C], folder: Path, cases: Mapping[str, Case[C]], asked: Iterable[str]
) -> dict[str, Future[Seen]]:
    """Begin to try faults, some at once, and return what is to become of each."""
    pool = ThreadPoolExecutor(AT_ONCE)
    return {
        fault: pool.submit(try_case, beginning, folder / str(number), cases[fault])
        for number, fault in enumerate(asked)
    }


def faults_asked(session: pytest.Session, test: str) -> list[str]:
    """Return the faults that a test of this session is run for."""
    items = (item for item in session.items if isinstance(item, pytest.Function))
    return [str(each.callspec.params["fault"]) for each in items if each.originalname == test]


def check_case(
    cloud: type[C], fault: str, case: Case[C], seen: Seen, config: pytest.Config
) -> None:
    """Check how a fault ended, and its row."""
    assert (seen.struck, seen.made) == (case.code, case.made), f"{fault}: {seen}"
    assert seen.is_healed(machines=3), f"{fault}: {seen}"
    outcome = f"{seen.struck}, {seen.made} of 2 created"
    check_row(cloud.__name__, (fault, 1, outcome), config)


def at_request(moment: str, ordinal: int) -> Kill:
    """Return what kills when a moment comes for that time."""

    def kill(trial: CloudTrial[C]) -> None:
        assert trial.killed_at(moment, ordinal), f"{moment} never came {ordinal} times"

    return kill


def kill_at(moments: Iterable[tuple[str, int]]) -> dict[str, Kill]:
    """Return what kills at each of these moments, each time it comes for the second figure's."""
    return {f"{moment}, time {n}": at_request(moment, n) for moment, n in moments}


def kill_each(beginning: Beginning[C], folder: Path, kills: Mapping[str, Kill]) -> list[Seen]:
    """Kill an apply at each moment, and apply again."""

    def try_one(numbered: tuple[int, str]) -> Seen:
        number, moment = numbered
        with beginning.trial(folder / str(number)) as trial:
            busy, there = trial.id_of(BUSY), len(trial.machines())
            kills[moment](trial)
            seen = follow(trial, -9, len(trial.machines()) - there, busy)
            return replace(seen, moment=moment)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(try_one, enumerate(kills)))


def check_healed(runs: Sequence[Seen], machines: int) -> None:
    """Check that all became as desired; else say at which moments it did not."""
    wrong = [each for each in runs if not each.is_healed(machines)]
    told = "\n".join(f"at {each.moment or 'the beginning'}: {each}" for each in wrong)
    assert not wrong, f"{len(wrong)} of {len(runs)} did not heal:\n{told}"


def check_kills_of_making(
    beginning: Beginning[C],
    folder: Path,
    moments: Iterable[tuple[str, int]],
    config: pytest.Config,
) -> None:
    """Kill applies that make two machines, and check what comes of it, and their row."""
    runs = kill_each(beginning, folder, kill_at(moments))
    check_healed(runs, machines=3)
    outcome = f"killed, up to {max(seen.made for seen in runs)} of 2 created"
    check_row(beginning.kind.__name__, (MAKING_KILLED, len(runs), outcome), config)


def check_kills_of_deleting(
    beginning: Beginning[C],
    folder: Path,
    moments: Iterable[tuple[str, int]],
    config: pytest.Config,
) -> None:
    """Kill applies that delete two machines, and check what comes of it, and their row."""
    runs = kill_each(beginning.with_two_to_go(folder / "full"), folder, kill_at(moments))
    check_healed(runs, machines=1)
    outcome = f"killed, up to {max(-seen.made for seen in runs)} of 2 deleted"
    check_row(beginning.kind.__name__, (DELETING_KILLED, len(runs), outcome), config)


def table_of(cloud: str) -> tuple[str, dict[str, str]]:
    """Return the rows of a cloud's table on the page, and the outcome per fault (and moments)."""
    found = re.search(
        rf"<!-- seen by tests/faults at {cloud} -->\n\|.*\n\|[- |]*\n((?:\|.*\n)*)",
        PAGE.read_text(encoding="utf-8"),
    )
    assert found, f"{PAGE} has no table of what was seen at {cloud}"
    rows = [line.strip("| ").split(" | ") for line in found[1].splitlines()]
    return found[1], {fault: outcome for outcome, faults in rows for fault in faults.split("; ")}


def _rows_of(outcomes: Mapping[str, str]) -> str:
    """Return a table's rows: one per outcome, with its faults."""
    grouped: dict[str, list[str]] = {}
    for fault, outcome in outcomes.items():
        grouped.setdefault(outcome, []).append(fault)
    return "".join(f"| {outcome} | {'; '.join(each)} |\n" for outcome, each in grouped.items())


def check_row(cloud: str, row: tuple[str, int, str], config: pytest.Config) -> None:
    """Compare a fault, its moments and its outcome with the page, or write them there."""
    fault, moments, outcome = row
    entry = fault if moments == 1 else f"{fault} ({moments} moments)"
    body, outcomes = table_of(cloud)
    if config.getoption("--update-golden") and outcomes.get(entry) != outcome:
        others = {each: seen for each, seen in outcomes.items() if without_moments(each) != fault}
        text, rows = PAGE.read_text(encoding="utf-8"), _rows_of({**others, entry: outcome})
        PAGE.write_text(text.replace(body, rows), encoding="utf-8")
        outcomes = table_of(cloud)[1]
    assert outcomes.get(entry) == outcome, (
        f"not at {cloud} in {PAGE.name}, see --update-golden: {entry}: {outcome}"
    )


def without_moments(entry: str) -> str:
    """Return the fault of an entry of the page."""
    return re.sub(r" \(\d+ moments\)$", "", entry)
