"""This module renders a plan as the terraform report that GitLab shows on a merge request."""

import json
from collections import Counter

from fleet.plan import Plan


def plan_to_terraform_report(plan: Plan) -> str:
    """Return the counts that `artifacts:reports:terraform` reads; a drain is an update."""
    counted = Counter(action.action for action in plan.actions)
    report = {
        "create": counted["create"],
        "update": counted["drain"],
        "delete": counted["delete"],
    }
    return json.dumps(report) + "\n"
