"""How figures are formatted."""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from fleet.model.facts import PlaceFacts
from fleet.model.plan import Optimum, Unserved
from fleet.schema.findings import some_of, yaml_key
from fleet.words import figures as words
from tests.builders import NOW, a_create, a_drain, a_plan, a_signature, ago
from tests.builders.sentences import tells


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (4800, "1 h 20 min"),
        (86400, "1 d"),
        (90000, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_duration_has_its_two_largest_units(seconds: int, said: str) -> None:
    assert words.duration(timedelta(seconds=seconds)) == said


def test_unknown_start_is_a_dash() -> None:
    assert words.since(None, NOW) == "-"


def test_since_is_relative_to_the_plan() -> None:
    assert words.since(ago(minutes=5), NOW) == "5 min"


def test_rates_have_decimal_places_of_the_finest() -> None:
    assert words.rates([Decimal("0.12"), Decimal("0.0119"), Decimal(3)]) == [
        "0.1200",
        "0.0119",
        "3.0000",
    ]


def test_rate_has_at_least_two_decimal_places() -> None:
    assert words.rate(Decimal("0.5000")) == "0.50"


def test_unchanged_cost_is_printed_once() -> None:
    assert words.before_after(Decimal("0.5"), Decimal("0.5"), "EUR") == "0.50 EUR/h"


def test_changed_cost_is_printed_before_and_after() -> None:
    assert words.before_after(Decimal("0.23"), Decimal("0.47"), "EUR") == "0.23 -> 0.47 EUR/h"


@pytest.mark.parametrize(("count", "said"), [(0, "0 pools"), (1, "1 pool"), (1200, "1,200 pools")])
def test_noun_agrees_with_its_count(count: int, said: str) -> None:
    assert words.many(count, "pool") == said


def test_short_list_is_printed_completely() -> None:
    assert some_of(["a", "b", "c"]) == "a, b, c"


def test_long_list_ends_with_number_of_omitted_names() -> None:
    text = some_of(["a", "b", "c", "d", "e"])

    assert tells(text, "a, b, c", "2")
    assert not tells(text, "d")


def test_single_omitted_name_is_printed() -> None:
    assert some_of(["a", "b", "c", "d"]) == "a, b, c, d"


def test_count_above_number_of_names_is_used() -> None:
    assert tells(some_of(["a"], total=7), "a", "6")


def test_count_without_names_is_only_a_count() -> None:
    assert some_of([], total=7) == "7 more"


def test_text_is_empty_without_names() -> None:
    assert some_of([]) == ""


def test_key_is_a_dotted_path() -> None:
    assert yaml_key(("pools", "builders", "workers", "max")) == "pools.builders.workers.max"


def test_key_quotes_odd_names_and_indexes_lists() -> None:
    assert yaml_key(("tags", "worker:class:big", "asked_by", 2)) == (
        'tags."worker:class:big".asked_by[2]'
    )


def test_plan_with_actions_counts_each_kind() -> None:
    text = words.changes(a_plan(actions=(a_create(), a_drain())))

    assert tells(text, "1", "create", "1", "drain", "0", "delete")


def test_quiet_plan_is_reported() -> None:
    assert words.changes(a_plan())
    assert figures(words.changes(a_plan())) == []


def test_withheld_actions_are_counted() -> None:
    assert words.withheld(a_plan(withheld=(a_create(), a_create()))) == "2 to create"


def test_waiting_requests_are_counted_with_served_ones() -> None:
    waiting = a_signature(requests=("debian/1", "debian/2", "debian/3"), count=3)
    unserved = Unserved(signature=waiting.id, requests=("debian/3",), count=1, because="no pool")

    plan = a_plan(signatures=(waiting,), unserved=(unserved,))

    assert figures(words.waiting(plan)) == ["3", "2"]
    assert words.waiting(plan.altered(unread=("debian",))).startswith("at least 3")
    assert words.waiting(a_plan()) == ""


def test_new_machines_are_optimal_when_cost_equals_the_bound() -> None:
    (cost,) = words.new_machines(a_plan(optimum=an_optimum()))

    assert figures(cost) == ["2.00"]
    assert tells(cost, "EUR", "cheapest")


@pytest.mark.parametrize("model", [None, "2.1"])
def test_cost_outside_of_the_model_is_not_optimal(model: str | None) -> None:
    (cost,) = words.new_machines(a_plan(optimum=an_optimum(model=model)))

    assert figures(cost) == ["2.00"]
    assert "cheapest" not in cost


def test_cost_text_has_gap_and_reason() -> None:
    optimum = an_optimum(bound=Decimal("1.9"), gap=0.05, because="the search ended")

    (cost,) = words.new_machines(a_plan(optimum=optimum))

    assert figures(cost) == ["2.00", "5.00"]
    assert "the search ended" in cost


def test_assumptions_and_exclusions_of_cost_have_own_lines() -> None:
    optimum = an_optimum(machines=3, withheld=12, assumed=3, unpriced=1)

    cost, assumed, excluded = words.new_machines(a_plan(optimum=optimum))

    assert [figures(each) for each in (cost, assumed, excluded)] == [
        ["3", "2.00"],
        ["1", "3", "0", "1"],
        ["12"],
    ]


def test_cost_is_omitted_without_machines_for_requests() -> None:
    assert list(words.new_machines(a_plan(optimum=None))) == []


def figures(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", text)


def an_optimum(**overrides: object) -> Optimum:
    defaults = {"cost": "2", "model": "2", "bound": "2", "relaxed": "1.5", "gap": 0.0}
    return Optimum.model_validate(defaults | overrides)


@pytest.mark.parametrize(
    ("minutes", "said"),
    [
        (0, ("Observed", "0s")),
        (20, ("Observed", "20m")),
        (21, ("Observed", "21m", "cadence", "10m")),
        (-10, ("Observed", "0s")),
        (-11, ("Observed", "11m", "future")),
    ],
)
def test_recorded_world_has_its_age(minutes: int, said: tuple[str, ...]) -> None:
    age = words.age(NOW, NOW + timedelta(minutes=minutes), 600)

    assert tells(age, *said)
    assert ("cadence" in age, "future" in age) == ("cadence" in said, "future" in said)


def _place(type_: str, **overrides: Any) -> PlaceFacts:  # noqa: ANN401 - values of the model
    asked = {"asks": ("extra",), "rule": "{match: a/chromium}"}
    return PlaceFacts(
        **{"pool": "powerful", "type": type_, "market": "spot", "start": NOW, **asked, **overrides}
    )


@pytest.mark.parametrize(
    ("places", "named"),
    [
        ((_place("ccx63"),), 1),
        ((_place("ccx63", is_late=True),), 0),
        ((_place("ccx63"), _place("ccx43", is_late=True)), 1),
        ((_place("ccx63", is_late=True), _place("ccx53", pool="other")), 1),
        ((_place("ccx63", asks=(), rule=""),), 0),
    ],
)
def test_no_rule_is_proposed_when_the_build_would_miss_its_deadline(
    places: tuple[PlaceFacts, ...], named: int
) -> None:
    assert len([*words.rules_to_allow(places)]) == named
