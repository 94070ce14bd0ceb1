"""What pools offer: tags by pattern, and what the newest image's worker reported."""

import pytest

from fleet.model.images import ImageVersion
from fleet.tagrules.offers import offer_of_pool, offer_of_tags
from fleet.tagrules.sources import newest_version
from tests.builders import a_fleet, a_sim_fleet


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
def test_rule_for_a_prefix_applies_to_every_matching_tag(
    pattern: str, tag: str, *, meant: bool
) -> None:
    fleet = a_fleet(tags={pattern: {"exclusive": True, "on_demand": True}})

    offer = offer_of_tags(fleet, [tag])

    assert (tag in offer.exclusive, tag in offer.on_demand) == (meant, meant)


def a_version(number: str, **overrides: object) -> ImageVersion:
    defaults = {"image": "trixie", "version": number, "ids": {"desk": f"id-{number}"}}
    return ImageVersion.model_validate(defaults | overrides)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("2026.9", "2026.10"),
        ("2026.09", "2026.10"),
        ("9", "010"),
        ("1", "1.0"),
        ("a", "5"),
        ("1.a", "1.b"),
        ("1-a", "1.a"),
    ],
)
def test_newest_version_is_independent_of_order(older: str, newer: str) -> None:
    both = a_version(older), a_version(newer)

    assert newest_version(both, "trixie", "desk") == both[1]
    assert newest_version(both[::-1], "trixie", "desk") == both[1]


def test_unpublished_version_is_not_newest_of_provider() -> None:
    old, new = a_version("1"), a_version("2", ids={"other": "id-2"})

    assert newest_version((old, new), "trixie", "desk") == old
    assert newest_version((new,), "trixie", "desk") is None


def test_pool_provides_tags_of_newest_version_only() -> None:
    old = a_version("1", provides=("dropped",))
    new = a_version("2", provides=("added",))

    offer = offer_of_pool(a_sim_fleet(), "builders", (new, old))

    assert {"added", "dropped"} & offer.provides == {"added"}
