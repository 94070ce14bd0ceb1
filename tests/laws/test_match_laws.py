"""Laws of matching: the algebra of tag sets, and every form agrees with the specification."""

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contrib.debusine.expression import RULE, bind, holds, know_ask, know_offer
from fleet.tagrules.offers import Ask, Matcher, Nearness, Offer, find_mismatch, match, satisfies

TAGS = ("", "a", "b", "c", "arm64", "Ä", "ﬁ", "'; --", '"', "a b", "x" * 300)

tag_sets = st.frozensets(st.sampled_from(TAGS), max_size=4)
amounts = st.integers(-1, 40).map(lambda tenths: Decimal(tenths) / 10) | st.just(Decimal(10**12))
numbers = st.dictionaries(st.sampled_from(["disk", "mem"]), amounts).map(
    lambda found: tuple(sorted(found.items()))
)
asks = st.builds(Ask, required=tag_sets, provided=tag_sets, minimums=numbers)
offers = st.builds(
    lambda provides, requires, stated, share: Offer(
        provides=provides, requires=requires, exclusive=provides & share, numbers=stated
    ),
    tag_sets,
    tag_sets,
    numbers,
    tag_sets,
)


def both(first: Ask, second: Ask) -> Ask:
    """Return the ask of who needs both: everything required, every minimum."""
    highest = dict(first.minimums)
    for name, least in second.minimums:
        highest[name] = max(least, highest.get(name, least))
    return Ask(
        required=first.required | second.required,
        provided=first.provided | second.provided,
        minimums=tuple(sorted(highest.items())),
    )


@given(asks, offers, tag_sets, numbers)
def test_worker_with_more_provided_tags_loses_no_match(
    ask: Ask, offer: Offer, more: frozenset[str], larger: tuple[tuple[str, Decimal], ...]
) -> None:
    stated = dict(offer.numbers)
    grown = {name: max(number, stated.get(name, number)) for name, number in larger}
    richer = Offer(
        provides=offer.provides | more,
        requires=offer.requires,
        exclusive=offer.exclusive,
        numbers=tuple(sorted((stated | grown).items())),
    )

    assert satisfies(ask, richer) >= satisfies(ask, offer)


@given(asks, offers, tag_sets, numbers)
def test_stricter_request_gains_no_worker_without_requirements(
    ask: Ask, offer: Offer, more: frozenset[str], higher: tuple[tuple[str, Decimal], ...]
) -> None:
    open_to_all = Offer(offer.provides, offer.requires, numbers=offer.numbers)
    choosy = both(ask, Ask(required=more, minimums=higher))

    assert satisfies(choosy, open_to_all) <= satisfies(ask, open_to_all)


@given(asks, offers, tag_sets)
def test_stricter_request_gains_only_exclusive_workers(
    ask: Ask, offer: Offer, more: frozenset[str]
) -> None:
    gained = satisfies(both(ask, Ask(required=more)), offer) > satisfies(ask, offer)

    assert not gained or (offer.exclusive - ask.required) & more


@given(asks, offers, tag_sets)
def test_request_with_more_provided_tags_loses_no_match(
    ask: Ask, offer: Offer, more: frozenset[str]
) -> None:
    bringing = Ask(ask.required, ask.provided | more, ask.minimums)

    assert satisfies(bringing, offer) >= satisfies(ask, offer)


@given(asks, offers, tag_sets)
def test_worker_with_more_required_tags_gains_no_match(
    ask: Ask, offer: Offer, more: frozenset[str]
) -> None:
    choosy = Offer(offer.provides, offer.requires | more, offer.exclusive, numbers=offer.numbers)

    assert satisfies(ask, choosy) <= satisfies(ask, offer)


@given(asks, offers)
def test_mismatch_has_reasons_exactly_when_not_fitting(ask: Ask, offer: Offer) -> None:
    assert bool(find_mismatch(ask, offer)) != satisfies(ask, offer)


@given(asks, st.lists(offers, max_size=3))
@example(
    Ask(frozenset(), minimums=(("disk", Decimal(0)),)),
    [
        Offer(frozenset(), frozenset(), frozenset()),
        Offer(frozenset(), frozenset(), frozenset(), numbers=(("disk", Decimal(-1)),)),
    ],
)
def test_number_of_obstacles_equals_named_ones(ask: Ask, several: list[Offer]) -> None:
    known = {str(number): offer for number, offer in enumerate(several)}
    named = {key: find_mismatch(ask, offer) for key, offer in known.items()}

    counted = list(Nearness(known).count_mismatches(ask))
    assert [(wrong, key) for wrong, _, key in counted] == [
        (len(n.missing) + len(n.not_brought) + len(n.not_asked) + len(n.too_small), key)
        for key, n in named.items()
    ]
    assert all((lack > 0) == bool(named[key].too_small) for _, lack, key in counted)


@given(asks, offers)
def test_rule_as_value_equals_specification(ask: Ask, offer: Offer) -> None:
    for_workers, for_requests = bind(RULE, know_ask(ask)), bind(RULE, know_offer(offer))

    assert holds(bind(for_workers, know_offer(offer))) == satisfies(ask, offer)
    assert holds(bind(for_requests, know_ask(ask))) == satisfies(ask, offer)


def test_rule_with_one_unbound_side_cannot_be_evaluated() -> None:
    with pytest.raises(TypeError, match="not written out"):
        holds(bind(RULE, know_ask(Ask(frozenset(["a"])))))


@given(st.lists(asks, max_size=6), st.dictionaries(st.text("pq", max_size=3), offers))
def test_bulk_matching_equals_specification(wanted: list[Ask], pools: dict[str, Offer]) -> None:
    assert match(wanted, pools) == {
        ask: tuple(key for key in sorted(pools) if satisfies(ask, pools[key])) for ask in wanted
    }


@given(st.lists(asks, max_size=6), st.dictionaries(st.text("pq", max_size=3), offers))
def test_matcher_result_is_independent_of_earlier_asks(
    wanted: list[Ask], pools: dict[str, Offer]
) -> None:
    used = Matcher(pools)
    for ask in reversed(wanted):
        used.fitting(ask)

    assert [used.fitting(ask) for ask in wanted] == [Matcher(pools).fitting(a) for a in wanted]
