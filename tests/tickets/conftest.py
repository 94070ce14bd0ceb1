"""A service of tickets over a store of its own, and a client of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.ticket_service import TicketService


@pytest.fixture
def service(tmp_path: Path) -> Iterator[TicketService]:
    """Return a service that listens, whose clock a test sets."""
    with TicketService(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketService]:
    """Return a service for tests that count nothing: each looks at its own ticket only."""
    with TicketService(tmp_path_factory.mktemp("shared")) as running:
        yield running
