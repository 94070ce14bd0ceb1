"""Make actions for guards to judge, and tell what they said."""

from datetime import date

from fleet.model.plan import ApprovalVerdict, Cause, Plan
from fleet.schema.model import Fleet
from tests.builders import a_create, a_drain, a_sim_fleet


def creates(count: int, pool: str = "builders", **overrides: object) -> tuple[object, ...]:
    """Return so many creations in one pool."""
    return tuple(
        a_create(pool=pool, worker=f"debian-ci-{pool}-{n}", **overrides) for n in range(count)
    )


def drains(
    count: int, cause: Cause, pool: str = "builders", **overrides: object
) -> tuple[object, ...]:
    """Return so many drains in one pool."""
    return tuple(
        a_drain(pool=pool, worker=f"{pool}-{n}", cause=cause, **overrides) for n in range(count)
    )


def an_approval(pool: str, guard: str, left: int) -> ApprovalVerdict:
    """Return the verdict on an approval that lets so many machines of a pool pass."""
    return ApprovalVerdict.model_validate(
        {
            "guard": guard,
            "pool": pool,
            "count": left,
            "used": 0,
            "reason": "move",
            "expires": date(2026, 12, 1),
            "digest": f"{guard}-{pool}",
            "path": ("approvals", 0),
        }
    )


def with_guards(**guards: object) -> Fleet:
    """Return a simulated fleet with these guards."""
    return a_sim_fleet(guards=guards)


def said(plan: Plan) -> list[tuple[str, str | None, str]]:
    """Return what each guard said, and of which pool."""
    return [(result.guard, result.pool, result.result) for result in plan.guards]
