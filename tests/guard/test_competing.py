"""What a queue's own provisioner would make too is withheld, until a person says otherwise."""

from fleet.apply.run import competing_provisioners
from fleet.guard import guard
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_request, a_sim_fleet, a_sim_world
from tests.builders.explaining import explain_request
from tests.builders.sentences import tells

APPROVAL = {"guard": "rival", "pool": "builders", "reason": "a trial", "expires": NOW.date()}


def fleet_of(approved: int = 0, **pool: object) -> Fleet:
    approvals = [APPROVAL | {"count": approved}] if approved else []
    return a_sim_fleet(pools={"builders": a_pool(provider="desk", **pool)}, approvals=approvals)


def rivalled(count: int = 2) -> World:
    """Return a world whose queue makes machines for what waits by itself too."""
    world = a_sim_world(requests=tuple(a_request(id=str(number)) for number in range(count)))
    reading = world.queues["debian"].altered(rivals=("own-amd64",))
    return world.altered(queues={"debian": reading})


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


def test_machines_for_requests_of_a_rival_are_withheld() -> None:
    plan = planned(fleet_of(max=3), rivalled())

    (refused,) = plan.guards
    assert (plan.actions, len(plan.withheld), refused.result) == ((), 2, "refused")
    assert tells(refused.because, "debian", "own-amd64", "2", "builders")
    assert "debusine-admin worker_pool disable NAME" in refused.way_out
    assert refused.approve[0].startswith("- {guard: rival, pool: builders, count: 2,")
    assert [each.count for each in plan.unserved] == [2]
    assert plan.cost_after == 0


def test_spare_machine_is_created_when_a_rival_serves_its_queue() -> None:
    world = rivalled(count=0)
    plan = planned(fleet_of(max=3, spare=1), world)
    spare = plan.actions[0].altered(registry="debian")
    plan = plan.altered(actions=(spare,))

    assert "rival" not in {each.guard for each in guard(fleet_of(max=3, spare=1), plan).guards}
    assert competing_provisioners(world, plan) == ()


def test_approval_of_rival_guard_permits_its_count() -> None:
    plan = planned(fleet_of(approved=1, max=3), rivalled())

    assert (len(plan.actions), len(plan.withheld)) == (1, 1)
    assert tells(plan.guards[0].because, "approved", "0", "1", "1")
    assert plan.approvals[0].passes == (plan.actions[0].worker,)
    assert competing_provisioners(rivalled(), plan) == ()


def test_explain_names_remedy_of_guard_only() -> None:
    fleet, world = fleet_of(max=3), rivalled()

    told = explain_request(fleet, world, planned(fleet, world), "1")

    assert told is not None
    assert tells(told.headline, "debian/1", "guard")
    assert tells(told.next_steps[0], "guard", "rival")
    assert [each.path for each in told.reasons] == [("queues", "debian")]
    assert not any("workers.max" in fact for fact in told.facts)
