"""Laws of tags: matching is monotone, permissions never widen by rules for others, and so on."""

from datetime import date

from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.model.facts import Request, TaskHistory
from fleet.schema.model import Fleet
from fleet.tagrules.derive import NOTHING, QueueContext, derive, find_cycle
from fleet.tagrules.offers import Ask, Offer, satisfies
from fleet.tagrules.requests import Judge
from fleet.tagrules.vocabulary import read_minimums
from tests.builders import a_fleet, a_request
from tests.laws.test_match_laws import offers

TODAY = date(2026, 11, 21)
TAGS = ("a", "b", "b:c", "b:d", "e")
tag_sets = st.frozensets(st.sampled_from(TAGS))
words = st.sampled_from(("user", "task", "rules", "tickets", "system"))
names = st.fixed_dictionaries(
    {}, optional={"users": st.just(["alice"]), "groups": st.just(["kernel"])}
)
askers = st.lists(words | names, max_size=3)
sources = st.sampled_from(("user", "task", "ticket", "system"))
patterns = st.sampled_from((*TAGS, "b:*", "*"))
rules = st.one_of(
    st.fixed_dictionaries({"tag": patterns, "ask": st.sampled_from((*TAGS, "e:{value}"))}),
    st.fixed_dictionaries({"from": st.just("arch"), "ask": st.sampled_from(("b:{value}", "a"))}),
    st.fixed_dictionaries({"ask": st.sampled_from(TAGS)}),
    st.fixed_dictionaries({"from": st.just("arch"), "ask": st.just("cores>=4")}),
    st.fixed_dictionaries({"tag": st.just("memory_gib>=*"), "ask": st.just("cores>={value}")}),
    st.builds(
        lambda name, runs: {
            "history": {"of": "memory", "min_runs": runs},
            "ask": name + ">={value}",
        },
        st.sampled_from(("memory_gib", "cores")),
        st.integers(1, 3),
    ),
)
HISTORY = {("sbuild", "hello"): (TaskHistory(task="sbuild", package="hello", memory_mib=(9, 1)),)}


@st.composite
def requests(draw: st.DrawFn) -> Request:
    required = draw(tag_sets | st.just(frozenset({"memory_gib>=64"})))
    return a_request(
        required=sorted(required),
        asked={tag: draw(sources) for tag in sorted(required)},
        requester=draw(st.sampled_from(("alice", "bob"))),
        groups=draw(st.sampled_from(((), ("kernel",)))),
        task_data=draw(st.sampled_from(({}, {"arch": "c"}, {"arch": "d"}))),
        package=draw(st.sampled_from((None, "hello", "linux"))),
    )


def counted(fleet: Fleet, request: Request) -> frozenset[str]:
    return Judge(fleet, {}, TODAY).ask_of(request, NOTHING).ask.required


@given(offers)
def test_empty_ask_fits_each_offer_without_requirements(offer: Offer) -> None:
    assert satisfies(Ask(frozenset()), offer) == (not offer.requires and not offer.exclusive)


@given(st.lists(st.sampled_from((*TAGS, "cores>=4", "cores>=8", "cores>=nan"))))
def test_minimums_ignore_order_and_repeats_of_tags(tags: list[str]) -> None:
    once = read_minimums(tags, ["cores"])

    assert read_minimums([*reversed(tags), *tags], ["cores"]) == once


@given(*[st.lists(st.sampled_from((*TAGS, "cores>=4", "cores>=8")))] * 3)
def test_combined_requirements_are_independent_of_grouping(
    first: list[str], second: list[str], third: list[str]
) -> None:
    def both(one: list[str], other: list[str]) -> list[str]:
        plain, minimums = read_minimums([*one, *other], ["cores"])
        return [*sorted(plain), *(f"{name}>={least:f}" for name, least in minimums)]

    assert both(both(first, second), third) == both(first, both(second, third))
    assert both(first, second) == both(second, first)
    assert both(first, first) == both(first, [])


@given(askers, requests())
def test_permissions_are_never_widened_by_rules_for_others(
    base: list[object], request_: Request
) -> None:
    somebody_else: list[object] = [{"users": ["carol"]}, {"groups": ["toolchain"]}]

    before = a_fleet(tags={"*": {"asked_by": base}})
    after = a_fleet(tags={"*": {"asked_by": [*base, *somebody_else]}})

    assert counted(after, request_) == counted(before, request_)


@given(askers, requests(), st.sampled_from(("a", "b", "b:*", "b:c")))
def test_permissions_stay_when_narrower_rule_omits_askers(
    base: list[object], request_: Request, name: str
) -> None:
    before = a_fleet(tags={"*": {"asked_by": base}})
    after = a_fleet(tags={"*": {"asked_by": base}, name: {"on_demand": True}})

    assert counted(after, request_) == counted(before, request_)


@given(requests(), askers)
def test_each_requested_tag_counts_or_is_refused(request_: Request, base: list[object]) -> None:
    fleet = a_fleet(tags={"*": {"asked_by": base}})

    found = Judge(fleet, {}, TODAY).ask_of(request_, NOTHING)

    refused = {refusal.tag for refusal in found.refused}
    assert found.ask.required | refused == set(request_.required)
    assert not found.ask.required & refused
    assert {origin.tag for origin in found.origins} == found.ask.required


@given(
    base=askers,
    chosen=st.lists(rules, max_size=3),
    many=st.lists(requests(), max_size=6),
    stored=st.booleans(),
)
def test_shared_evaluation_of_equal_requests_equals_separate_ones(
    base: list[object], chosen: list[object], many: list[Request], *, stored: bool
) -> None:
    fleet = a_fleet(tags={"*": {"asked_by": base}}, derive=chosen)
    judge, told = Judge(fleet, {}, TODAY), QueueContext(stored=stored, history=HISTORY)

    together = [judge.ask_of_alike(each, told) for each in many]

    assert together == [judge.ask_of(each, told) for each in many]


@given(st.lists(rules, max_size=4), requests())
def test_derivation_is_a_fixed_point_in_any_rule_order(
    chosen: list[object], request_: Request
) -> None:
    fleet, turned = a_fleet(derive=chosen), a_fleet(derive=chosen[::-1])
    assume(not find_cycle(fleet.derive))  # such a file is invalid: validate says so

    told = QueueContext(history=HISTORY)
    found = {each.tag for each in derive(fleet, request_, request_.required, told)}

    assert {each.tag for each in derive(turned, request_, request_.required, told)} == found
    assert derive(fleet, request_, [*request_.required, *found], told) == ()
