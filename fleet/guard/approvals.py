"""How far each approval is used up, and what it still lets pass.

An approval is known by the digest of all it says, so that an edited one is another one. It is
counted in machines, lets its guard pass for its pool only, and is inert once its day is over.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta

from fleet.model.facts import Unknown, World
from fleet.model.orders import GivenApproval
from fleet.model.plan import Action, ApprovalVerdict, GuardName, Plan, Release, Warning_
from fleet.model.values import digest
from fleet.schema.limits import Approval
from fleet.schema.model import Fleet

APPROVED_DAYS = 14
"""How long a suggested approval lasts: longer than validate warns before it expires."""


def judge_approvals(
    fleet: Fleet, world: World, pools: Collection[str]
) -> tuple[ApprovalVerdict, ...]:
    """Return the verdict on each approval, given by hand or in fleet.yaml.

    One written twice counts once.
    """
    verdicts: dict[str, ApprovalVerdict] = {}
    orders = () if isinstance(world.orders, Unknown) else world.orders
    for given in orders:
        if isinstance(given, GivenApproval) and given.until > world.time:
            verdict = _judge_given(given, world, pools)
            verdicts.setdefault(verdict.digest, verdict)
    for number, approval in enumerate(fleet.approvals):
        verdict = _judge(approval, number, world, pools)
        verdicts.setdefault(verdict.digest, verdict)
    return tuple(verdicts.values())


def approval_digest(approval: Approval) -> str:
    """Return the digest of all that an approval says."""
    return digest(approval.model_dump(mode="json"))


def _judge_given(given: GivenApproval, world: World, pools: Collection[str]) -> ApprovalVerdict:
    known = digest(given.model_dump(mode="json"))
    return ApprovalVerdict(
        digest=known,
        path=(),
        guard=given.guard,
        pool=given.pool,
        count=given.count,
        used=_used(known, world),
        reason=given.reason,
        expires=given.until.date(),
        by=given.given,
        inert=_why_inert(known, given, world, pools),
    )


def _used(known: str, world: World) -> int:
    return 0 if isinstance(world.approved, Unknown) else world.approved.get(known, 0)


def _why_inert(
    known: str, approval: Approval | GivenApproval, world: World, pools: Collection[str]
) -> str:
    """Return why an approval that has not expired lets nothing pass; empty where it may."""
    if isinstance(world.approved, Unknown):
        return f"its use is unknown: {world.approved.unknown}"
    if _used(known, world) >= approval.count:
        return "used up"
    if approval.pool not in pools:
        return f"no pool {approval.pool} in fleet.yaml or with machines"
    return ""


def _judge(
    approval: Approval, number: int, world: World, pools: Collection[str]
) -> ApprovalVerdict:
    known = approval_digest(approval)
    inert = _why_inert(known, approval, world, pools)
    if approval.expires < world.time.date():
        inert = f"expired on {approval.expires}"
    return ApprovalVerdict(
        digest=known,
        path=("approvals", number),
        guard=approval.guard,
        pool=approval.pool,
        count=approval.count,
        used=_used(known, world),
        reason=approval.reason,
        expires=approval.expires,
        inert=inert,
    )


def warn_of_approvals(approvals: Sequence[ApprovalVerdict]) -> Iterator[Warning_]:
    """Yield what to tidy up: approvals that let nothing pass any more, expired ones aside."""
    for each in approvals:
        if each.inert and not each.by and "expired" not in each.inert:
            message = (
                f"the approval of guard {each.guard} for pool {each.pool} (used {each.used} of "
                f"{each.count}) has no effect: {each.inert}"
            )
            yield Warning_(rule="inert-approval", message=message)


def approve_first(
    plan: Plan, guard: GuardName, pool: str, actions: Sequence[Action | Release]
) -> Mapping[str, str]:
    """Return the workers that approvals let pass, first to first, each with its approval."""
    passing: dict[str, str] = {}
    waiting = iter(actions)
    for approval in _for(plan, guard, pool):
        for _, action in zip(range(approval.left), waiting, strict=False):
            passing[action.worker] = approval.digest
    return passing


def left_for(plan: Plan, guard: GuardName, pool: str) -> int:
    """Return how many machines all approvals for a pool still let pass."""
    return sum(approval.left for approval in _for(plan, guard, pool))


def describe_approvals(plan: Plan, guard: GuardName, pool: str, now: int) -> str:
    """Return what approvals make of a refusal, as in `approvals: used 12 of 18, 3 more now`."""
    ours = [each for each in plan.approvals if (each.guard, each.pool) == (guard, pool)]
    if not ours:
        return ""
    used, count = sum(each.used for each in ours), sum(each.count for each in ours)
    more = f", {now} more now" if now else ""
    inert = "; ".join(sorted({each.inert for each in ours if each.inert}))
    return f"; approved: used {used} of {count}{more}{f' ({inert})' if inert else ''}"


def line_to_paste(guard: GuardName, pool: str, count: int, today: date) -> str:
    """Return the line under `approvals` that lets so many machines of a pool pass."""
    expires = today + timedelta(days=APPROVED_DAYS)
    return f'- {{guard: {guard}, pool: {pool}, count: {count}, reason: "WHY", expires: {expires}}}'


def command_to_type(guard: GuardName, pool: str, count: int) -> str:
    """Return the command that lets so many machines of a pool pass for a while."""
    return f'fleet approve {guard} --pool {pool} --count {count} --for 2h --reason "WHY"'


def _for(plan: Plan, guard: GuardName, pool: str) -> list[ApprovalVerdict]:
    """Return the approvals that may still let something pass, the first to expire first."""
    ours = [each for each in plan.approvals if (each.guard, each.pool) == (guard, pool)]
    return sorted((each for each in ours if each.left), key=lambda each: (each.expires, each.path))
