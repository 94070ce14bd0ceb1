"""Several stacks in threads of one process, and what an interrupted or killed one leaves."""

import fcntl
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleet.apply.parallel import yielding_engine
from fleet.engines.pulumi_cli import interrupt_all
from fleet.errors import StackFailed
from fleet.ports import StackStep
from tests.fakes.engine import FakeEngine
from tests.ports.engines import REF, PulumiRig, a_sim_worker, quiet, read, skip_without_cli

ONE, TWO = a_sim_worker("debian-builders-0001"), a_sim_worker("debian-builders-0002")


@pytest.fixture
def real(tmp_path: Path) -> PulumiRig:
    skip_without_cli()
    return PulumiRig(tmp_path)


@contextmanager
def slow_creation(rig: PulumiRig, worker: str) -> Iterator[Callable[[], None]]:
    """Yield a function that waits until a creation has begun, which ends after the body."""

    def wait() -> None:
        while worker not in rig.pending():
            threading.Event().wait(0.05)

    with rig.cloud.path.with_name("sim.json.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield wait


def locks_in(rig: PulumiRig) -> list[Path]:
    return list((rig.folder / "state/.pulumi/locks").rglob("*.json"))


def up_in_a_child(folder: Path) -> None:
    PulumiRig(folder).engine.up(REF, [ONE, TWO], quiet)


def test_turn_is_free_only_while_the_engine_works() -> None:
    turn, told = threading.Lock(), list[tuple[StackStep, bool]]()
    engine = yielding_engine(FakeEngine("pulumi"), turn)

    with turn, engine.prepare(REF, [ONE]) as change:
        held = turn.locked()
        change.make(lambda step: told.append((step, turn.locked())), {})

    step = StackStep(worker=ONE.name, operation="create")
    assert (change.steps, told, held, turn.locked()) == ((step,), [(step, True)], True, False)


@pytest.mark.engine
def test_stacks_in_threads_get_their_own_workers(real: PulumiRig) -> None:
    refs = [REF.altered(name=f"debian-{pool}", pool=pool) for pool in ("a", "b", "c")]
    workers = {
        ref: [
            a_sim_worker(f"{ref.name}-{number}", labels={**ONE.labels, "pool": ref.pool})
            for number in (1, 2, 3)
        ]
        for ref in refs
    }

    def change(ref: object) -> None:
        (of,) = (each for each in refs if each is ref)
        real.engine.up(of, workers[of][:1], quiet)
        given = {each.name: f"a token of {each.name}" for each in workers[of][1:]}
        with real.engine.prepare(of, workers[of]) as prepared:
            prepared.make(quiet, given)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(change, refs))

    assert [read(real.engine, ref).workers for ref in refs] == [
        tuple(workers[ref]) for ref in refs
    ]


@pytest.mark.engine
def test_interrupted_update_records_begun_creation(real: PulumiRig) -> None:
    with ThreadPoolExecutor(1) as thread:
        with slow_creation(real, ONE.name) as wait:
            changing = thread.submit(real.engine.up, REF, [ONE], quiet)
            wait()
            interrupt_all()
        with pytest.raises(StackFailed):
            changing.result()

    stack = read(real.engine)
    assert (list(stack.ids), stack.interrupted, locks_in(real)) == ([ONE.name], False, [])


@pytest.mark.engine
def test_killed_fleet_leaves_no_lock_and_no_unfinished_step(real: PulumiRig) -> None:
    child = multiprocessing.get_context("spawn").Process(target=up_in_a_child, args=(real.folder,))
    with slow_creation(real, ONE.name) as wait:
        child.start()
        wait()
        child.kill()
        child.join()
        child.close()
    while locks_in(real):
        threading.Event().wait(0.05)

    stack = read(real.engine)
    assert not stack.interrupted
    assert list(stack.ids) == real.machines()
