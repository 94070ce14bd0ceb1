"""This package says what is wrong across keys: one rule per file, each with its page."""

from collections.abc import Iterator
from datetime import date
from types import ModuleType

from fleet.checks import (
    architecture_mismatch,
    cadence_and_idle,
    expired,
    min_above_max,
    name_too_long,
    not_yet_supported,
    on_demand_pool_with_warm_machines,
    previously_still_there,
    unknown_currency,
    unknown_image,
    unknown_machine_type,
    unknown_provider,
    unknown_queue,
    unknown_time_zone,
)
from fleet.schema.findings import Finding
from fleet.schema.model import Fleet

CHECKS = (
    architecture_mismatch,
    cadence_and_idle,
    min_above_max,
    name_too_long,
    not_yet_supported,
    on_demand_pool_with_warm_machines,
    previously_still_there,
    unknown_currency,
    unknown_image,
    unknown_machine_type,
    unknown_provider,
    unknown_queue,
    unknown_time_zone,
)
DATED_CHECKS = (expired,)
"""The checks that look at a date."""

RULES: tuple[ModuleType, ...] = (*CHECKS, *DATED_CHECKS)


def check_all(fleet: Fleet, today: date) -> Iterator[Finding]:
    """Return what every rule says; `today` only ever makes warnings."""
    for check in CHECKS:
        yield from check.check(fleet)
    for dated in DATED_CHECKS:
        yield from dated.check(fleet, today)
