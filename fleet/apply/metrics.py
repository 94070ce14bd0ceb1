"""Metrics of what a run saw and planned, with what the store says of runs and images."""

from collections.abc import Callable
from datetime import datetime
from threading import Lock

from pydantic import ValidationError

from fleet.apply.observe import told_or
from fleet.apply.plan import Decision
from fleet.model.history import LastRun
from fleet.model.outcome import Outcome
from fleet.ports import Store
from fleet.report.metrics import Seen, metrics_to_text
from fleet.schema.model import Fleet


def metrics_of(decision: Decision, store: Store | None, wrong_tokens: int | None = None) -> str:
    """Return the metrics of a decision; `store` is None where the world was recorded."""
    fleet = decision.config.fleet
    if store is None:
        return metrics_to_text(fleet, None, Seen(decision.world, decision.plan))
    # What the store does not tell, the plan has among what is unknown.
    last, versions = told_or((None, ()), lambda: (last_run(store), store.image_versions()))
    seen = Seen(decision.world, decision.plan, versions)
    return metrics_to_text(fleet, last, seen, wrong_tokens)


def last_run(store: Store) -> LastRun | None:
    """Return the last run that came to its end; None: there was none."""
    found = store.ended_runs(1)
    if not found:
        return None
    run = found[0]
    try:
        succeeded = Outcome.model_validate_json(run["outcome"]).exit_code == 0
    except ValidationError:
        succeeded = False  # another version of fleet wrote what this one cannot read
    return LastRun(datetime.fromisoformat(run["ended"]), succeeded)


class LiveMetrics:
    """The metrics as of the last run; before the first one, those that need none.

    Threads may share it.
    """

    def __init__(
        self, store: Store, fleet: Callable[[], Fleet], wrong_tokens: Callable[[], int]
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._wrong_tokens = wrong_tokens
        self._lock = Lock()
        self._last: Decision | None = None

    def show(self, decision: Decision) -> None:
        """Tell of what this run saw and planned from now on."""
        self._last = decision

    def read(self) -> str:
        """Return the metrics; without a store, what they can say without it."""
        with self._lock:
            if self._last is not None:
                return metrics_of(self._last, self._store, self._wrong_tokens())
            last = told_or(None, lambda: last_run(self._store))
            return metrics_to_text(self._fleet(), last, wrong_tokens=self._wrong_tokens())
