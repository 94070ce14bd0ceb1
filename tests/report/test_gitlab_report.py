"""What a merge request's terraform widget reads."""

from fleet.model.facts import BaseChange
from fleet.report.json import plan_to_terraform_report
from tests.builders import a_create, a_delete, a_drain, a_plan


def test_drain_is_an_update() -> None:
    plan = a_plan(actions=(a_create(), a_create(), a_drain(), a_delete()))

    assert plan_to_terraform_report(plan) == '{"create": 2, "update": 1, "delete": 1}\n'


def test_quiet_plan_reports_zeros() -> None:
    assert plan_to_terraform_report(a_plan()) == '{"create": 0, "update": 0, "delete": 0}\n'


def test_withheld_actions_are_not_reported() -> None:
    plan = a_plan(withheld=(a_delete(),))

    assert plan_to_terraform_report(plan) == '{"create": 0, "update": 0, "delete": 0}\n'


def test_shared_resources_are_counted_individually() -> None:
    own = BaseChange(provider="far", create=("network/a", "ssh_key/b"), change=("firewall/c",))
    plan = a_plan(bases=(own, BaseChange(provider="unfinished")))

    assert plan_to_terraform_report(plan) == '{"create": 2, "update": 2, "delete": 0}\n'
