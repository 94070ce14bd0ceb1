"""This module derives a minimum from what earlier runs of a task used for the same package.

A quantile of the runs by nearest rank, with a margin, in whole GiB; nothing where fewer runs are
known than the rule wants, or where the request states a minimum of that number itself.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fleet.schema.model import DeriveRule
from fleet.tagrules.numbers import tag_name
from fleet.tagrules.told import Told

if TYPE_CHECKING:
    from fleet.facts import Request

_MINIMUM = re.compile(r"(?P<name>[^\s<>={}]+)>=\{value\}")
_MIB_PER_GIB = 1024
_WHOLE = 100


def number_of(template: str) -> str | None:
    """Return the number whose minimum a template asks for; None where it asks for another tag."""
    match = _MINIMUM.fullmatch(template)
    return match["name"] if match else None


def needed(
    rule: DeriveRule, request: "Request", told: Told, known: Iterable[str]
) -> tuple[int, str] | None:
    """Return how many GiB the request needs by history, and why; None where that is no use."""
    wanted = rule.history
    own = any(">=" in tag and tag_name(tag) == number_of(rule.ask) for tag in known)
    if wanted is None or request.package is None or own:
        return None
    runs = sorted(
        size
        for each in told.history.get((request.task, request.package), ())
        for size in (each.memory_mib if wanted.of == "memory" else each.disk_mib)
    )
    if len(runs) < wanted.min_runs:
        return None
    reached = runs[-(-len(runs) * wanted.quantile // _WHOLE) - 1]
    gib = -(-reached * (_WHOLE + wanted.margin) // (_WHOLE * _MIB_PER_GIB))
    return gib, (
        f"{wanted.quantile}% of {len(runs)} earlier runs of {request.task} for {request.package} "
        f"needed at most {reached} MiB of {wanted.of}; with a margin of {wanted.margin}%"
    )
