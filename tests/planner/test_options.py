"""In how many ways a pool's machines can be made: types, markets, prices, and the image booted."""

from decimal import Decimal

import pytest

from fleet.model.facts import Attempt
from fleet.model.images import ImageVersion
from fleet.model.plan import Create, Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.tagrules.offers import offer_of_pool
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago, an_attempt
from tests.builders.deciding import with_machines
from tests.builders.sentences import tells

SMALL = {"cores": 4, "memory": "16GiB", "disk": "80GiB", "price": "0.05 EUR/h"}
BIG = {"cores": 8, "memory": "32GiB", "disk": "40GiB", "price": "0.09 EUR/h", "spot": "0.02 EUR/h"}
ANY = {"type": ["small", "big"], "market": ["spot", "on-demand"]}
STOP = {"boot_failures": {"stop_after": 3, "of_last": 5}}
FALL_BACK = {"boot_failures": {"stop_after": 3, "of_last": 5, "fall_back": "previous-image"}}


def desk(machine: object = ANY, **overrides: object) -> Fleet:
    """Return a fleet whose provider sells `small` on demand, and `big` on both markets."""
    provider = {"kind": "sim", "types": {"small": SMALL, "big": BIG}}
    pools = {"builders": a_pool(provider="desk", machine=machine)}
    return a_sim_fleet(**({"providers": {"desk": provider}, "pools": pools} | overrides))


def plan_after(fleet: Fleet, *attempts: Attempt, **world: object) -> Plan:
    """Return the plan for one waiting request after these tries."""
    seen = a_sim_world(requests=(a_request(),)).altered(**world)
    return reconcile(fleet, seen.altered(attempts=attempts))


def made(plan: Plan) -> list[tuple[str, str, Decimal]]:
    """Return type, market and price of what a plan makes."""
    return [
        (each.inputs.type, each.inputs.settings.get("market", "on-demand"), each.cost)
        for each in plan.actions
        if isinstance(each, Create)
    ]


def booted(plan: Plan) -> list[str]:
    """Return the images of what a plan makes."""
    return [each.inputs.image for each in plan.actions if isinstance(each, Create)]


def why(plan: Plan) -> str:
    """Return why the pool has as many machines as it has."""
    return next(verdict.because for verdict in plan.pools if verdict.pool == "builders")


def out(kind: str, market: str = "on-demand", *, minutes: float = 1) -> Attempt:
    return an_attempt(type=kind, market=market, result="out-of-stock", at=ago(minutes=minutes))


def test_next_run_uses_another_option_when_one_exists() -> None:
    cadence, everything = 10, [("big", "spot"), ("big", "on-demand"), ("small", "on-demand")]
    all_out = [out(*way, minutes=cadence) for way in everything]

    other = plan_after(desk(), out("big", "spot", minutes=cadence))

    assert made(other) == [("small", "on-demand", Decimal("0.05"))]
    assert made(plan_after(desk(), *all_out)) == [("big", "spot", Decimal("0.02"))]
    assert made(plan_after(desk(), out("big", "spot", minutes=1.5 * cadence))) == [
        ("big", "spot", Decimal("0.02"))
    ]


def test_pool_with_all_options_closed_names_each_reason() -> None:
    plan = plan_after(desk({"type": ["small", "big"]}), out("big"), out("small"))

    assert made(plan) == []
    assert tells(why(plan), "desk", "small", "in 1 run")
    assert tells(why(plan), "desk", "big", "in 1 run")


def test_type_without_spot_price_is_not_created_on_spot_market() -> None:
    plan = plan_after(desk({"type": "small", "market": ["spot"]}))

    assert made(plan) == []
    assert tells(why(plan), "spot", "small", "desk")


def test_on_demand_machine_is_not_outdated_when_pool_adds_spot() -> None:
    def digest(machine: object) -> str:
        action = plan_after(desk(machine)).actions[0]
        assert isinstance(action, Create)
        return action.inputs.labels["digest"]

    world = with_machines(a_sim_world(a_worker()), digest=digest("small"), type="small")

    plan = reconcile(desk(), world)

    assert not any(verdict.outdated for verdict in plan.workers)
    assert digest({"type": "big", "market": ["spot"]}) != digest("big")


OWN = {"cores": 8, "memory": "32GiB", "disk": "140GiB", "price": "0.22 EUR/h"}
COMMANDS = {"kind": "hooks", "new": ["new"], "delete": ["delete"], "list": ["list"]}


@pytest.mark.parametrize(("swap", "told"), [({}, {}), ({"swap": "4GiB"}, {"swap_mib": "4096"})])
def test_own_commands_receive_swap_when_configured(
    swap: dict[str, str], told: dict[str, str]
) -> None:
    """Else what was made before they were told of it would be outdated, and lack nothing."""
    plan = plan_after(desk(OWN | swap, providers={"desk": COMMANDS}))

    (action,) = plan.actions
    assert isinstance(action, Create)
    figures = {"cores": "8", "memory_mib": "32768", "disk_mib": "143360"}
    assert action.inputs.settings == figures | told


def test_pool_provides_minimum_of_its_types() -> None:
    tags = {
        "cores": {"kind": "number"},
        "memory_gib": {"kind": "number"},
        "disk_gib": {"kind": "number"},
    }
    offer = offer_of_pool(desk(tags=tags), "builders", ())

    assert dict(offer.numbers) == {"cores": 4, "memory_gib": 16, "disk_gib": 40}


def test_pool_provides_architectures_that_all_its_types_have() -> None:
    arm = SMALL | {"architecture": "arm64"}
    provider = {"kind": "sim", "types": {"small": SMALL, "arm": arm}}
    fleet = desk({"type": ["small", "arm"]}, providers={"desk": provider})

    offer = offer_of_pool(fleet, "builders", ())

    assert not [tag for tag in offer.provides if tag.startswith("worker:build-arch:")]


# images that do not come up


def versions(*names: str) -> tuple[ImageVersion, ...]:
    return tuple(
        ImageVersion(image="trixie", version=name, ids={"desk": f"trixie-{name}"})
        for name in names
    )


def boots(results: str, image: str = "trixie-2") -> list[Attempt]:
    """Return one boot of an image for each word, an hour ago and earlier."""
    return [
        an_attempt(result=word, image=image, type="small", at=ago(minutes=60 + number))
        for number, word in enumerate(results.split())
    ]


PUBLISHED = versions("1", "2")
DEAD = boots("failed failed failed")


LATELY_FAILED = "registered registered registered failed failed failed"
WIDE = {"boot_failures": {"stop_after": 50, "of_last": 50}}


@pytest.mark.parametrize(
    ("guards", "tries", "images", "found"),
    [
        pytest.param(STOP, DEAD, "1 2 3", ["trixie-3"], id="a new version after a failing one"),
        pytest.param(STOP, boots("failed failed"), "1 2", ["trixie-2"], id="two failed boots"),
        pytest.param(
            *(STOP, boots("registered registered failed failed"), "1 2", ["trixie-2"]),
            id="most boots succeed",
        ),
        pytest.param(STOP, boots(LATELY_FAILED), "1 2", ["trixie-2"], id="the latest boots count"),
        pytest.param(
            *(STOP, [each.altered(at=ago(hours=24)) for each in DEAD], "1 2", ["trixie-2"]),
            id="after a day",
        ),
        pytest.param({}, DEAD, "1 2", [], id="the default guard"),
        pytest.param(WIDE, DEAD, "1 2", ["trixie-2"], id="a permissive guard"),
        pytest.param(
            *(FALL_BACK, [*DEAD, *boots("failed failed failed", "trixie-1")], "0 1 2"),
            ["trixie-0"],
            id="the version before failed too",
        ),
    ],
)
def test_image_is_booted_unless_its_boots_fail(
    guards: dict[str, object], tries: list[Attempt], images: str, found: list[str]
) -> None:
    fleet = desk("small", guards=guards)

    assert booted(plan_after(fleet, *tries, images=versions(*images.split()))) == found


def test_failing_existing_image_stops_its_pool() -> None:
    images = {"trixie": {"existing": {"desk": "snapshot-7"}}}
    tries = boots("failed failed failed", "snapshot-7")

    plan = plan_after(desk("small", guards=FALL_BACK, images=images), *tries)

    assert made(plan) == []
    assert tells(why(plan), "trixie", "3", "3")


def test_machine_of_failing_version_is_not_outdated() -> None:
    newest = plan_after(desk("small"), images=PUBLISHED).actions[0]
    assert isinstance(newest, Create)
    world = a_sim_world(a_worker()).altered(attempts=tuple(DEAD), images=PUBLISHED)
    current = with_machines(world, digest=newest.inputs.labels["digest"], type="small")

    plan = reconcile(desk("small", guards=FALL_BACK), current)

    assert not any(verdict.outdated for verdict in plan.workers)


# machines that never registered
