"""What pools offer: tags by pattern, and what the newest image's worker reported."""

import pytest

from fleet.facts import ImageVersion
from fleet.plan import Create
from fleet.reconcile import reconcile
from fleet.tagrules import offer_of_pool, offer_of_tags
from tests.builders import a_fleet, a_pool, a_request, a_sim_fleet, a_sim_world


@pytest.mark.parametrize(
    ("pattern", "tag", "meant"),
    [
        ("worker:class:*", "worker:class:powerful", True),
        ("worker:class:*", "other:worker:class:powerful", False),
        ("*:big", "class:big", False),
        ("class:b?g", "class:big", False),
        ("class:[b]ig", "class:big", False),
        ("class:big", "class:big", True),
        ("class.big", "class:big", False),
    ],
)
def test_a_rule_holds_for_every_tag_that_its_pattern_means(
    pattern: str, tag: str, *, meant: bool
) -> None:
    fleet = a_fleet(tags={pattern: {"exclusive": True, "on_demand": True}})

    offer = offer_of_tags(fleet, [tag])

    assert (tag in offer.exclusive, tag in offer.on_demand) == (meant, meant)


def test_a_pool_on_demand_by_pattern_makes_nothing_for_others() -> None:
    fleet = a_sim_fleet(
        tags={"class:*": {"on_demand": True}},
        pools={"builders": a_pool(provider="desk", provides=["class:big"], spare=1)},
    )

    assert reconcile(fleet, a_sim_world(requests=(a_request(),))).is_quiet


def a_version(number: str, **overrides: object) -> ImageVersion:
    defaults = {"image": "trixie", "version": number, "ids": {"desk": f"id-{number}"}}
    return ImageVersion.model_validate(defaults | overrides)


def test_new_machines_boot_the_newest_version_and_numbers_count_as_numbers() -> None:
    versions = (a_version("2026.10"), a_version("2026.9"), a_version("2026.2"))

    plan = reconcile(a_sim_fleet(), a_sim_world(requests=(a_request(),), images=versions))

    assert isinstance(plan.actions[0], Create)
    assert plan.actions[0].inputs.image == "id-2026.10"


def test_a_pool_offers_what_the_newest_version_reported_and_nothing_older() -> None:
    old = a_version("1", provides=("dropped",))
    new = a_version("2", provides=("added",))

    offer = offer_of_pool(a_sim_fleet(), "builders", (new, old))

    assert {"added", "dropped"} & offer.provides == {"added"}
