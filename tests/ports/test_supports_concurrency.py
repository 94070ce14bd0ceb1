"""The contract of the port SupportsConcurrency: one step after the other, or several at once."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleet.engines.embedded import EmbeddedEngine
from fleet.engines.projects import run_steps
from fleet.errors import FleetError, StackFailed
from fleet.model.facts import Stack
from fleet.ports import StackRef, StackStep
from tests.fakes.supports_concurrency import FakeSupportsConcurrency
from tests.ports.engines import a_sim_worker, quiet
from tests.rigs.hook_machines import a_hook_cloud, hooks_over, write_hooks

SECONDS = 20
REF = StackRef(project="hooks", name="debian-builders", provider="desk", pool="builders")
WORKERS = [a_sim_worker(f"debian-builders-{number:04}") for number in range(1, 4)]
TWO_MEET = """\
case $FLEET_MACHINE in
*-0001) echo from 1 > meeting ;;
*-0002) cat meeting > heard ;;
esac
echo "$FLEET_MACHINE"
"""


def test_steps_run_concurrently_up_to_the_limit_of_provider() -> None:
    pairs = threading.Barrier(2)
    lock, now, most = threading.Lock(), [0], [0]

    def do(_: int) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        pairs.wait(SECONDS)
        with lock:
            now[0] -= 1

    ended = dict(run_steps(FakeSupportsConcurrency(), range(6), do))

    assert ended == dict.fromkeys(range(6))
    assert most == [2]


def test_interrupt_before_all_steps_started_starts_no_more() -> None:
    provider, was_cut = FakeSupportsConcurrency(), list[bool]()

    class Interrupted(list[int]):
        def __iter__(self) -> Iterator[int]:
            yield 1
            raise KeyboardInterrupt

    def do(_: int) -> None:
        was_cut.append(provider.cut.wait(SECONDS))

    with pytest.raises(KeyboardInterrupt):
        dict(run_steps(provider, Interrupted(), do))

    assert False not in was_cut
    assert not provider.cut.is_set()


def test_provider_without_limit_runs_steps_in_order() -> None:
    done: list[tuple[int, str]] = []

    def do(step: int) -> None:
        done.append((step, threading.current_thread().name))

    assert dict(run_steps(object(), range(3), do)) == dict.fromkeys(range(3))
    assert done == [(step, threading.current_thread().name) for step in range(3)]


def test_failing_step_does_not_stop_others() -> None:
    def do(step: int) -> None:
        if step == 1:
            raise FleetError("sold out")

    ended = {
        step: str(error) for step, error in run_steps(FakeSupportsConcurrency(), range(4), do)
    }

    assert ended == {0: "None", 1: "sold out", 2: "None", 3: "None"}


def test_closing_the_iterator_finishes_running_steps_only() -> None:
    two = FakeSupportsConcurrency()
    begun: list[int] = []

    def do(step: int) -> None:
        begun.append(step)
        if step:
            assert two.cut.wait(SECONDS)

    with closing(run_steps(two, range(9), do)) as ended:
        assert next(ended) == (0, None)

    assert len(begun) < 9
    assert not two.cut.is_set()


def test_own_commands_create_machines_concurrently_up_to_their_limit(tmp_path: Path) -> None:
    write_hooks(tmp_path, new=TWO_MEET, list="echo []")
    cloud = hooks_over(tmp_path, timeouts={"new": f"{SECONDS}s"})
    os.mkfifo(tmp_path / "meeting")
    engine = EmbeddedEngine(tmp_path / "state.db", {"desk": cloud})
    told: list[StackStep] = []

    done = engine.up(REF, WORKERS, told.append)

    assert (tmp_path / "heard").read_text() == "from 1\n"
    assert done == tuple(sorted(told, key=lambda step: step.worker))
    assert [step.worker for step in done] == [worker.name for worker in WORKERS]
    write_hooks(tmp_path, new='mkdir here && echo "$FLEET_MACHINE" && rmdir here', list="echo []")
    alone = EmbeddedEngine(tmp_path / "alone.db", {"desk": hooks_over(tmp_path, at_once=1)})
    assert len(alone.up(REF, WORKERS, quiet)) == len(WORKERS)


def test_failed_machine_keeps_others_created_and_recorded(tmp_path: Path) -> None:
    refuse = 'case $FLEET_MACHINE in *-0002) exit 1 ;; esac; echo "$FLEET_MACHINE"'
    engine = EmbeddedEngine(
        tmp_path / "state.db", {"desk": a_hook_cloud(tmp_path, new=refuse, list="echo []")}
    )

    with pytest.raises(StackFailed, match="2 other steps") as failed:
        engine.up(REF, WORKERS, quiet)

    assert sorted(failed.value.done) == ["debian-builders-0001", "debian-builders-0003"]
    assert list(failed.value.failed) == ["debian-builders-0002"]


def test_interrupt_kills_running_commands_and_records_machines(tmp_path: Path) -> None:
    slow = """\
case $FLEET_MACHINE in
*-0001) cat meeting > pid ;;
*) echo $$ > meeting; exec sleep infinity ;;
esac
"""
    os.mkfifo(tmp_path / "meeting")
    engine = EmbeddedEngine(
        tmp_path / "state.db", {"desk": a_hook_cloud(tmp_path, new=slow, list="echo []")}
    )

    def interrupt(_: StackStep) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.up(REF, WORKERS[:2], interrupt)

    left = engine.read(REF)
    assert isinstance(left, Stack)
    assert (left.interrupted, set(left.ids)) == (True, {"debian-builders-0001"})
    assert [worker.name for worker in left.workers] == [worker.name for worker in WORKERS[:2]]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
