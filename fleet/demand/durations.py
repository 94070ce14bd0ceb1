"""This module says how long work is expected to run: history first, else `durations` by task."""

from datetime import datetime

from fleet.facts import Request, Worker
from fleet.schema.model import Fleet

USUAL = 3600
"""Seconds that work is taken to run for where nothing says how long, and one figure is needed."""
ANY = "any"
"""The key of `durations` that stands for every task without one of its own."""


def expected_seconds(fleet: Fleet, request: Request) -> int | None:
    """Return how long a request is expected to run; None when nothing says so."""
    if request.expected_seconds is not None:
        return request.expected_seconds
    return default_seconds(fleet, request.task)


def default_seconds(fleet: Fleet, task: str) -> int | None:
    """Return what `durations` says of a task; None when it says nothing."""
    return fleet.durations.get(task, fleet.durations.get(ANY))


def remaining_seconds(fleet: Fleet, worker: Worker, now: datetime) -> int | None:
    """Return how long a busy worker is expected to stay so; None when nothing says so.

    Work that has outlived its expectation is expected to take as long again as it has taken,
    halved: nobody knows, and it is not about to end in this second.
    """
    work = worker.work
    if work is None:
        return None
    expected = work.expected_seconds
    if expected is None:
        expected = default_seconds(fleet, work.task)
    started = work.started_at or worker.since
    if expected is None or started is None:
        return None
    elapsed = max(0, int((now - started).total_seconds()))
    return expected - elapsed if elapsed < expected else max(60, elapsed // 2)
