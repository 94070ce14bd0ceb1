"""What is wrong or unwise in a fleet.yaml: one function per rule, each with its page and cases."""

from collections.abc import Callable, Iterator
from datetime import date
from typing import TYPE_CHECKING

from fleet.checks.admin_without_read import admin_without_read
from fleet.checks.budget_counts_nothing import budget_counts_nothing
from fleet.checks.budget_without_limit import budget_without_limit
from fleet.checks.cadence_and_idle import cadence_and_idle
from fleet.checks.contradicting_sources import contradicting_sources
from fleet.checks.derivation_cycle import derivation_cycle
from fleet.checks.disk_above_type import disk_above_type
from fleet.checks.enforced_by_capacity_alone import enforced_by_capacity_alone
from fleet.checks.expired import expired
from fleet.checks.expires_soon import expires_soon
from fleet.checks.forbidden_tag import forbidden_tag
from fleet.checks.invalid_pattern import invalid_pattern
from fleet.checks.market_not_sold import market_not_sold
from fleet.checks.min_above_max import min_above_max
from fleet.checks.minimum_on_plain_tag import minimum_on_plain_tag
from fleet.checks.missing_price import missing_price
from fleet.checks.misspelt_task import misspelt_task
from fleet.checks.name_too_long import name_too_long
from fleet.checks.never_ready import never_ready
from fleet.checks.on_demand_pool_with_warm_machines import on_demand_pool_with_warm_machines
from fleet.checks.pattern_covered import pattern_covered
from fleet.checks.pattern_like_a_glob import pattern_like_a_glob
from fleet.checks.pattern_matches_much import pattern_matches_much
from fleet.checks.pattern_matches_nothing import pattern_matches_nothing
from fleet.checks.pattern_misses_dirs import pattern_misses_dirs
from fleet.checks.pattern_too_wide import pattern_too_wide
from fleet.checks.plain_tag_only import plain_tag_only
from fleet.checks.pool_name import pool_name
from fleet.checks.powerful_case_fails import powerful_case_fails
from fleet.checks.previously_still_there import previously_still_there
from fleet.checks.protection_by_workspace_tag import protection_by_workspace_tag
from fleet.checks.source_without_key import source_without_key
from fleet.checks.state_without_passphrase import state_without_passphrase
from fleet.checks.target_wait_below_boot import target_wait_below_boot
from fleet.checks.token_in_clear import token_in_clear
from fleet.checks.two_queues_give_work import two_queues_give_work
from fleet.checks.unknown_currency import unknown_currency
from fleet.checks.unknown_image import unknown_image
from fleet.checks.unknown_machine_type import unknown_machine_type
from fleet.checks.unknown_pool import unknown_pool
from fleet.checks.unknown_provider import unknown_provider
from fleet.checks.unknown_queue import unknown_queue
from fleet.checks.unknown_suite import unknown_suite
from fleet.checks.unknown_tag import unknown_tag
from fleet.checks.unknown_time_zone import unknown_time_zone
from fleet.checks.worker_not_in_suite import worker_not_in_suite
from fleet.checks.wrong_derivation import wrong_derivation
from fleet.checks.wrong_number import wrong_number
from fleet.checks.wrong_source import wrong_source
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
