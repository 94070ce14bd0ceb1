"""Sentences about the actions that guards withhold or permit."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from fleet.model.plan import ApprovalVerdict, Cause
from fleet.schema.units import write_count
from fleet.words.sentence import Sentence

USED_UP = "used up"
_CAUSES: Mapping[Cause, str] = {
    Cause.CONFIG: "a config change",
    Cause.KNOWLEDGE: "lost data",
}


explain_observe_mode = Sentence[str, int](
    "pool {pool} has mode: observe: {count:action is} shown, not applied"
)
explain_freeze = Sentence[str, int]("{freeze}: {count:action is} withheld")
explain_no_registry = Sentence[str, int](
    "machines of pool {pool} cannot register: none of its queues issues worker tokens: "
    "{count:creation is} withheld"
)
explain_no_admin = Sentence[str, str, int](
    "queue {queue} has no `admin`, so workers of pool {pool} get no token: {count:creation is} "
    "withheld"
)


describe_throttle = Sentence[int, str, str | None, int, int, int](
    "{count} to {kind} in [pool {pool}][{pool:unless}the fleet] ({machines:machine}): {now} now, "
    "{later} in later runs"
)
describe_refused_change = Sentence[str, str]("REFUSED by {guards}: {because}")
explain_rivals = Sentence[Sequence[str], Sequence[str], int, str](
    "queue {queues:comma} creates machines for the same requests in its worker pools "
    "{worker_pools:comma}: {count:creation} of pool {pool} withheld"
)
explain_retries = Sentence[str, str, int](
    "pool {pool} tries again to boot its image{on_type}[; {later:creation is} withheld]"
)


def describe_causes(causes: Iterable[Cause]) -> str:
    """Join the causes of removals with "and"."""
    return " and ".join(_CAUSES[cause] for cause in sorted(causes))


def describe_removal(causes: str, pool: str | None, count: int, machines: int, limit: str) -> str:
    """State the share of machines that a cause would remove from a pool or (None) the fleet."""
    share = 100 * count / machines if machines else 0
    where = f"pool {pool}" if pool else "the fleet"
    return (
        f"{causes} would remove {count} of {write_count(machines, 'machine')} of {where} "
        f"({share:.0f}%); limit: {limit}"
    )


describe_cost_rise = Sentence[int, str, str | None, str](
    "{machines:machine} that config asks for would add {amount}/h in [pool {pool}]"
    "[{pool:unless}the fleet]; limit: {limit}"
)
explain_withheld = Sentence[str]("a guard withholds its machine: {reason}")
explain_unknown_use = Sentence[str]("its use is unknown: {reason}")
explain_missing_pool = Sentence[str]("no pool {pool} in fleet.yaml or with machines")
explain_expired = Sentence[date]("expired on {day}")


def describe_inert(approval: ApprovalVerdict) -> str:
    """State the usage of an approval, and why the approval has no effect."""
    return (
        f"the approval of guard {approval.guard} for pool {approval.pool} "
        f"(used {approval.used} of {approval.count}) has no effect: {approval.inert}"
    )


def describe_approvals(approvals: Sequence[ApprovalVerdict], now: int) -> str:
    """State how many actions the approvals of a pool have permitted, and permit now."""
    used, count = sum(each.used for each in approvals), sum(each.count for each in approvals)
    more = f", {now} more now" if now else ""
    inert = "; ".join(sorted({each.inert for each in approvals if each.inert}))
    return f"approved: used {used} of {count}{more}{f' ({inert})' if inert else ''}"
