"""What goes wrong at Hetzner, or kills an apply, costs nothing but another apply.

Real engine and real provider, the simulated API and a Debusine's database. The table of what was
tried is in docs/explanation/failure-model.md; `--update-docs` writes what these tests have seen.
"""

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.service.hetzner_faults import Fault
from fleet.service.hetzner_wire import Request
from tests.faults.hetzner_trial import (
    BUSY,
    THREE,
    TWO,
    Beginning,
    HetznerTrial,
    begin,
    moment_of,
)
from tests.ports.engines import skip_without_cli
from tests.ports.stores import postgres_url
from tests.process import ROOT

__all__ = ["postgres_url"]

pytestmark = pytest.mark.engine
PAGE = ROOT / "docs/explanation/failure-model.md"
TABLE = re.compile(
    r"(<!-- seen by tests/faults/test_hetzner.py -->\n\|.*\n\|[- |]*\n)((?:\|.*\n)*)"
)
AT_ONCE = 3
"""How many trials run at once: much of each is waiting."""
Act = Callable[[HetznerTrial], None]


@dataclass(frozen=True)
class Seen:
    """What became of an apply that was struck, and of the one after it."""

    struck: int
    made: int
    """How many servers the struck one left more than there were."""
    following: int
    servers: int
    wrongs: tuple[str, ...]
    left_to_do: bool
    busy_kept: bool


@dataclass(frozen=True)
class Case:
    """A fault, how it ends, and what it is expected to come to."""

    strike: Act
    code: int
    made: int
    cure: Act = lambda trial: trial.api.heal()


def failing(fault: Callable[[], Fault]) -> Act:
    return lambda trial: trial.api.fail(fault())


def fill_quota(trial: HetznerTrial) -> None:
    trial.api.state.limits["servers"] = 2


def raise_quota(trial: HetznerTrial) -> None:
    trial.api.state.limits.clear()
    trial.age()


def sell_out(trial: HetznerTrial) -> None:
    trial.api.state.stock["ccx33"] = 1


def mistake_token(trial: HetznerTrial) -> None:
    trial.environment["HCLOUD_TOKEN"] = "x" * 64


def correct_token(trial: HetznerTrial) -> None:
    trial.environment["HCLOUD_TOKEN"] = trial.api.token


def apply_meanwhile(trial: HetznerTrial) -> None:
    """Have a second apply be refused in the middle of the first, or break the first."""

    def watch(when: str, request: Request) -> None:
        if moment_of(when, request) == "asked POST /servers":
            trial.api.watch = lambda _, __: None
            assert trial.fleet("apply").returncode == 1

    trial.api.watch = watch


def wait(_: HetznerTrial) -> None:
    """Leave the fault as it is: the next apply gets along with it."""


CASES = {
    "HTTP 429 with Retry-After, twice": Case(
        failing(lambda: Fault("POST", "/servers", status=429, retry_after=1, count=2)), 0, 2
    ),
    "HTTP 500 on one of two creations": Case(
        failing(lambda: Fault("POST", "/servers", status=500, after=1)), 5, 1
    ),
    "HTTP 503 on everything": Case(failing(lambda: Fault(status=503, count=None)), 4, 0),
    "the answer to a creation is lost": Case(
        failing(lambda: Fault("POST", "/servers", answer_lost=True)), 0, 2
    ),
    "HTTP 504, though the server was made": Case(
        failing(lambda: Fault("POST", "/servers", status=504, done=True)), 0, 2
    ),
    "a second apply meanwhile, which is told to wait": Case(apply_meanwhile, 0, 2),
    "the quota is reached": Case(fill_quota, 5, 1, raise_quota),
    "one type is out of stock, and stays so": Case(sell_out, 5, 1, wait),
    "the token is wrong": Case(mistake_token, 4, 0, correct_token),
    "the token is taken away before the creations": Case(
        failing(lambda: Fault("POST", "/servers", status=401, count=None)), 1, 0
    ),
    "half a page of the listing": Case(
        failing(lambda: Fault("GET", "/servers", half_page=True)), 4, 0
    ),
    "the listing breaks off": Case(
        failing(lambda: Fault("GET", "/servers", broken_off=True)), 4, 0
    ),
}
MAKING = (
    *(("asked GET /server_types", 1), ("done GET /images", 1)),
    *(("asked POST /servers", 1), ("done POST /servers", 1)),
    *(("asked POST /servers", 2), ("done POST /servers", 2)),
    *(("asked GET /actions", 1), ("done GET /servers/ID", 1), ("done GET /servers/ID", 2)),
)
"""The moments of making two machines: before and after each deed at the provider."""
DELETING = (
    *(("asked DELETE /servers/ID", 1), ("done DELETE /servers/ID", 1)),
    *(("asked DELETE /servers/ID", 2), ("done DELETE /servers/ID", 2)),
)


@pytest.fixture(scope="session")
def beginning(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Beginning:
    """Return what every trial begins with: a busy worker, and two requests that wait."""
    if not os.environ.get("FLEET_PULUMI_PLUGINS"):
        pytest.skip("FLEET_PULUMI_PLUGINS is not set; `nox -s engine` sets it")
    skip_without_cli()
    return begin(tmp_path_factory.mktemp("hetzner") / "beginning", postgres_url)


@pytest.fixture(scope="session")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield pool


@pytest.fixture(scope="session")
def tried(
    request: pytest.FixtureRequest,
    beginning: Beginning,
    pool: ThreadPoolExecutor,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Future[Seen]]:
    """Return what became of each fault that a test of this session asks for."""
    asked = [
        item.callspec.params["fault"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == _CASES_TEST
    ]
    folder = tmp_path_factory.mktemp("faults")
    return {
        fault: pool.submit(_try_fault, beginning, folder / str(number), CASES[fault])
        for number, fault in enumerate(map(str, asked))
    }


def _try_fault(beginning: Beginning, folder: Path, case: Case) -> Seen:
    with beginning.trial(folder) as trial:
        before = trial.id_of(BUSY)
        case.strike(trial)
        code = trial.fleet("apply").returncode
        made = len(trial.servers()) - 1
        case.cure(trial)
        return follow(trial, code, made, before)


def _try_kill(beginning: Beginning, folder: Path, moment: str, ordinal: int) -> Seen:
    with beginning.trial(folder) as trial:
        before = trial.id_of(BUSY)
        there = len(trial.servers())
        assert trial.killed_at(moment, ordinal), f"{moment} never came {ordinal} times"
        return follow(trial, -9, len(trial.servers()) - there, before)


def follow(trial: HetznerTrial, struck: int, made: int, busy: int) -> Seen:
    """Apply again, and look at everything."""
    following = trial.fleet("apply")
    return Seen(
        struck=struck,
        made=made,
        following=following.returncode,
        servers=len(trial.servers()),
        wrongs=tuple(trial.wrongs()),
        left_to_do=trial.fleet("plan", "--exit-code").returncode != 0,
        busy_kept=trial.id_of(BUSY) == busy,
    )


def is_healed(seen: Seen, servers: int) -> bool:
    """Say whether all is as desired, with this many servers."""
    return seen == Seen(seen.struck, seen.made, 0, servers, (), False, True)


def row_of(fault: str, moments: int, struck: str, following: str) -> str:
    """Return what the page says of a fault."""
    return f"| {fault} | {moments} | {struck} | {following} |"


def check_row(row: str, config: pytest.Config) -> None:
    """Compare a row with the page's, or write it there."""
    text = PAGE.read_text(encoding="utf-8")
    found = TABLE.search(text)
    assert found
    rows = found[2].splitlines()
    if config.getoption("--update-docs") and row not in rows:
        fault = row.split("|")[1]
        rows = [*(each for each in rows if each.split("|")[1] != fault), row]
        body = "".join(f"{each}\n" for each in rows)
        PAGE.write_text(TABLE.sub(lambda _: found[1] + body, text), encoding="utf-8")
    assert row in rows


@pytest.mark.parametrize("fault", CASES)
def test_after_a_fault_the_next_apply_reaches_what_is_desired(
    fault: str, tried: dict[str, Future[Seen]], request: pytest.FixtureRequest
) -> None:
    seen = tried[fault].result()

    assert (seen.struck, seen.made) == (CASES[fault].code, CASES[fault].made)
    assert is_healed(seen, servers=3), seen
    struck = f"exit code {seen.struck}, {seen.made} of 2 made"
    check_row(row_of(fault, 1, struck, "exit code 0, all 3 are there"), request.config)


_CASES_TEST = test_after_a_fault_the_next_apply_reaches_what_is_desired.__name__


def _kill_each(
    beginning: Beginning,
    pool: ThreadPoolExecutor,
    folder: Path,
    moments: tuple[tuple[str, int], ...],
) -> list[Seen]:
    runs = [
        pool.submit(_try_kill, beginning, folder / str(number), *moment)
        for number, moment in enumerate(moments)
    ]
    return [run.result() for run in runs]


def test_killed_at_any_deed_of_making_the_next_apply_leaves_no_orphan_and_no_double(
    beginning: Beginning,
    pool: ThreadPoolExecutor,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    runs = _kill_each(beginning, pool, tmp_path, MAKING)

    assert [seen for seen in runs if not is_healed(seen, servers=3)] == []
    made = sorted({seen.made for seen in runs})
    struck = f"killed, up to {made[-1]} of 2 made"
    row = row_of(
        "SIGKILL of fleet, engine and provider while 2 are made",
        len(runs),
        struck,
        "exit code 0, all 3 are there",
    )
    check_row(row, request.config)


def test_killed_at_any_deed_of_deleting_the_next_apply_finishes_and_keeps_who_is_busy(
    beginning: Beginning,
    pool: ThreadPoolExecutor,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    with beginning.trial(tmp_path / "full") as trial:
        assert trial.fleet("apply").returncode == 0
        trial.place.ask("DELETE FROM db_workrequest WHERE id > 1")
        trial.be_late(TWO, THREE)
        full = trial.as_beginning()

    runs = _kill_each(full, pool, tmp_path, DELETING)

    assert [seen for seen in runs if not is_healed(seen, servers=1)] == []
    gone = sorted({-seen.made for seen in runs})
    struck = f"killed, up to {gone[-1]} of 2 deleted"
    row = row_of(
        "SIGKILL of fleet, engine and provider while 2 are deleted",
        len(runs),
        struck,
        "exit code 0, only the busy one is there",
    )
    check_row(row, request.config)
