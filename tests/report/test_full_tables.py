"""Facts that a merge request has in addition to a terminal."""

from fleet.model.plan import RefusedTag, TagDifference
from fleet.report.plan import plan_to_markdown
from tests.builders import a_plan, a_signature


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
