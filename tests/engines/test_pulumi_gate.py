"""What holds an update between its preview and its first change."""

import threading

import pytest

from fleet.engines.pulumi_cli import UpdateGate
from fleet.errors import StackFailed
from tests.ports.engines import REF


def nothing() -> None:
    """Declare nothing."""


def test_held_update_that_ended_is_not_started() -> None:
    is_killed = threading.Event()
    gate = UpdateGate(REF, nothing)
    held = threading.Thread(target=gate.choose, args=(False,))

    def up() -> None:
        held.start()
        is_killed.wait()
        raise StackFailed("the CLI was killed")

    with gate:
        gate.start(up)
        is_killed.set()
    held.join()

    with pytest.raises(StackFailed, match="CLI"):
        gate.let_through(nothing)
    assert gate.choose(False) is None
