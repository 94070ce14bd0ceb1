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
    stated: list[tuple[Approval | GivenApproval, tuple[str | int, ...]]]
    stated = [(each, ()) for each in given]
    stated += ((each, ("approvals", number)) for number, each in enumerate(fleet.approvals))
    verdicts: dict[str, ApprovalVerdict] = {}
    for approval, path in stated:
        verdict = _judge(approval, path, world, pools)
        verdicts.setdefault(verdict.digest, verdict)
    return tuple(verdicts.values())


def approval_digest(approval: Approval | GivenApproval) -> str:
    """Return the digest of an approval's content, which identifies the approval."""
    return digest(approval.model_dump(mode="json"))


def _judge(
    approval: Approval | GivenApproval,
    path: tuple[str | int, ...],
    world: World,
    pools: Collection[str],
) -> ApprovalVerdict:
    known, used, inert = approval_digest(approval), 0, ""
    if isinstance(world.approved, Unknown):
        inert = words.explain_unknown_use(world.approved.unknown)
    elif (used := world.approved.get(known, 0)) >= approval.count:
        inert = words.USED_UP
    elif approval.pool not in pools:
        inert = words.explain_missing_pool(approval.pool)
    if isinstance(approval, GivenApproval):
        expires, by = approval.until.date(), approval.given
    else:
        expires, by = approval.expires, ""
        inert = words.explain_expired(expires) if expires < world.time.date() else inert
    return ApprovalVerdict(
        digest=known,
        path=path,
        guard=approval.guard,
        pool=approval.pool,
        count=approval.count,
        used=used,
        reason=approval.reason,
        expires=expires,
        by=by,
        inert=inert,
    )


def warn_of_approvals(approvals: Sequence[ApprovalVerdict], today: date) -> Iterator[Warning_]:
    """Warn about unexpired approvals in fleet.yaml that have no effect and can be removed."""
    for approval in approvals:
        if approval.inert and not approval.by and approval.expires >= today:
            yield Warning_(rule="inert-approval", message=words.describe_inert(approval))


def approve_first(
    plan: Plan, guard: str, pool: str, actions: Sequence[Action | Release]
) -> Mapping[str, str]:
    """Return the approval's digest per worker of the first actions that approvals pass.

    The first approval to expire is used first.
    """
    passing: dict[str, str] = {}
    waiting = iter(actions)
    ours = _approvals_of(plan, guard, pool)
    for approval in sorted(ours, key=lambda each: (each.expires, each.path)):
        for _, action in zip(range(approval.left), waiting, strict=False):
            passing[action.worker] = approval.digest
    return passing


def left_for(plan: Plan, guard: str, pool: str) -> int:
    """Return the number of machines that approvals for a guard and pool can still pass."""
    return sum(approval.left for approval in _approvals_of(plan, guard, pool))


def describe_approvals(plan: Plan, guard: str, pool: str, now: int) -> str:
    """Describe the used approvals: `approved: used 12 of 18, 3 more now`; empty without any."""
    ours = _approvals_of(plan, guard, pool)
    return words.describe_approvals(ours, now) if ours else ""


def line_to_paste(guard: GuardName, pool: str, count: int, today: date) -> str:
    """Return the line for `approvals` in fleet.yaml that lets `count` machines of a pool pass."""
    expires = today + timedelta(days=APPROVED_DAYS)
    return f'- {{guard: {guard}, pool: {pool}, count: {count}, reason: "WHY", expires: {expires}}}'


def command_to_type(guard: GuardName, pool: str, count: int) -> str:
    """Return the command that permits changes to `count` machines of a pool for two hours."""
    return f'fleet approve {guard} --pool {pool} --count {count} --for 2h --reason "WHY"'


def _approvals_of(plan: Plan, guard: str, pool: str) -> list[ApprovalVerdict]:
    return [each for each in plan.approvals if (each.guard, each.pool) == (guard, pool)]
