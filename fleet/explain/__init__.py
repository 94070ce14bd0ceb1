"""Why a request waits, why a pool has its machines, why a worker stays or goes.

Begin with `request`; `unblock` searches for edits that help, `changes` compares two fleet.yaml.
"""

from fleet.explain.pool import explain_pool
from fleet.explain.request import (
    EachRequest,
    Everything,
    Group,
    each_request,
    explain_every,
    explain_request,
)
from fleet.explain.values import ExplainedReason, Explanation
from fleet.explain.what_if import Path
from fleet.explain.worker import explain_worker

__all__ = [
    "EachRequest",
    "Everything",
    "ExplainedReason",
    "Explanation",
    "Group",
    "Path",
    "each_request",
    "explain_every",
    "explain_pool",
    "explain_request",
    "explain_worker",
]
