"""Who asks a second time cuts all that is being done, also beside a real engine."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleet.apply.observe import Sources
from fleet.apply.parallel import pool_executor
from fleet.engines.embedded import EmbeddedEngine
from fleet.errors import StackFailed
from fleet.ports import StackRef
from fleet.state.store import Store
from tests.builders import a_fleet
from tests.fakes.source_reader import FakeSourceReader
from tests.ports.engines import a_sim_worker, quiet
from tests.rigs.hook_machines import a_hook_cloud

REAL = {"kind": "hcloud", "location": "fsn1", "token": {"env": "TOKEN"}}
REF = StackRef(project="hooks", name="debian-builders", provider="desk", pool="builders")
ONE, TWO = (a_sim_worker(f"debian-builders-{number:04}") for number in (1, 2))
SLOW = """\
case $FLEET_MACHINE in
*-0001) echo "$FLEET_MACHINE" ;;
*-0002) echo begun > begun; exec sleep infinity ;;
esac
"""


def test_second_signal_kills_own_commands_and_pulumi(
    tmp_path: Path,
) -> None:
    cloud = a_hook_cloud(tmp_path, new=SLOW, delete="touch deleted", list="echo []")
    engine = EmbeddedEngine(tmp_path / "state.db", {"desk": cloud})
    engine.up(REF, [ONE], quiet)
    os.mkfifo(tmp_path / "begun")
    sources = Sources(
        asking=FakeSourceReader,
        queues={},
        providers={"desk": cloud},
        registries={},
        engine_of=lambda _: engine,
        store=Store("sqlite:///nowhere.db", "debian"),
    )
    fleet = a_fleet(providers={"far": REAL})

    with (
        pool_executor(fleet, sources, 1, quiet) as (_, cut),
        ThreadPoolExecutor(1) as t,
    ):
        changing = t.submit(engine.up, REF, [TWO], quiet)
        assert (tmp_path / "begun").read_text() == "begun\n"
        assert cut is not None
        cut()
        with pytest.raises(StackFailed, match="debian-builders-0002"):
            changing.result(20)

    assert not (tmp_path / "deleted").exists()
