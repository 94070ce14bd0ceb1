"""Say who runs us, and from which commit and pipeline: what the log keeps of each entry."""

import os
import re
import socket
from collections.abc import Mapping

from fleet.model.log import Origin
from fleet.state.database import name_user

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MOST = 300


def find_origin(environment: Mapping[str, str] = os.environ) -> Origin:
    """Return it from the variables of GitLab's or GitHub's jobs, else from this system."""

    def first(*names: str) -> str:
        return next((environment[name][:_MOST] for name in names if environment.get(name)), "")

    commit = first("CI_COMMIT_SHA", "GITHUB_SHA")
    run = first("GITHUB_RUN_ID")
    at_github = f"{first('GITHUB_SERVER_URL')}/{first('GITHUB_REPOSITORY')}/actions/runs/{run}"
    pipeline = first("CI_PIPELINE_URL") or at_github * bool(run)
    return Origin(
        by=first("GITLAB_USER_LOGIN", "GITHUB_ACTOR") or name_user(),
        host="" if pipeline else socket.gethostname(),
        commit=commit if _COMMIT.fullmatch(commit) else "",
        pipeline=pipeline,
        job=first("CI_JOB_URL"),
    )
