"""Render Prometheus metrics of a run's world and plan, and of the store's runs and images."""

from collections.abc import Callable
from datetime import datetime
from threading import Lock

from pydantic import ValidationError

from fleet.apply.config import PlanResult
from fleet.apply.observe import read_or_default
from fleet.model.history import LastRun, Outcome
from fleet.report.metrics import MetricsInputs, metrics_to_text
from fleet.schema.model import Fleet
from fleet.state.store import Store


def metrics_of(decision: PlanResult, store: Store | None, wrong_tokens: int | None = None) -> str:
    """Return the metrics of a plan as text. `store` is None for a recorded world."""
    fleet = decision.config.fleet
    if store is None:
        return metrics_to_text(fleet, None, MetricsInputs(decision.world, decision.plan))
    # The plan already reports unreadable parts of the store as unknown.
    last, versions = read_or_default((None, ()), lambda: (last_run(store), store.image_versions()))
    seen = MetricsInputs(decision.world, decision.plan, versions)
    return metrics_to_text(fleet, last, seen, wrong_tokens)


def last_run(store: Store) -> LastRun | None:
    """Return the last completed run; None if no run has completed."""
    found = store.last_runs(1, ended=True)
    if not found:
        return None
    run = found[0]
    try:
        succeeded = Outcome.model_validate_json(run["outcome"]).exit_code == 0
    except ValidationError:
        succeeded = False  # another version of fleet wrote an unreadable outcome
    return LastRun(datetime.fromisoformat(run["ended"]), succeeded)


class LiveMetrics:
    """Thread-safe metrics of the last run; before the first run, metrics that need no run."""

    def __init__(
        self, store: Store, fleet: Callable[[], Fleet], wrong_tokens: Callable[[], int]
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._wrong_tokens = wrong_tokens
        self._lock = Lock()
        self._last: PlanResult | None = None

    def show(self, decision: PlanResult) -> None:
        """Use the world and plan of this run for the metrics."""
        self._last = decision

    def read(self) -> str:
        """Return the metrics; if the store is unreadable, only metrics that need no store."""
        with self._lock:
            if self._last is not None:
                return metrics_of(self._last, self._store, self._wrong_tokens())
            last = read_or_default(None, lambda: last_run(self._store))
            return metrics_to_text(self._fleet(), last, wrong_tokens=self._wrong_tokens())
