"""Who may answer for a rule of the allow-list, and until when."""

from datetime import timedelta

from fleet.apply.policy_plugin import Require
from fleet.explain.changes import ComparedPlan
from fleet.schema.model import Fleet

LONGEST = timedelta(days=400)


def test_each_rule_has_a_contact(fleet: Fleet, require: Require) -> None:
    for number, rule in enumerate(fleet.powerful):
        require(
            rule.contact,
            f"{rule.match} has no `contact`: whom to ask about it",
            at=("powerful", number),
        )


def test_each_rule_expires(fleet: Fleet, plan: ComparedPlan, require: Require) -> None:
    for number, rule in enumerate(fleet.powerful):
        last = plan.time.date() + LONGEST
        require(
            rule.expires is not None and rule.expires <= last,
            f"{rule.match} needs `expires`, at the latest {last}",
            at=("powerful", number),
        )
