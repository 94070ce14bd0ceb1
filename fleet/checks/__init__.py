"""What is wrong or unwise in a fleet.yaml: one function per rule, each with its page and cases.

Begin with the table of rules, `CHECKS`; a theme is a file.
"""

from collections.abc import Callable, Iterator
from datetime import date
from typing import TYPE_CHECKING

from fleet.checks.limits import (
    budget_counts_nothing,
    budget_without_limit,
    expired,
    expires_soon,
    state_without_passphrase,
)
from fleet.checks.machines import (
    disk_above_type,
    market_not_sold,
    missing_price,
    old_prices,
    source_without_key,
    unknown_currency,
    unknown_image,
    unknown_machine_type,
    unknown_suite,
    worker_not_in_suite,
    wrong_source,
)
from fleet.checks.pools import (
    cadence_and_idle,
    min_above_max,
    name_too_long,
    never_ready,
    on_demand_pool_with_warm_machines,
    pool_name,
    previously_still_there,
    target_wait_below_boot,
    unknown_pool,
    unknown_provider,
    unknown_time_zone,
)
from fleet.checks.powerful import (
    invalid_pattern,
    pattern_covered,
    pattern_like_a_glob,
    pattern_matches_much,
    pattern_matches_nothing,
    pattern_misses_dirs,
    pattern_too_wide,
    powerful_case_fails,
)
from fleet.checks.queues import (
    admin_without_read,
    misspelt_task,
    token_in_clear,
    two_queues_give_work,
    unknown_queue,
)
from fleet.checks.tags import (
    contradicting_sources,
    derivation_cycle,
    enforced_by_capacity_alone,
    forbidden_tag,
    minimum_on_plain_tag,
    plain_tag_only,
    protection_by_workspace_tag,
    unknown_tag,
    wrong_derivation,
    wrong_number,
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
DATED_CHECKS = (expired, expires_soon, old_prices)
"""The checks that look at a date."""
RECORDED_CHECKS = (pattern_matches_much, pattern_matches_nothing)
"""The checks that look at what waited in a recorded queue, where one is given."""


def rule_of(check: Callable[..., Iterator[Finding]]) -> str:
    """Return the id of a rule: a rule is one function, called as its id is."""
    return check.__name__.replace("_", "-")


_ALL: tuple[Callable[..., Iterator[Finding]], ...] = (*CHECKS, *DATED_CHECKS, *RECORDED_CHECKS)
RULES = tuple(map(rule_of, _ALL))


def check_all(fleet: Fleet, today: date, recorded: "Recorded | None" = None) -> Iterator[Finding]:
    """Return what every rule says; `today` only ever makes warnings."""
    for check in CHECKS:
        yield from check(fleet)
    for dated in DATED_CHECKS:
        yield from dated(fleet, today)
    if recorded is not None:
        for compared in RECORDED_CHECKS:
            yield from compared(fleet, recorded, today)
