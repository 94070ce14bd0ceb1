"""Where notices are shown, and that nobody reads one twice."""

from fleet.report.plan import plan_to_markdown
from fleet.report.status import status_of
from fleet.site.files import Shown, site
from tests.builders import a_notice, a_plan, a_warning
from tests.rigs.shown import plan_to_text, status_to_text

IMAGE = a_notice(kind="image", path=("images", "trixie"), said="image trixie was not rebuilt")
RULE = a_notice(said="rule chromium ends")


def test_every_output_shows_notices() -> None:
    plan = a_plan(notices=(IMAGE, RULE))

    for text in (
        plan_to_text(plan, colour=False),
        status_to_text(plan, colour=False),
        plan_to_markdown(plan),
        site(Shown(plan, {}))["index.html"],
    ):
        assert IMAGE.said in text
        assert RULE.said in text
    assert status_of(plan).notices == plan.notices


def test_plan_omits_notice_of_a_warned_rule() -> None:
    plan = a_plan(notices=(IMAGE, RULE), warnings=(a_warning(rule="expires-soon"),))

    for text in (plan_to_text(plan, colour=False), plan_to_markdown(plan)):
        assert IMAGE.said in text
        assert RULE.said not in text
    assert RULE.said in status_to_text(plan, colour=False)
