"""Compute the use of each approval, and the number of machines that the approval may still pass.

The digest of its content identifies an approval, so an edited approval is a new approval. An
approval passes a number of machines of one pool through one guard, and has an expiry date.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta

from fleet.model.facts import Unknown, World
from fleet.model.orders import GivenApproval
from fleet.model.plan import Action, ApprovalVerdict, GuardName, Plan, Release, Warning_
from fleet.model.values import digest
from fleet.schema.model import Approval, Fleet
from fleet.words import guards as words

APPROVED_DAYS = 14
"""Days until a suggested approval expires: `fleet validate` must not warn about it immediately."""


def judge_approvals(
    fleet: Fleet, world: World, pools: Collection[str]
) -> tuple[ApprovalVerdict, ...]:
    """Return the state of each approval, from the command line or fleet.yaml.

    Equal approvals count once. `pools` are the names of all known pools.
    """
    orders = () if isinstance(world.orders, Unknown) else world.orders
    given = [o for o in orders if isinstance(o, GivenApproval) and o.until > world.time]
    found = [_judge(each, (), world, pools) for each in given]
    found += (
        _judge(each, ("approvals", number), world, pools)
        for number, each in enumerate(fleet.approvals)
    )
    verdicts: dict[str, ApprovalVerdict] = {}
    for verdict in found:
        verdicts.setdefault(verdict.digest, verdict)
    return tuple(verdicts.values())


def approval_digest(approval: Approval) -> str:
    """Return the digest of an approval's content, which identifies the approval."""
    return digest(approval.model_dump(mode="json"))


def _count_used(known: str, world: World) -> int:
    return 0 if isinstance(world.approved, Unknown) else world.approved.get(known, 0)


def _explain_inert(
    known: str, approval: Approval | GivenApproval, world: World, pools: Collection[str]
) -> str:
    """Return why an unexpired approval has no effect; empty if it has an effect."""
    if isinstance(world.approved, Unknown):
        return words.explain_unknown_use(world.approved.unknown)
    if _count_used(known, world) >= approval.count:
        return words.USED_UP
    if approval.pool not in pools:
        return words.explain_missing_pool(approval.pool)
    return ""


def _judge(
    approval: Approval | GivenApproval,
    path: tuple[str | int, ...],
    world: World,
    pools: Collection[str],
) -> ApprovalVerdict:
    known = digest(approval.model_dump(mode="json"))
    inert, by = _explain_inert(known, approval, world, pools), ""
    if isinstance(approval, GivenApproval):
        expires, by = approval.until.date(), approval.given
    elif (expires := approval.expires) < world.time.date():
        inert = words.explain_expired(expires)
    return ApprovalVerdict(
        digest=known,
        path=path,
        guard=approval.guard,
        pool=approval.pool,
        count=approval.count,
        used=_count_used(known, world),
        reason=approval.reason,
        expires=expires,
        by=by,
        inert=inert,
    )


def warn_of_approvals(approvals: Sequence[ApprovalVerdict], today: date) -> Iterator[Warning_]:
    """Warn about unexpired approvals in fleet.yaml that have no effect and can be removed."""
    for approval in approvals:
        if approval.inert and not approval.by and approval.expires >= today:
            message = words.describe_inert(approval)
            yield Warning_(rule="inert-approval", message=message)


def approve_first(
    plan: Plan, guard: GuardName, pool: str, actions: Sequence[Action | Release]
) -> Mapping[str, str]:
    """Return the approval's digest per worker of the first actions that approvals pass."""
    passing: dict[str, str] = {}
    waiting = iter(actions)
    for approval in _active_approvals(plan, guard, pool):
        for _, action in zip(range(approval.left), waiting, strict=False):
            passing[action.worker] = approval.digest
    return passing


def left_for(plan: Plan, guard: GuardName, pool: str) -> int:
    """Return the number of machines that approvals for a guard and pool can still pass."""
    return sum(approval.left for approval in _active_approvals(plan, guard, pool))


def describe_approvals(plan: Plan, guard: GuardName, pool: str, now: int) -> str:
    """Describe the used approvals: `approved: used 12 of 18, 3 more now`; empty without any."""
    ours = [
        approval for approval in plan.approvals if (approval.guard, approval.pool) == (guard, pool)
    ]
    if not ours:
        return ""
    return words.describe_approvals(ours, now)


def line_to_paste(guard: GuardName, pool: str, count: int, today: date) -> str:
    """Return the line for `approvals` in fleet.yaml that lets `count` machines of a pool pass."""
    expires = today + timedelta(days=APPROVED_DAYS)
    return f'- {{guard: {guard}, pool: {pool}, count: {count}, reason: "WHY", expires: {expires}}}'


def command_to_type(guard: GuardName, pool: str, count: int) -> str:
    """Return the command that permits changes to `count` machines of a pool for two hours."""
    return f'fleet approve {guard} --pool {pool} --count {count} --for 2h --reason "WHY"'


def _active_approvals(plan: Plan, guard: GuardName, pool: str) -> list[ApprovalVerdict]:
    """Return the approvals that can still pass machines, the first to expire first."""
    ours = [
        approval for approval in plan.approvals if (approval.guard, approval.pool) == (guard, pool)
    ]
    return sorted(
        (approval for approval in ours if approval.left),
        key=lambda each: (each.expires, each.path),
    )
