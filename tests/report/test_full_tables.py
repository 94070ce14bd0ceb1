"""Facts that a merge request has in addition to a terminal."""

from fleet.model.plan import CLOCK_RULE, RefusedTag, Release, Resume, TagDifference
from fleet.report.plan import plan_to_markdown
from tests.builders import a_guard_result, a_plan, a_signature, a_warning, an_unserved
from tests.rigs.shown import plan_to_text


def cells_of(text: str, first: str) -> list[str]:
    """Return the cells of the only row that starts with a text."""
    (found,) = [each for each in text.splitlines() if each.startswith(f"| {first}")]
    return found.strip("| ").split(" | ")


def test_markdown_has_the_pool_of_a_released_worker() -> None:
    gone = Release(pool="arm", worker="w-1", registry="debian", because="its machine is gone")
    plan = a_plan(releases=(gone,))

    assert cells_of(plan_to_markdown(plan), "`workers without")[1:3] == ["release w-1", "`arm`"]
    assert "arm" not in plan_to_text(plan)


def test_markdown_has_the_pool_of_a_resumed_worker() -> None:
    over = Resume(pool="arm", worker="w-1", registry="debian", because="its hold is over")
    plan = a_plan(resumes=(over,))

    assert cells_of(plan_to_markdown(plan), "`workers whose")[2] == "`arm`"


def test_markdown_has_the_tag_of_each_note() -> None:
    signature = a_signature(
        requests=("7",),
        refused=(RefusedTag(tag="big|1", who="ada", because="ada may not ask for it"),),
        differences=(TagDifference(tag="slow", because="a newer rule adds it"),),
        dropped=("fast",),
    )

    text = plan_to_markdown(a_plan(signatures=(signature,)))

    rows = [each for each in text.splitlines() if each.startswith("| 1 request: 7 | ")]
    assert [each.split(" | ")[1] for each in rows] == ["`big\u22231`", "`fast`", "`slow`"]


def test_markdown_has_the_pool_of_each_guard() -> None:
    guards = (a_guard_result(pool="arm"), a_guard_result(guard="cost", pool=None))

    text = plan_to_markdown(a_plan(guards=guards))

    where = [each.split(" | ")[1] for each in text.splitlines() if each.startswith("| **refused")]
    assert where == ["arm", "whole fleet"]


def test_markdown_has_a_refused_clock_without_the_mark_of_a_terminal() -> None:
    plan = a_plan(warnings=(a_warning(rule=CLOCK_RULE, message="the clock is late"),))

    assert plan_to_text(plan, age="Seen").splitlines()[1:3] == ["! the clock is late", "Seen"]
    assert "\n\n- the clock is late\n\nSeen\n" in plan_to_markdown(plan, age="Seen")


def test_markdown_has_every_tag_and_kind_of_unserved_requests() -> None:
    tags = [tuple(f"t{kind}{tag}" for tag in "abcde") for kind in range(6)]
    plan = a_plan(
        signatures=[a_signature(id=f"s{n}", required=each) for n, each in enumerate(tags)],
        unserved=[an_unserved(signature=f"s{n}", requests=(f"r{n}",)) for n in range(6)],
    )

    text = plan_to_markdown(plan)

    assert all(tag in text for each in tags for tag in each)
