"""What is wrong or unwise in a fleet.yaml: one function per rule, each with its page and cases.

Begin with the table of rules, `CHECKS`; a theme is a file.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from fleet.checks import limits, machines, pools, powerful, queues, shared, tags, teams
from fleet.schema.findings import Finding
from fleet.schema.model import Fleet

if TYPE_CHECKING:
    from fleet.tagrules.names import Recorded

CHECKS = (
    queues.admin_without_read,
    limits.budget_counts_nothing,
    limits.budget_without_limit,
    pools.cadence_and_idle,
    machines.claimed_tag_not_enabled,
    tags.contradicting_sources,
    tags.derivation_cycle,
    machines.disk_above_type,
    tags.enforced_by_capacity_alone,
    tags.forbidden_tag,
    powerful.invalid_pattern,
    machines.market_not_sold,
    machines.missing_price,
    limits.min_above_budget,
    pools.min_above_max,
    tags.minimum_on_plain_tag,
    queues.misspelt_task,
    pools.name_too_long,
    pools.pool_name,
    pools.never_ready,
    pools.on_demand_pool_with_warm_machines,
    powerful.pattern_covered,
    powerful.pattern_like_a_glob,
    powerful.pattern_misses_dirs,
    powerful.pattern_too_wide,
    powerful.pattern_with_white_space,
    tags.plain_tag_only,
    powerful.powerful_case_fails,
    pools.previously_still_there,
    tags.protection_by_workspace_tag,
    pools.provider_without_baking,
    machines.source_without_key,
    limits.state_without_passphrase,
    pools.target_wait_below_boot,
    queues.token_in_clear,
    queues.two_queues_give_work,
    machines.unknown_currency,
    machines.unknown_image,
    machines.unknown_machine_type,
    pools.unknown_pool,
    pools.unknown_provider,
    queues.unknown_queue,
    machines.unknown_suite,
    tags.unknown_tag,
    teams.unknown_team,
    pools.unknown_time_zone,
    shared.unusable_shared_part,
    machines.worker_not_in_suite,
    machines.worker_too_old,
    tags.wrong_derivation,
    tags.wrong_number,
    machines.wrong_source,
)
DATED_CHECKS = (limits.expired, limits.expires_soon, machines.old_prices)
"""The checks that look at a date."""
RECORDED_CHECKS = (powerful.pattern_matches_much, powerful.pattern_matches_nothing)
"""The checks that look at what waited in a recorded queue, where one is given."""


def rule_of(check: Callable[..., Iterator[Finding]]) -> str:
    """Return the id of a rule: a rule is one function, called as its id is."""
    return check.__name__.replace("_", "-")


def check_all(fleet: Fleet, today: date, recorded: "Recorded | None" = None) -> Iterator[Finding]:
    """Return what every rule says; `today` only ever makes warnings."""
    for check in CHECKS:
        yield from _named(check, check(fleet))
    for dated in DATED_CHECKS:
        yield from _named(dated, dated(fleet, today))
    if recorded is not None:
        for compared in RECORDED_CHECKS:
            yield from _named(compared, compared(fleet, recorded, today))


def _named(
    check: Callable[..., Iterator[Finding]], findings: Iterator[Finding]
) -> Iterator[Finding]:
    return (replace(each, rule=rule_of(check)) for each in findings)
