"""Builders of entries of the log."""

from fleet.model.log import LogEntry, Origin
from tests.builders import NOW

ANN = Origin(
    by="ann",
    commit="8a4a1c9e3c1d5f7b9a2e4d6c8b0f1a3e5d7c9b1f",
    pipeline="https://gitlab.example.org/infra/fleet/-/pipelines/4711",
    job="https://gitlab.example.org/infra/fleet/-/jobs/81234",
)


def an_entry(**overrides: object) -> LogEntry:
    """Return an entry of a machine that was created."""
    defaults = {
        "at": NOW,
        "kind": "create",
        "origin": ANN,
        "run": "2026-11-21T08:00:00Z",
        "plan": "5" * 64,
        "pool": "builders",
        "machine": "debian-builders-1",
        "reason": "requests-wait",
        "because": "2 requests wait",
        "cost": "0.04",
        "outcome": "done",
    }
    return LogEntry.model_validate(defaults | overrides)
