"""This module renders a plan as the terraform report that GitLab shows on a merge request."""

import json
from collections import Counter

from fleet.plan import Plan


def plan_to_terraform_report(plan: Plan) -> str:
    """Return the counts that `artifacts:reports:terraform` reads.

    A drain is an update, an image's version that moves too, and what machines share counts part by
    part; an earlier update of it
    that did not finish is one more.
    """
    counted = Counter(action.action for action in plan.actions)
    for base in plan.bases:
        unfinished = not (base.create or base.change or base.delete)
        counted["create"] += len(base.create)
        counted["drain"] += len(base.change) + unfinished
        counted["delete"] += len(base.delete)
    counted["drain"] += len(plan.promotions)
    report = {
        "create": counted["create"],
        "update": counted["drain"],
        "delete": counted["delete"],
    }
    return json.dumps(report) + "\n"
