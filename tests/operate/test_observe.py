"""What observing makes of a state that several fleets share."""

from pathlib import Path

import pytest

from fleet.facts import Stack, Unknown
from fleet.operate.observe import Sources, observe
from fleet.ports import StackRef
from fleet.store.database import DatabaseStore
from tests.builders import NOW, a_pool, a_sim_fleet, some_inputs
from tests.fakes_engine import FakeEngine
from tests.fakes_queue import FakeProvider


def stack_seen(folder: Path, labels: dict[str, str]) -> object:
    """Return how pool `b` of fleet `debian-ci` sees a stack in which one worker stands."""
    engine = FakeEngine()
    ref = StackRef(project="sim", name="debian-ci-b", provider="desk", pool="b")
    engine.up(ref, [some_inputs(labels=labels)], lambda _: None)
    store = DatabaseStore(f"sqlite:///{folder}/store.db", "debian-ci")
    store.init()
    sources = Sources(
        queues={},
        providers={"desk": FakeProvider(NOW)},
        registries={},
        engine_of=lambda _: engine,
        store=store,
    )
    stacks = observe(a_sim_fleet(pools={"b": a_pool(provider="desk")}), sources, NOW).stacks
    assert isinstance(stacks, dict)
    return stacks["b"]


def test_a_stack_of_this_fleet_is_known(tmp_path: Path) -> None:
    assert isinstance(stack_seen(tmp_path, {"fleet": "debian-ci", "pool": "b"}), Stack)


@pytest.mark.parametrize(
    "labels", [{"fleet": "debian", "pool": "ci-b"}, {"fleet": "debian-ci", "pool": "a"}]
)
def test_a_stack_of_the_same_name_with_machines_of_another_is_unknown(
    tmp_path: Path, labels: dict[str, str]
) -> None:
    seen = stack_seen(tmp_path, labels)

    assert isinstance(seen, Unknown)
    assert f"holds machines of pool {labels['pool']} of fleet {labels['fleet']}" in seen.unknown
