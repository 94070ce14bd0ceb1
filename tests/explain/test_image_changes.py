"""Which images a change of fleet.yaml makes due, what a build of them took, what they replace."""

import pytest

from fleet.explain.changes import ImageChange, find_image_changes
from fleet.model.images import ImageVersion, Rental
from fleet.model.plan import PoolVerdict, Replaced
from fleet.planner.images import describe_rebuild
from fleet.schema.model import Fleet
from tests.builders import a_fleet, a_plan, a_pool, a_sim_fleet, a_sim_world
from tests.builders.sentences import tells

PLAN = a_plan(
    pools=(
        PoolVerdict(pool="builders", mode="apply", because="", busy=2, idle=1, starting=1),
        PoolVerdict(pool="empty", mode="apply", because=""),
    )
)


def a_fleet_of(**recipe: object) -> Fleet:
    declared = {"suite": "trixie", "architecture": "amd64"} | recipe
    pools = {
        name: a_pool(provider="desk", replace={"at_a_time": "20%"})
        for name in ("builders", "empty")
    }
    return a_sim_fleet(images={"trixie": declared}, pools=pools)


def change(*versions: ImageVersion, **recipe: object) -> ImageChange:
    head = a_fleet_of(packages=["ccache"], **recipe)
    (found,) = find_image_changes(a_fleet_of(), head, a_sim_world(images=versions), PLAN)
    return found


def rebuild(*versions: ImageVersion) -> str:
    return describe_rebuild(a_fleet(), versions, "trixie")


def timed(version: str, seconds: int | None, way: str, *rentals: Rental) -> ImageVersion:
    return ImageVersion(
        image="trixie", version=version, built_in=seconds, way=way, rentals=rentals
    )


def rented(kind: str, seconds: int) -> Rental:
    return Rental(provider="hetzner", type=kind, location="fsn1", seconds=seconds)


def test_changed_recipe_replaces_machines_of_its_pools() -> None:
    found = change()

    assert (found.image, found.change) == ("trixie", "recipe changed")
    assert found.replaces == (Replaced(pool="builders", machines=4, at_a_time=20),)


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ((), ("unknown", "no build")),
        (
            (timed("20261121T060000Z", 227, "disk"), timed("20261122T060000Z", None, "")),
            ("3m 47s", "computer", "no machine"),
        ),
        ((timed("20261121T060000Z", 60, "instance"),), ("1m", "machine", "cost", "unknown")),
    ],
)
def test_build_shows_only_known_figures(
    versions: tuple[ImageVersion, ...], said: tuple[str, ...]
) -> None:
    assert tells(change(*versions).build, *said)


@pytest.mark.parametrize(
    ("rentals", "cost"),
    [
        ((rented("cx23", 560),), "0.0096 EUR"),
        ((rented("cx23", 3700),), "0.0192 EUR"),
        ((rented("cx23", 560), rented("cx23", 400)), "0.0192 EUR"),
    ],
)
def test_rebuild_costs_the_hours_that_its_machines_are_billed(
    rentals: tuple[Rental, ...], cost: str
) -> None:
    said = rebuild(timed("20261121T060000Z", 560, "instance", *rentals))

    assert said.endswith(f"which costs {cost}")


@pytest.mark.parametrize("unknown", [rented("cx0", 60), rented("cx23", 60)])
def test_rebuild_cost_is_unknown_without_a_price(unknown: Rental) -> None:
    gone = unknown.altered(provider="gone") if unknown.type == "cx23" else unknown

    said = rebuild(timed("20261121T060000Z", 560, "instance", rented("cx23", 60), gone))

    assert tells(said, "unknown")


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({}, ("20%", "6h")),
        ({"promote": "tested"}, ("at once",)),
        ({"promote": "manual"}, ("fleet image promote trixie",)),
        ({"version": "20261121T060000Z"}, ("images.trixie.version", "20261121T060000Z")),
    ],
)
def test_image_change_shows_how_machines_get_new_version(
    recipe: dict[str, object], said: tuple[str, ...]
) -> None:
    assert tells(change(**recipe).promotion, *said)
