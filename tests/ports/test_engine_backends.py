"""The real engine keeps its stacks, secrets and locks in S3 and PostgreSQL as well as in files."""

import json
import multiprocessing
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from fleet.clouds.sim.machines import SimCloud
from fleet.engines.projects import ProviderAccount
from fleet.engines.pulumi import PulumiEngine
from fleet.engines.pulumi_state import STACKS, Objects, find_locks, open_objects
from fleet.errors import Locked
from fleet.model.facts import Stack, WorkerInputs
from fleet.ports import StackRef, StackStep
from tests.builders import NOW
from tests.fakes.engine import FixedClock
from tests.ports.engines import (
    MENU,
    REF,
    a_sim_worker,
    kill_family,
    names_in,
    quiet,
    read,
    skip_without_cli,
)
from tests.rigs.backends import open_backend, postgres_url
from tests.rigs.canary import find_leaks

__all__ = ["postgres_url"]

pytestmark = pytest.mark.engine

ONE, TWO = (a_sim_worker(f"debian-builders-{number:04}") for number in (1, 2))
PASSPHRASE = "a passphrase for tests"


class Rig:
    """The real engine over a backend, and its simulated cloud."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.folder = folder
        self.backend = backend
        self.cloud = SimCloud(folder / "sim.json", FixedClock(NOW))
        self.cloud.configure(MENU)

    def engine(self, computer: str = "home") -> PulumiEngine:
        """Return the engine of a computer; another has nothing but the backend."""
        accounts = {"desk": ProviderAccount(self.cloud, {"sim:path": str(self.cloud.path)})}
        home = self.folder / computer
        return PulumiEngine(self.backend, home, lambda: PASSPHRASE, accounts)

    def objects(self) -> Objects:
        objects = open_objects(self.backend)
        assert objects is not None
        return objects

    def die(self, ref: StackRef, workers: list[WorkerInputs]) -> None:
        """Kill the CLI, its plugin and its parent while they hold the stack's lock."""
        child = multiprocessing.get_context("spawn").Process(
            target=_up, args=(self.folder, self.backend, ref, workers)
        )
        child.start()
        while not find_locks(self.objects(), "fleet-sim", ref.name):
            assert not wait([child.sentinel], timeout=0.02), "the child was to be killed"
        kill_family(child.pid or 0)
        child.join()
        child.close()


def _up(folder: Path, backend: str, ref: StackRef, workers: list[WorkerInputs]) -> None:
    Rig(folder, backend).engine().up(ref, workers, quiet)


@pytest.fixture(scope="module", params=["s3", "postgres"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Return an engine whose backend holds one stack, REF, with one worker, ONE."""
    skip_without_cli()
    folder = tmp_path_factory.mktemp(f"engine-{request.param}")
    with pytest.MonkeyPatch.context() as patch:
        rig = Rig(folder, open_backend(request, request.param, folder, patch))
        rig.engine().up(REF, [ONE], quiet)
        yield rig


@contextmanager
def held_elsewhere(rig: Rig) -> Iterator[None]:
    """Have somebody on another computer hold the stack."""
    theirs = {"pid": 1, "username": "ana", "hostname": "elsewhere", "timestamp": "2026-11-21"}
    key = f".pulumi/locks/organization/fleet-sim/{REF.name}/1.json"
    rig.objects().create(key, json.dumps(theirs).encode())
    yield
    rig.objects().remove(key)


def a_stack(fleet: str, *numbers: int) -> tuple[StackRef, list[WorkerInputs]]:
    """Return the stack of pool builders of a fleet, and workers for it."""
    names = [f"{fleet}-builders-{number}" for number in numbers]
    labels = {**ONE.labels, "fleet": fleet}
    workers = [a_sim_worker(name, labels=labels | {"worker": name}) for name in names]
    return REF.altered(name=f"{fleet}-builders"), workers


def names_of(steps: tuple[StackStep, ...]) -> list[str]:
    return [f"{step.operation} {step.worker}" for step in steps]


def test_stack_is_read_without_starting_pulumi(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "FLEET_PULUMI", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(rig.folder / "nothing"))

    stack = read(rig.engine())

    assert (stack.workers, stack.interrupted) == ((ONE,), False)
    assert stack.serial > 0
    assert stack.ids.keys() == {ONE.name}


def test_backend_does_not_contain_passphrase(rig: Rig) -> None:
    objects = rig.objects()

    stored = [(key, objects.read(key) or b"") for key in objects.keys(".pulumi/")]

    assert any(key.startswith(STACKS) for key, _ in stored)
    assert any(b"secrets_providers" in content for _, content in stored)
    assert find_leaks({"PASSPHRASE": PASSPHRASE}, stored) == []


def test_lock_of_another_computer_is_not_broken(rig: Rig) -> None:
    with (
        held_elsewhere(rig),
        pytest.raises(Locked, match=r"ana.*elsewhere.*process 1\).*fleet state unlock"),
    ):
        rig.engine().up(REF, [ONE, TWO], quiet)

    assert names_in(rig.cloud) == [ONE.name]


def test_fleets_in_one_backend_are_separate_at_equal_pool_names(rig: Rig) -> None:
    theirs, (other,) = a_stack("kali", 1)

    with held_elsewhere(rig):
        made = rig.engine("theirs").up(theirs, [other], quiet)

    assert names_of(made) == ["create kali-builders-1"]
    assert names_in(rig.cloud) == [ONE.name]
    assert read(rig.engine()).workers == (ONE,)


def test_stacks_are_readable_from_another_computer(rig: Rig) -> None:
    ref, (one, two, three) = a_stack("grml", 1, 2, 3)
    rig.engine("first").up(ref, [one, two], quiet)
    shutil.rmtree(rig.folder / "first")

    changed = rig.engine("second").up(ref, [two, three], quiet)

    assert names_of(changed) == ["delete grml-builders-1", "create grml-builders-3"]


def test_lock_of_killed_run_is_taken_over(rig: Rig) -> None:
    ref, workers = a_stack("pure", 1, 2)
    rig.engine().up(ref, workers[:1], quiet)
    rig.die(ref, workers)
    (lock,) = find_locks(rig.objects(), "fleet-sim", ref.name)
    left = rig.engine().read(ref)

    rig.engine().up(ref, workers, quiet)

    assert lock.alive is False
    assert isinstance(left, Stack)
    assert left.interrupted
    assert find_locks(rig.objects(), "fleet-sim", ref.name) == ()
    after = rig.engine().read(ref)
    assert isinstance(after, Stack)
    assert sorted(after.ids) == ["pure-builders-1", "pure-builders-2"]
