"""This package says what is wrong across keys: one rule per file, each with its page."""

from collections.abc import Iterator
from datetime import date
from types import ModuleType
from typing import TYPE_CHECKING

from fleet.checks import (
    admin_without_read,
    budget_counts_nothing,
    budget_without_limit,
    cadence_and_idle,
    contradicting_sources,
    derivation_cycle,
    disk_above_type,
    enforced_by_capacity_alone,
    expired,
    expires_soon,
    forbidden_tag,
    invalid_pattern,
    market_not_sold,
    min_above_max,
    minimum_on_plain_tag,
    missing_price,
    misspelt_task,
    name_too_long,
    never_ready,
    on_demand_pool_with_warm_machines,
    pattern_covered,
    pattern_like_a_glob,
    pattern_matches_much,
    pattern_matches_nothing,
    pattern_misses_dirs,
    pattern_too_wide,
    plain_tag_only,
    pool_name,
    powerful_case_fails,
    previously_still_there,
    protection_by_workspace_tag,
    source_without_key,
    state_without_passphrase,
    target_wait_below_boot,
    token_in_clear,
    two_queues_give_work,
    unknown_currency,
    unknown_image,
    unknown_machine_type,
    unknown_pool,
    unknown_provider,
    unknown_queue,
    unknown_suite,
    unknown_tag,
    unknown_time_zone,
    worker_not_in_suite,
    wrong_derivation,
    wrong_number,
    wrong_source,
)
from fleet.schema.findings import Finding
from fleet.schema.model import Fleet

if TYPE_CHECKING:
    from fleet.tagrules.names import Recorded

CHECKS = (
    admin_without_read,
    budget_counts_nothing,
    budget_without_limit,
    cadence_and_idle,
    contradicting_sources,
    derivation_cycle,
    disk_above_type,
    enforced_by_capacity_alone,
    forbidden_tag,
    invalid_pattern,
    market_not_sold,
    missing_price,
    min_above_max,
    minimum_on_plain_tag,
    misspelt_task,
    name_too_long,
    pool_name,
    never_ready,
    on_demand_pool_with_warm_machines,
    pattern_covered,
    pattern_like_a_glob,
    pattern_misses_dirs,
    pattern_too_wide,
    plain_tag_only,
    powerful_case_fails,
    previously_still_there,
    protection_by_workspace_tag,
    source_without_key,
    state_without_passphrase,
    target_wait_below_boot,
    token_in_clear,
    two_queues_give_work,
    unknown_currency,
    unknown_image,
    unknown_machine_type,
    unknown_pool,
    unknown_provider,
    unknown_queue,
    unknown_suite,
    unknown_tag,
    unknown_time_zone,
    worker_not_in_suite,
    wrong_derivation,
    wrong_number,
    wrong_source,
)
DATED_CHECKS = (expired, expires_soon)
"""The checks that look at a date."""
RECORDED_CHECKS = (pattern_matches_much, pattern_matches_nothing)
"""The checks that look at what waited in a recorded queue, where one is given."""

RULES: tuple[ModuleType, ...] = (*CHECKS, *DATED_CHECKS, *RECORDED_CHECKS)


def check_all(fleet: Fleet, today: date, recorded: "Recorded | None" = None) -> Iterator[Finding]:
    """Return what every rule says; `today` only ever makes warnings."""
    for check in CHECKS:
        yield from check.check(fleet)
    for dated in DATED_CHECKS:
        yield from dated.check(fleet, today)
    if recorded is not None:
        for compared in RECORDED_CHECKS:
            yield from compared.check(fleet, recorded, today)
