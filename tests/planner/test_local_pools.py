"""A pool of machines on this computer is planned as any other, and costs nothing."""

from decimal import Decimal

from fleet.model.facts import WorkerInputs
from fleet.model.plan import Create
from fleet.model.prices import find_types, known_types
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet, Pool
from tests.builders import a_fleet, a_pool, a_reading, a_request, a_world

OWN = {"cores": 2, "memory": "4GiB"}


def a_local_fleet(
    machine: object = OWN, run: tuple[str, ...] = ("sleep", "infinity"), **provider: object
) -> Fleet:
    """Return a fleet whose pool `builders` is at a local provider."""
    pool = a_pool().model_dump(mode="json", exclude_unset=True) | {
        "provider": "here",
        "machine": machine,
    }
    here = {"kind": "local", "run": list(run)} | provider
    return a_fleet(providers={"here": here}, pools={"builders": pool})


def made_by(fleet: Fleet) -> WorkerInputs:
    """Return what the first machine is made from when one request waits."""
    world = a_world(
        queues={"debian": a_reading(a_request())},
        providers={"here": {"read_at": a_world().time}},
        stacks={},
    )
    (create,) = reconcile(fleet, world).actions
    assert isinstance(create, Create)
    assert create.cost == 0
    return create.inputs


def test_machine_settings_contain_its_command() -> None:
    inputs = made_by(a_local_fleet(run=("sh", "-c", "echo 'two words'", "{name}")))

    assert inputs.settings == {"run": """sh -c 'echo '"'"'two words'"'"'' '{name}'"""}
    assert (inputs.type, inputs.image) == ("own", "trixie")


def test_machine_digest_changes_with_its_command() -> None:
    digests = {made_by(a_local_fleet(run=("sleep", time))).labels["digest"] for time in "123"}

    assert len(digests) == 3


def test_local_type_has_configured_figures() -> None:
    types = {"small": {"cores": 2, "memory": "4GiB", "disk": "9GiB", "architecture": "arm64"}}
    fleet = a_local_fleet("small", types=types)

    pool = fleet.pools["builders"]
    assert isinstance(pool, Pool)
    (small,) = find_types(fleet, pool)

    assert known_types(fleet, "here") == ("small",)
    assert (small.cores, small.memory, small.disk) == (2, 4096, 9216)
    assert (small.price, small.architecture) == (Decimal(0), "arm64")


def test_price_stated_by_pool_is_used() -> None:
    fleet = a_local_fleet(OWN | {"price": "0.5 EUR/h"})

    pool = fleet.pools["builders"]
    assert isinstance(pool, Pool)

    assert [known.price for known in find_types(fleet, pool)] == [Decimal("0.5")]
