"""SQL over Debusine's columns: values stay out of the text; what no column can hold is known."""

import json
from decimal import Decimal

import pytest

from contrib.debusine.sql import Sql, Terms, terms_of
from contrib.debusine.statements import (
    PoolOffer,
    TaskLists,
    count_waiting,
    requests_for_worker,
    workers_for_request,
)
from fleet.tagrules.offers import Ask, Offer
from tests.builders import a_fleet

HOSTILE = "'; DROP TABLE db_worker; -- %s {} \\"
TERMS = Terms(
    numeric=("mem",), exclusive=(HOSTILE,), shared=(HOSTILE,), prefixes=((HOSTILE, True),)
)


def statements(tag: str) -> list[Sql]:
    """Return every statement with this tag in every place."""
    tags = frozenset([tag])
    pool = PoolOffer(
        Offer(tags, tags, tags, numbers=((tag, Decimal(1)),)), TaskLists((tag,), (tag,))
    )
    return [
        requests_for_worker(pool, TERMS),
        workers_for_request(Ask(tags, tags, ((tag, Decimal(1)),)), tag, TERMS),
        count_waiting({tag: pool}, TERMS),
    ]


def test_sql_text_has_a_placeholder_per_value_and_no_value() -> None:
    made, hostile = statements("a"), [each.text for each in statements(HOSTILE)]

    assert hostile == [each.text for each in made]
    assert not any("DROP TABLE" in text for text in hostile)
    assert [each.text.count("%s") for each in made] == [len(each.values) for each in made]
    assert not any("%" in each.text.replace("%s", "") for each in made)
    one = PoolOffer(Offer(frozenset(["a"])))
    few, many = ({f"x{n}": one for n in range(count)} for count in (1, 100))
    assert count_waiting(few, TERMS).text == count_waiting(many, TERMS).text


@pytest.mark.parametrize("tag", ["a\0b", "\ud800"])
def test_request_matches_no_worker_when_its_tag_is_unstorable(tag: str) -> None:
    made = workers_for_request(Ask(frozenset([tag])), "noop", TERMS)

    assert "false" in made.text
    assert tag not in str(made.values)


def test_terms_of_a_fleet_have_deciding_rule_first() -> None:
    fleet = a_fleet(
        tags={
            "mem": {"kind": "number"},
            "worker:*": {"exclusive": True},
            "worker:team:*": {"exclusive": False},
            "alone": {"exclusive": True},
            "said": {"on_demand": True},
        }
    )

    assert terms_of(fleet) == Terms(
        numeric=("mem",),
        exclusive=("alone", "worker:*"),
        shared=("worker:team:*",),
        prefixes=(("worker:team:", False), ("worker:", True)),
    )


def test_pool_with_unstorable_tag_is_omitted_from_count() -> None:
    odd, plain = frozenset(["\0"]), frozenset(["a"])
    pools = {
        "exclusive": PoolOffer(Offer(plain, exclusive=odd)),
        "plain": PoolOffer(Offer(plain | odd)),
        "requiring": PoolOffer(Offer(plain, requires=odd)),
    }

    written = json.loads(str(count_waiting(pools, TERMS).values[0]))

    assert [(each["pool"], each["provides"]) for each in written] == [("plain", ["a"])]


def test_provided_tags_are_compared_only_when_a_pool_requires_some() -> None:
    bare, asking = Offer(frozenset("a")), Offer(frozenset("a"), requires=frozenset("b"))

    assert "r.scheduler_tags_provided" not in count_waiting({"x": PoolOffer(bare)}, TERMS).text
    assert "r.scheduler_tags_provided" in count_waiting({"x": PoolOffer(asking)}, TERMS).text
