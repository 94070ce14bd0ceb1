"""What could not be read counts as zero in no verdict: each says which of its figures are none."""

from fleet.model.facts import MachineState, Unknown
from fleet.model.plan import Plan, PoolVerdict
from fleet.model.values import UnknownFigure
from fleet.reconcile import reconcile
from tests.builders import (
    a_fleet,
    a_listing,
    a_machine,
    a_pool,
    a_reading,
    a_sim_fleet,
    a_stack,
    a_world,
    some_inputs,
)

SILENT = Unknown(unknown="no answer")
ONE = "debian-ci-builders-0001"


def pool_of(plan: Plan) -> PoolVerdict:
    return next(pool for pool in plan.pools if pool.pool == "builders")


def holding_one(**overrides: object) -> dict[str, object]:
    """Return a world with one machine of `builders`, seen by both witnesses, at hetzner."""
    stack = a_stack(workers=(some_inputs(name=ONE),), ids={ONE: "hcloud-1"})
    return {
        "providers": {"hetzner": a_listing(a_machine())},
        "stacks": {"builders": stack},
    } | overrides


def test_figures_without_stacks_are_unknown_until_a_machine_is_listed() -> None:
    fleet = a_sim_fleet()
    for machines, unknown in (((), ("machines", "workers", "cost")), ((a_machine(),), ())):
        listing = a_listing(*machines, workers=())
        plan = reconcile(fleet, a_world(providers={"desk": listing}, stacks=SILENT))

        assert (pool_of(plan).machines, pool_of(plan).not_known) == (len(machines), unknown)


def test_work_of_workers_is_unknown_without_registry() -> None:
    silent = a_reading().altered(workers=SILENT)
    absent = a_reading().altered(workers=None)

    for reading in (silent, absent):
        plan = reconcile(a_fleet(), a_world(**holding_one(queues={"debian": reading})))

        assert pool_of(plan).not_known == ("workers",)


def test_booting_machine_is_starting_without_registry() -> None:
    booting = a_listing(a_machine(state=MachineState.STARTING))
    absent = a_reading().altered(workers=None)
    world = a_world(**holding_one(queues={"debian": absent}, providers={"hetzner": booting}))

    assert pool_of(reconcile(a_fleet(), world)).not_known == ()


def test_cost_is_unknown_when_a_machine_has_no_price() -> None:
    strange = a_listing(a_machine(type="no-such-type"))
    plan = reconcile(a_fleet(), a_world(**holding_one(providers={"hetzner": strange})))

    (worker,) = plan.workers
    assert pool_of(plan).not_known == ("cost",)
    assert not worker.cost_known


def test_listed_machine_has_no_price_when_its_stack_is_unread() -> None:
    strange = a_listing(a_machine(type="no-such-type"))
    world = a_world(providers={"hetzner": strange}, stacks=SILENT)

    (worker,) = reconcile(a_fleet(), world).workers

    assert worker.cost == UnknownFigure(unknown="no price is known")


def test_static_workers_are_unknown_without_registry() -> None:
    silent = a_reading().altered(workers=SILENT)
    fleet = a_fleet(pools={"builders": {"static": ["builder-01"]}})

    heard = reconcile(fleet, a_world())
    unheard = reconcile(fleet, a_world(queues={"debian": silent}))

    assert pool_of(heard).not_known == ()
    assert pool_of(unheard).not_known == ("machines", "workers")


def test_empty_pool_is_known_without_registry() -> None:
    absent = a_reading().altered(workers=None)
    fleet = a_fleet(pools={"builders": a_pool()})

    assert pool_of(reconcile(fleet, a_world(queues={"debian": absent}))).not_known == ()
