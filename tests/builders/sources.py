"""The edges of a program in tests: written fakes wherever a test names no other."""

from typing import Any

from fleet.apply.observe import Sources
from fleet.ports import Engine
from fleet.state.store import Store
from tests.builders.stores import new_store
from tests.fakes.engine import FakeEngine
from tests.fakes.source_reader import FakeSourceReader


def some_sources(
    store: Store | None = None,
    engine: Engine | None = None,
    **edges: Any,  # noqa: ANN401 - whatever a test is about
) -> Sources:
    """Return sources without queues and providers, over an empty store."""
    one = engine or FakeEngine()
    usual: dict[str, Any] = {"queues": {}, "providers": {}, "registries": {}}
    usual |= {"asking": FakeSourceReader, "engine_of": lambda _: one}
    return Sources(store=store or new_store(), **(usual | edges))
