"""This module prepares a change at an engine that can be asked again and again."""

from collections.abc import Sequence
from functools import partial

from fleet.facts import WorkerInputs
from fleet.ports import Change, Engine, StackRef


def previewed(engine: Engine, ref: StackRef, workers: Sequence[WorkerInputs]) -> Change:
    """Return a change that is previewed and made in two operations."""
    return Change(engine.preview(ref, workers), partial(engine.up, ref, workers))
