"""An engine whose operations are done by helper processes: what they do, and how they end."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from threading import Lock

import pytest

from fleet.engines.parallel import HelperCall, HelperEngine, Helpers
from fleet.errors import PlanRefused, StackFailed
from fleet.ports import StackChange, StackRef, StackStep
from fleet.schema.model import Fleet
from tests.builders import a_fleet
from tests.fakes.engine import FakeEngine
from tests.ports.engines import REF, a_sim_worker, quiet

OTHER = REF.altered(name="debian-other", pool="other")


class Apart:
    """An engine apart, asked as one thread of several would ask it."""

    def __init__(self, folder: Path) -> None:
        command = (sys.executable, "-m", "tests.rigs.engine_helper")
        self.helpers = Helpers(command, folder)
        self.turn = Lock()
        self._engine = HelperEngine(FakeEngine("pulumi"), self.helpers, self.turn)

    def preview(self, *names: str) -> tuple[StackStep, ...]:
        with self.turn:
            return self._engine.preview(REF, [a_sim_worker(name) for name in names])

    @contextmanager
    def prepared(self, *names: str) -> Iterator[StackChange]:
        workers = [a_sim_worker(name) for name in names]
        with self.turn, self._engine.prepare(REF, workers) as change:
            yield change

    def up(
        self, *names: str, told: list[StackStep] | None = None, ref: StackRef = REF, text: str = ""
    ) -> tuple[StackStep, ...]:
        workers = [a_sim_worker(name) for name in names]
        given = {name: text for name in names if text}
        progress = quiet if told is None else told.append
        with self.turn:
            return self._engine.up(ref, workers, progress, given)


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    os.mkfifo(tmp_path / "meeting")
    apart = Apart(tmp_path)
    yield apart
    apart.helpers.end()


def creates(*names: str) -> tuple[StackStep, ...]:
    return tuple(StackStep(worker=name, operation="create") for name in names)


@pytest.mark.slow
def test_helper_runs_operations_in_order_and_reports_steps(apart: Apart) -> None:
    told: list[StackStep] = []

    assert apart.preview("a", "b") == creates("a", "b")
    assert apart.up("a", "b", told=told) == creates("a", "b")
    assert apart.preview("a", "b") == ()
    assert told == list(creates("a", "b"))


@pytest.mark.slow
def test_helper_keeps_prepared_change_until_make(apart: Apart) -> None:
    told: list[StackStep] = []

    with apart.prepared("a") as change:
        done = change.make(told.append, {"a": "a token"})

    assert change.steps == done == tuple(told) == creates("a")
    assert apart.preview("a") == ()


@pytest.mark.slow
def test_unmade_change_is_cancelled_and_frees_its_helper(apart: Apart) -> None:
    with apart.prepared("a"):
        pass

    assert apart.preview("a") == creates("a")


@pytest.mark.slow
def test_engine_errors_pass_through_the_helper(apart: Apart) -> None:
    with pytest.raises(PlanRefused, match="refused: forbidden"):
        apart.preview("forbidden")
    with pytest.raises(StackFailed, match="given a token") as failed:
        apart.up("secret", text="a token")

    assert list(failed.value.failed) == ["secret"]


def test_killed_helper_fails_its_stack_and_is_replaced(
    apart: Apart,
) -> None:
    with pytest.raises(StackFailed, match=r"signal.*9") as failed:
        apart.up("killed")

    assert failed.value.done == ("killed",)
    assert apart.up("a") == creates("a")


@pytest.mark.slow
def test_helper_that_died_while_idle_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "meeting")
    first = f"mkdir {tmp_path}/first 2>&- && echo $$ > {tmp_path}/meeting && exec sleep infinity"
    later = f'exec {sys.executable} -m tests.rigs.engine_helper "$1"'
    helpers, turn = Helpers(("sh", "-c", f"{first}; {later}", "sh"), tmp_path), Lock()
    engine = HelperEngine(FakeEngine("pulumi"), helpers, turn)
    helpers.start()
    died = int((tmp_path / "meeting").read_text())
    os.kill(died, signal.SIGKILL)
    os.waitid(os.P_PID, died, os.WEXITED | os.WNOWAIT)

    with turn:
        assert engine.preview(REF, [a_sim_worker("a")]) == creates("a")
    helpers.end()


@pytest.mark.slow
def test_helper_process_is_reused(tmp_path: Path) -> None:
    once = f'mkdir {tmp_path}/first && exec {sys.executable} -m tests.rigs.engine_helper "$1"'
    helpers, turn = Helpers(("sh", "-c", once, "sh"), tmp_path), Lock()
    engine = HelperEngine(FakeEngine("pulumi"), helpers, turn)

    helpers.start()

    with turn:
        assert engine.preview(REF, [a_sim_worker("a")]) == creates("a")
        assert engine.preview(REF, [a_sim_worker("b")]) == creates("b")
    helpers.end()


def test_stack_fails_when_no_helper_can_start() -> None:
    turn = Lock()
    engine = HelperEngine(FakeEngine("pulumi"), Helpers(("/nowhere/python",), None), turn)

    with (
        pytest.raises(StackFailed, match="/nowhere/python"),
        turn,
    ):
        engine.preview(REF, [a_sim_worker("a")])


@pytest.mark.slow
def test_two_helpers_work_concurrently(apart: Apart) -> None:
    done: list[tuple[StackStep, ...]] = []
    first = threading.Thread(target=lambda: done.append(apart.up("first")))

    first.start()
    done.append(apart.up("second", ref=OTHER))
    first.join()

    assert sorted(done, key=str) == [creates("first"), creates("second")]


@pytest.mark.slow
def test_interrupt_cancels_cli_and_helper_reports_it(apart: Apart) -> None:
    def interrupt(step: StackStep) -> None:
        assert step.worker == "cancelled"
        begun.set()

    begun = threading.Event()
    ended = threading.Event()

    def ask() -> None:
        begun.wait()
        # The helper tells the step before it starts the program that is to be cancelled.
        while not ended.wait(0.05):
            apart.helpers.interrupt()

    asking = threading.Thread(target=ask)
    asking.start()
    engine = HelperEngine(FakeEngine("pulumi"), apart.helpers, apart.turn)
    with pytest.raises(StackFailed, match=rf"ended by {signal.SIGINT:d}"), apart.turn:
        engine.up(REF, [a_sim_worker("cancelled")], interrupt)
    ended.set()
    asking.join()


def test_helpers_end_with_their_parent(apart: Apart) -> None:
    with pytest.raises(StackFailed) as failed:
        apart.up("secret", text="x")
    helper = int(failed.value.failed["secret"])
    os.kill(helper, 0)

    apart.helpers.end()

    with pytest.raises(ProcessLookupError):
        os.kill(helper, 0)


@contextmanager
def a_helper_that_does(worker: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a helper amid an update, whose standard input is what it is held by."""
    ours, theirs = Pipe()
    os.mkfifo(folder / "meeting")
    with ours, theirs:
        helper = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.engine_helper", str(theirs.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        ours.send(folder)
        ours.send(HelperCall("up", REF, (a_sim_worker(worker),), {}))
        assert (folder / "meeting").read_text() == "here"
        try:
            yield helper
        finally:
            with suppress(ProcessLookupError):
                os.killpg(helper.pid, signal.SIGKILL)
            helper.communicate()


@pytest.mark.slow
def test_idle_helper_exits_when_its_input_closes(tmp_path: Path) -> None:
    with a_helper_that_does("thinking", tmp_path) as helper:
        assert helper.stdin
        helper.stdin.close()

        assert helper.wait(timeout=20) == 1


@pytest.mark.slow
def test_closed_helper_cancels_waits_and_starts_no_more_work(
    tmp_path: Path,
) -> None:
    with a_helper_that_does("two", tmp_path) as helper:
        assert helper.stdin
        helper.stdin.close()
        assert (tmp_path / "meeting").read_text() == "cancelled"
        waits = helper.poll() is None

        os.killpg(helper.pid, signal.SIGINT)

        assert waits
        assert helper.wait(timeout=20) == 1
        assert [path.name for path in tmp_path.glob("begun-*")] == ["begun-1"]


def test_helper_receives_no_token_in_its_arguments(apart: Apart) -> None:
    with pytest.raises(StackFailed) as failed:
        apart.up("secret", text="a planted token")
    process = Path("/proc") / failed.value.failed["secret"]

    assert (
        b"planted" not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    )


def test_fleet_is_passed_to_helper_unchanged() -> None:
    fleet = a_fleet()

    again = pickle.loads(pickle.dumps(fleet))  # noqa: S301 - our own

    assert isinstance(again, Fleet)
    assert again == fleet
