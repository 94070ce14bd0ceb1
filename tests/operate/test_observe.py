"""What observing makes of stacks that are missing, moved or another's."""

from pathlib import Path

import pytest

from fleet.facts import Stack, Unknown
from fleet.operate.observe import Sources, observe
from fleet.ports import StackRecord, StackRef
from fleet.store.database import DatabaseStore
from tests.builders import NOW, a_pool, a_sim_fleet, some_inputs
from tests.fakes_engine import FakeEngine
from tests.fakes_queue import FakeProvider

REF = StackRef(project="sim", name="debian-ci-b", provider="desk", pool="b")


def stack_seen(
    folder: Path, engine: FakeEngine, record: StackRecord | None = None
) -> Stack | Unknown | None:
    """Return how pool `b` of fleet `debian-ci` sees its stack."""
    store = DatabaseStore(f"sqlite:///{folder}/store.db", "debian-ci")
    store.init()
    if record:
        store.record_stack(record)
    sources = Sources(
        queues={},
        providers={"desk": FakeProvider(NOW)},
        registries={},
        engine_of=lambda _: engine,
        store=store,
    )
    stacks = observe(a_sim_fleet(pools={"b": a_pool(provider="desk")}), sources, NOW).stacks
    assert isinstance(stacks, dict)
    return stacks.get("b")


def with_a_worker(**labels: str) -> FakeEngine:
    engine = FakeEngine()
    engine.up(REF, [some_inputs(labels=labels)], lambda _: None)
    return engine


def a_record(**overrides: object) -> StackRecord:
    defaults = {
        "name": REF.name,
        "pool": "b",
        "provider": "desk",
        "project": "sim",
        "engine": "embedded",
        "serial": 1,
    }
    return StackRecord.model_validate(defaults | overrides)


def test_a_stack_that_was_there_and_is_missing_is_unknown(tmp_path: Path) -> None:
    seen = stack_seen(tmp_path, FakeEngine(), a_record(serial=1))

    assert isinstance(seen, Unknown)
    assert "was there before and is missing now" in seen.unknown


def test_a_stack_that_was_only_about_to_be_made_may_be_missing(tmp_path: Path) -> None:
    assert stack_seen(tmp_path, FakeEngine(), a_record(serial=0)) is None


@pytest.mark.parametrize(
    ("record", "because"),
    [
        (a_record(engine="pulumi"), "belongs to engine pulumi, not embedded"),
        (a_record(provider="attic"), "machines are at provider attic, fleet.yaml now says desk"),
    ],
)
def test_a_stack_of_another_engine_or_provider_is_unknown(
    tmp_path: Path, record: StackRecord, because: str
) -> None:
    seen = stack_seen(tmp_path, with_a_worker(), record)

    assert isinstance(seen, Unknown)
    assert because in seen.unknown


def test_a_stack_of_this_fleet_is_known(tmp_path: Path) -> None:
    assert isinstance(stack_seen(tmp_path, with_a_worker(fleet="debian-ci", pool="b")), Stack)


@pytest.mark.parametrize(
    "labels", [{"fleet": "debian", "pool": "ci-b"}, {"fleet": "debian-ci", "pool": "a"}]
)
def test_a_stack_of_the_same_name_with_machines_of_another_is_unknown(
    tmp_path: Path, labels: dict[str, str]
) -> None:
    seen = stack_seen(tmp_path, with_a_worker(**labels))

    assert isinstance(seen, Unknown)
    assert f"holds machines of pool {labels['pool']} of fleet {labels['fleet']}" in seen.unknown
