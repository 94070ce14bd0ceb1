"""What goes wrong on fleet's own side, or behind its back, costs nothing but another apply.

Stacks out of reach, a full disk, two applies at once, machines that are gone: real engine,
simulated clouds. What was seen is in the same tables as that of test_hetzner.py and test_aws.py.
"""

import os
import select
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from tests.builders.sentences import tells
from tests.faults.cloud_trial import BUSY, THREE, TWO, Beginning, CloudTrial, begin, host_of
from tests.faults.clouds import Hetzner
from tests.faults.gateway import Gateway
from tests.faults.seen import AT_ONCE, Seen, check_healed, check_row, follow
from tests.rigs.warm import Warm

pytestmark = pytest.mark.engine
ALREADY = ""
MOMENTS = (ALREADY, "asked create", "done create")
"""Before the apply, before its first deed, and after that."""
Trouble = Callable[[CloudTrial[Any], str], AbstractContextManager[None]]
"""Begins something at a moment, and ends it when it is left."""


@dataclass(frozen=True)
class Case:
    """Trouble, when it begins, and how an apply ends in it."""

    trouble: Trouble
    moments: tuple[str, ...]
    codes: tuple[int, ...]
    """Which ends an apply may come to in it."""
    struck: str
    machines: int = 3
    beginnings: tuple[str, ...] = ("at_hetzner",)


def since(trial: CloudTrial[Any], moment: str, act: Callable[[], object]) -> None:
    """Act when a moment comes for the first time."""
    when, _, deed = moment.partition(" ")
    awaited = f"{when} {getattr(trial.cloud, deed)}" if deed else ""

    def watch(now: str) -> None:
        if awaited == now:
            trial.cloud.watch = lambda _: None
            act()

    if moment == ALREADY:
        act()
    else:
        trial.cloud.watch = watch


@contextmanager
def without_backend(trial: CloudTrial[Any], moment: str) -> Iterator[None]:
    """Have stacks be out of reach."""
    gateway = Gateway(trial.folder / "gate", host_of(trial.url)).lead()
    trial.keep_stacks_behind(gateway.folder)
    since(trial, moment, gateway.cut)
    yield
    gateway.lead()


@contextmanager
def on_a_full_disk(trial: CloudTrial[Any], moment: str) -> Iterator[None]:
    """Have hardly a block be free for what fleet and its engine keep."""
    small, kept = trial.folder / ".fleet", trial.folder / "kept"
    small.rename(kept)
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", small], check=True)
    shutil.copytree(kept, small, dirs_exist_ok=True)
    over = threading.Event()
    filling = threading.Thread(target=_fill, args=(small / "filler", over))
    since(trial, moment, filling.start)
    try:
        yield
    finally:
        over.set()
    filling.join()
    (small / "filler").unlink()
    shutil.rmtree(kept)
    shutil.copytree(small, kept)
    subprocess.run(["umount", "--lazy", small], check=True)
    small.rmdir()
    kept.rename(small)


@contextmanager
def on_a_full_disk_with_two_to_go(trial: CloudTrial[Any], moment: str) -> Iterator[None]:
    """Have hardly a block be free while two machines are deleted."""
    trial.make_two_to_go()
    with on_a_full_disk(trial, moment):
        yield


def _fill(filler: Path, over: threading.Event) -> None:
    """Leave two blocks, again and again: what is written meanwhile is cut, not only refused."""
    while not over.wait(0.005):
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with suppress(OSError):
            os.truncate(filler, max(0, filler.stat().st_size - 2 * 4096))


@contextmanager
def one_that_boots_gone(trial: CloudTrial[Any], _: str) -> Iterator[None]:
    """Have a machine be deleted at the provider while it boots; a person says that it is gone."""
    assert trial.fleet("apply").returncode == 0
    trial.cloud.vanish(TWO)
    yield
    told = trial.fleet("state", "forget-machine", TWO)
    assert told.returncode == 0, told


@contextmanager
def the_new_one_gone(trial: CloudTrial[Any], moment: str) -> Iterator[None]:
    """Have a machine be deleted at the provider as soon as it was made."""
    since(trial, moment, lambda: trial.cloud.vanish(trial.machines()[-1]))
    yield


@contextmanager
def those_to_go_gone(trial: CloudTrial[Any], moment: str) -> Iterator[None]:
    """Have machines be deleted at the provider right before the engine does it."""
    trial.make_two_to_go()
    since(trial, moment, lambda: trial.cloud.vanish(TWO, THREE))
    yield


BOTH = ("at_hetzner", "at_aws")
ON_A_FULL_DISK = (on_a_full_disk, on_a_full_disk_with_two_to_go)
CASES = {
    "the backend of the stacks is out of reach": Case(
        without_backend,
        MOMENTS,
        (1, 4),
        "1 or 4, up to 2 of 2 created",
        beginnings=("shared",),
    ),
    "the disk is full": Case(on_a_full_disk, MOMENTS, (1, 5), "1 or 5, up to 2 of 2 created"),
    "the disk is full while two are deleted": Case(
        on_a_full_disk_with_two_to_go,
        ("asked delete", "done delete"),
        (1, 5),
        "1 or 5, up to 2 of 2 deleted",
        machines=1,
    ),
    "a booting machine is gone (then `fleet state forget-machine`)": Case(
        one_that_boots_gone,
        (ALREADY,),
        (1,),
        "1, none created",
        beginnings=BOTH,
    ),
    "a machine is gone as soon as it was made": Case(
        the_new_one_gone, ("done create",), (5,), "5, 1 of 2 created", beginnings=BOTH
    ),
    "two machines are gone when they are to be deleted": Case(
        those_to_go_gone,
        ("asked delete",),
        (0,),
        "0, both are gone",
        machines=1,
        beginnings=BOTH,
    ),
}
TRIED = [(fault, beginning) for fault, case in CASES.items() for beginning in case.beginnings]
OFTEN = {
    "the backend of the stacks is out of reach": ("shared", "asked create"),
    "the disk is full": ("at_hetzner", "done create"),
    "a booting machine is gone (then `fleet state forget-machine`)": ("at_hetzner", ALREADY),
    "a machine is gone as soon as it was made": ("at_aws", "done create"),
    "two machines are gone when they are to be deleted": ("at_hetzner", "asked delete"),
}
"""What `nox -s engine` tries; every provider and moment is for `nox -s long`."""


def _tried() -> Iterator[ParameterSet]:
    for fault, beginning in TRIED:
        moments = CASES[fault].moments
        often = [moment for moment in moments if OFTEN.get(fault) == (beginning, moment)]
        seldom = [moment for moment in moments if moment not in often]
        for part, marks in ((often, ()), (seldom, pytest.mark.long)):
            if part:
                yield pytest.param(fault, beginning, part, marks=marks)


@pytest.fixture(scope="session")
def shared(
    at_hetzner: Beginning[Hetzner],
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: str,
    warm: Warm,
) -> Beginning[Hetzner]:
    """Return the same beginning as at_hetzner, with its stacks in a database."""
    folder = tmp_path_factory.mktemp("shared") / "shared"
    return begin(at_hetzner.kind, folder, postgres_server, warm, backend="postgres")


@pytest.mark.parametrize(("fault", "beginning", "moments"), [*_tried()])
def test_next_apply_reaches_desired_state_after_own_fault(
    fault: str,
    beginning: str,
    moments: Sequence[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    case = CASES[fault]
    if case.trouble in ON_A_FULL_DISK and os.geteuid() != 0:
        pytest.skip("a full disk is NOT TESTED: only root mounts a small file system")
    start = request.getfixturevalue(beginning)

    def try_at(moment: str) -> Seen:
        with start.trial(tmp_path / str(case.moments.index(moment))) as trial:
            busy = trial.id_of(BUSY)
            with case.trouble(trial, moment):
                code = trial.fleet("apply").returncode
            seen = follow(trial, code, len(trial.machines()) - 1, busy)
            return replace(seen, moment=moment)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = list(pool.map(try_at, moments))

    assert {seen.struck for seen in runs} <= set(case.codes), runs
    check_healed(runs, case.machines)
    row = (fault, len(case.moments), case.struck)
    check_row(start.kind.__name__, row, request.config)


def test_second_of_two_concurrent_applies_has_to_wait(
    at_hetzner: Beginning[Hetzner], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with at_hetzner.trial(tmp_path / "two") as trial:
        busy = trial.id_of(BUSY)
        both = [trial.begin("apply") for _ in range(2)]
        ends = [os.pidfd_open(each.pid) for each in both]
        # Nothing is made until one of them has given up.
        since(trial, MOMENTS[1], lambda: select.select(ends, [], [], 120))
        said = [each.communicate(timeout=300)[1] for each in both]
        codes = [each.returncode for each in both]
        for end in ends:
            os.close(end)
        seen = follow(trial, min(codes), len(trial.machines()) - 1, busy)

    assert sorted(codes) == [0, 1], said
    assert tells(said[codes.index(1)], "lock", "fleet")
    assert seen.is_healed(machines=3), seen
    fault = "two applies at the same time: one exits with 1"
    check_row("Hetzner", (fault, 1, "0, 2 of 2 created"), request.config)
