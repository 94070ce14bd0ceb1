"""The rules of `fleet validate`: one function per rule, each with a page and test cases.

Start with `CHECKS`, the table of rules; each file has the rules of one theme.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from fleet.checks import limits, machines, pools, powerful, tags
from fleet.schema.findings import Finding, Path
from fleet.schema.model import Fleet

if TYPE_CHECKING:
    from fleet.tagrules.names import RecordedNames

CHECKS = (
    pools.admin_without_read,
    limits.budget_counts_nothing,
    limits.budget_without_limit,
    pools.cadence_and_idle,
    pools.cadence_and_deadline,
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
    pools.misspelt_task,
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
    pools.token_in_clear,
    pools.two_queues_give_work,
    machines.unknown_architecture,
    machines.unknown_currency,
    machines.unknown_image,
    machines.unknown_machine_type,
    pools.unknown_pool,
    pools.unknown_provider,
    pools.unknown_queue,
    machines.unknown_suite,
    tags.unknown_tag,
    pools.unknown_team,
    pools.unknown_time_zone,
    machines.unusable_shared_part,
    machines.worker_not_in_suite,
    machines.worker_too_old,
    tags.wrong_derivation,
    tags.wrong_number,
    machines.wrong_source,
)
DATED_CHECKS = (limits.expired, limits.expires_soon, machines.old_prices)
"""Checks whose result depends on the date."""
RECORDED_CHECKS = (powerful.pattern_matches_much, powerful.pattern_matches_nothing)
"""Checks of the requests in a recorded queue, which run only if a recording is given."""

PLANNED_CHECKS = (limits.budget_below_one_build,)
"""Checks of the plan of a recorded world, which run only if fleet.yaml has no error."""


def rule_of(check: Callable[..., Iterator[Finding]]) -> str:
    """Return the id of a rule: the name of its function, with dashes for underscores."""
    return check.__name__.replace("_", "-")


def check_all(
    fleet: Fleet, today: date, recorded: "RecordedNames | None" = None
) -> Iterator[Finding]:
    """Yield the findings of all rules; no error depends on the date, only warnings do."""
    for check in CHECKS:
        yield from _add_rule_id(check, check(fleet))
    for dated in DATED_CHECKS:
        yield from _add_rule_id(dated, dated(fleet, today))
    if recorded is not None:
        for compared in RECORDED_CHECKS:
            yield from _add_rule_id(compared, compared(fleet, recorded, today))


def check_planned(needs: Mapping[Path, limits.BudgetNeed]) -> Iterator[Finding]:
    """Yield the findings of rules about the plan of a recorded world."""
    for check in PLANNED_CHECKS:
        yield from _add_rule_id(check, check(needs))


def _add_rule_id(
    check: Callable[..., Iterator[Finding]], findings: Iterator[Finding]
) -> Iterator[Finding]:
    return (replace(each, rule=rule_of(check)) for each in findings)
