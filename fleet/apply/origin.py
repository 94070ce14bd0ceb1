"""Find the origin of a run for the log: user, host, commit and pipeline."""

import os
import re
import socket
from collections.abc import Mapping

from fleet.model.log import Origin
from fleet.state.database import name_user

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MAX_LENGTH = 300
_FORGES = ("GITHUB", "FORGEJO", "GITEA")


def find_origin(environment: Mapping[str, str] = os.environ) -> Origin:
    """Return the origin of this run from a CI job's variables; otherwise from this system."""

    def first(*names: str) -> str:
        return next(
            (environment[name][:_MAX_LENGTH] for name in names if environment.get(name)), ""
        )

    def at_forge(name: str) -> str:
        return first(*(f"{forge}_{name}" for forge in _FORGES))

    commit = first("CI_COMMIT_SHA") or at_forge("SHA")
    run = at_forge("RUN_ID")
    actions = f"{at_forge('SERVER_URL')}/{at_forge('REPOSITORY')}/actions/runs/{run}"
    pipeline = first("CI_PIPELINE_URL") or actions * bool(run)
    return Origin(
        by=first("GITLAB_USER_LOGIN") or at_forge("ACTOR") or name_user(),
        host="" if pipeline else socket.gethostname(),
        commit=commit if _COMMIT.fullmatch(commit) else "",
        pipeline=pipeline,
        job=first("CI_JOB_URL"),
    )
