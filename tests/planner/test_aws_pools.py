"""What is bought at AWS: spot first, on demand where there is none, nothing while nothing asks."""

from fleet.guard import guard
from fleet.model.facts import Attempt, AttemptResult, Base, Listing, World
from fleet.model.plan import Create, Plan
from fleet.planner.shared_stacks import parts_of
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_fleet, a_pool, a_reading, a_request, a_world

QUEUE = {
    "kind": "debusine",
    "url": "https://debusine.example.org",
    "scopes": ["debian"],
    "admin": ["debusine-admin"],
}


def at_aws() -> Fleet:
    """Return a fleet that buys at AWS, on the spot market where there is one."""
    machine = {"type": "c7a.8xlarge", "disk": "280GiB", "market": ["spot", "on-demand"]}
    return a_fleet(
        money={"currency": "USD"},
        providers={"amazon": {"kind": "aws", "region": "eu-central-1"}},
        queues={"debian": QUEUE},
        images={"trixie": {"existing": {"amazon": "ami-0a1b"}}},
        pools={"builders": a_pool(provider="amazon", machine=machine)},
    )


def a_laid_world(fleet: Fleet, **overrides: object) -> World:
    """Return a world in which one request waits and the base is there."""
    parts = parts_of(fleet, "amazon")
    base = Base(serial=1, parts=parts, ids={part.key: "lt-0a1b" for part in parts})
    queues = {"debian": a_reading(a_request(), workers=())}
    providers = {"amazon": Listing(read_at=NOW)}
    seen = {"bases": {"amazon": base}, "providers": providers, "queues": queues}
    return a_world(**(seen | overrides))


def tried(result: AttemptResult) -> Attempt:
    return Attempt(
        pool="builders",
        type="c7a.8xlarge",
        market="spot",
        worker="debian-ci-builders-0001",
        image="ami-0a1b",
        at=NOW,
        result=result,
    )


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


def bought(plan: Plan) -> list[str]:
    """Return the market of each machine that is made."""
    return [
        action.inputs.settings.get("market", "on-demand")
        for action in plan.actions
        if isinstance(action, Create)
    ]


def test_on_demand_is_created_when_spot_quota_is_used_up() -> None:
    fleet = at_aws()
    world = a_laid_world(fleet, attempts=(tried("quota"),))

    assert bought(planned(fleet, world)) == ["on-demand"]


def test_next_name_is_used_at_same_price_when_one_is_taken() -> None:
    fleet = at_aws()
    world = a_laid_world(fleet, attempts=(tried("name-taken"),))

    (create,) = planned(fleet, world).actions
    assert (create.worker, bought(planned(fleet, world))) == ("debian-ci-builders-0002", ["spot"])
