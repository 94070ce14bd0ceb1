"""What is said of a pool that fell back to the version before: it is judged by that one."""

from decimal import Decimal

from fleet.guard import guard
from fleet.model.facts import Worker, World
from fleet.model.images import ImageVersion
from fleet.model.orders import GivenApproval
from fleet.model.plan import Create, Plan
from fleet.planner.images import images_by_pool
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago, an_attempt
from tests.builders.budgeting import MACHINE, a_ledger, accounts

GUARDS = {"boot_failures": {"stop_after": 2, "of_last": 3, "fall_back": "previous-image"}}


def versions(*provided: tuple[str, ...]) -> tuple[ImageVersion, ...]:
    """Return a version for each set of tags, the first the oldest."""
    return tuple(
        ImageVersion(
            image="trixie", version=str(number), ids={"desk": f"trixie-{number}"}, provides=tags
        )
        for number, tags in enumerate(provided, start=1)
    )


def a_fleet_that_falls_back(**overrides: object) -> Fleet:
    pools = {"builders": a_pool(provider="desk", machine=MACHINE)}
    return a_sim_fleet(**({"guards": GUARDS, "pools": pools} | overrides))


def dead(*images: ImageVersion, **overrides: object) -> World:
    """Return a world in which the newest version did not come up in two boots."""
    newest = images[-1].ids["desk"]
    failed = (an_attempt(result="failed", at=ago(minutes=m), image=newest) for m in (40, 20))
    world = a_sim_world().altered(images=images, attempts=tuple(failed))
    return world.altered(**overrides)


def test_tags_of_pool_are_those_of_fallback_version() -> None:
    images = versions((), ("big",))

    assert images_by_pool(a_fleet_that_falls_back(), dead(*images)) == {"builders": images[:1]}


def test_failing_image_causes_no_contradiction_warning() -> None:
    fleet, images = a_fleet_that_falls_back(), versions((), ("worker:build-arch:s390x",))

    alive = reconcile(fleet, dead(*images, attempts=()))
    fallen = reconcile(fleet, dead(*images))

    assert [warning.rule for warning in alive.warnings] == ["contradicting-sources"]
    assert fallen.warnings == ()


def dead_but_asked(
    *images: ImageVersion, workers: tuple[Worker, ...] = (), asks: str = "big"
) -> World:
    """Return a world in which the newest version is dead, and a request asks for a tag."""
    world = a_sim_world(*workers, requests=(a_request(required=(asks,)),))
    return dead(*images, queues=world.queues, providers=world.providers, stacks=world.stacks)


def test_pool_reserves_no_idle_time_when_booted_version_is_on_demand() -> None:
    tags = {"big": {"on_demand": True}}
    pools = {"builders": a_pool(provider="desk", machine=MACHINE, budget={"per_hour": "9 EUR"})}
    fleet = a_fleet_that_falls_back(tags=tags, pools=pools)
    images = versions(("big",), ())
    world = dead_but_asked(*images, workers=(a_worker(),), asks="small")

    account, _ = accounts(fleet, world.altered(ledger=a_ledger()))

    assert account.reserved.quantize(Decimal("0.01")) == Decimal("0.33")


def test_approval_boots_the_stopped_version_until_it_is_used_up() -> None:
    fleet, images = a_fleet_that_falls_back(), versions((), ())
    order = an_approval("boot_failures")
    queues = a_sim_world(requests=(a_request(id="1"), a_request(id="2"))).queues
    world = dead(*images, queues=queues, orders=(order,))

    approved = guard(fleet, reconcile(fleet, world))
    (approval,) = approved.approvals
    used = guard(fleet, reconcile(fleet, world.altered(approved={approval.digest: 1})))

    assert booted(approved) == ["trixie-2"]
    assert approval.passes == tuple(each.worker for each in approved.actions)
    assert booted(used) == ["trixie-1"] * 2


def an_approval(name: str) -> GivenApproval:
    """Return an approval of one machine of builders, which ends in an hour."""
    terms = {"by": "ada", "at": ago(minutes=5), "until": ago(minutes=-60), "reason": "mended"}
    return GivenApproval.model_validate({"guard": name, "pool": "builders", "count": 1, **terms})


def booted(plan: Plan) -> list[str]:
    """Return the image of each machine that a plan creates."""
    return [each.inputs.image for each in plan.actions if isinstance(each, Create)]


def test_machine_that_needs_two_approvals_uses_both() -> None:
    fleet, images = a_fleet_that_falls_back(), versions((), ())
    orders = (an_approval("boot_failures"), an_approval("rival"))
    queues = a_sim_world(requests=(a_request(id="1"),)).queues
    rivalled = {name: each.altered(rivals=("theirs",)) for name, each in queues.items()}

    plan = guard(fleet, reconcile(fleet, dead(*images, queues=rivalled, orders=orders)))

    assert booted(plan) == ["trixie-2"]
    assert [len(each.passes) for each in plan.approvals] == [1, 1]
