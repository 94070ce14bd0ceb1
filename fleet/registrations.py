"""This module says where a machine's worker is registered; of several, the most active speaks.

So a registration that is idle, draining or dead never hides one that works, and a machine goes
only when every queue that knows its worker has stopped giving it work.
"""

from collections.abc import Iterable, Mapping

from fleet.facts import Worker, WorkerState

Registries = Mapping[str, tuple[Worker, ...]]
"""Queue or provider to the workers registered there."""

_CALM = (
    (WorkerState.DISABLED, False),
    (WorkerState.ENROLLED, False),
    (WorkerState.IDLE, True),
    (WorkerState.DISCONNECTED, False),
    (WorkerState.DEAF, False),
    (WorkerState.IDLE, False),
)
"""State and draining of what runs nothing, the surest to stay so first."""


def workers_by_machine(
    registries: Registries, static: frozenset[str]
) -> dict[str, tuple[str, Worker]]:
    """Return machine name to where its worker is registered, and the worker; static ones aside."""
    found: dict[str, tuple[str, Worker]] = {}
    for registry, worker in sorted(_each(registries, static), key=_most_active_first):
        found.setdefault(worker.machine or worker.name, (registry, worker))
    return found


def is_busy(worker: Worker) -> bool:
    """Say whether a worker runs something, by its state or by what it is said to run."""
    return worker.state is WorkerState.BUSY or worker.running is not None


def _each(registries: Registries, static: frozenset[str]) -> Iterable[tuple[str, Worker]]:
    return (
        (registry, worker)
        for registry, workers in registries.items()
        for worker in workers
        if not worker.static and worker.name not in static
    )


def _most_active_first(registered: tuple[str, Worker]) -> tuple[int, str, str, str]:
    registry, worker = registered
    return (-_activity(worker), registry, worker.name, str(worker.since))


def _activity(worker: Worker) -> int:
    if is_busy(worker):
        return len(_CALM)
    return _CALM.index((worker.state, worker.draining and worker.state is WorkerState.IDLE))
