"""Who runs us, from the variables of a forge's job or from this system."""

import socket

import pytest

from fleet.apply.record import find_origin
from fleet.model.log import Origin
from fleet.state.database import name_user

SHA = "8a4a1c9e3c1d5f7b9a2e4d6c8b0f1a3e5d7c9b1f"


def test_origin_has_user_commit_and_urls_of_gitlab_job() -> None:
    job = {
        "GITLAB_USER_LOGIN": "ann",
        "CI_COMMIT_SHA": SHA,
        "CI_PIPELINE_URL": "https://git.example/p/1",
        "CI_JOB_URL": "https://git.example/j/2",
    }

    assert find_origin(job) == Origin(
        by="ann", commit=SHA, pipeline="https://git.example/p/1", job="https://git.example/j/2"
    )


@pytest.mark.parametrize("forge", ["GITHUB", "FORGEJO", "GITEA"])
def test_origin_has_commit_and_urls_of_github_forgejo_or_gitea_job(forge: str) -> None:
    job = {
        f"{forge}_ACTOR": "ann",
        f"{forge}_SHA": SHA,
        f"{forge}_SERVER_URL": "https://git.example",
        f"{forge}_REPOSITORY": "infra/fleet",
        f"{forge}_RUN_ID": "7",
    }

    found = find_origin(job)

    assert (found.by, found.commit, found.host) == ("ann", SHA, "")
    assert found.pipeline == "https://git.example/infra/fleet/actions/runs/7"


def test_origin_is_user_and_computer_without_ci_job() -> None:
    assert find_origin({}) == Origin(by=name_user(), host=socket.gethostname())


def test_origin_drops_invalid_commit_and_truncates_user() -> None:
    found = find_origin({"CI_COMMIT_SHA": "<b>", "GITLAB_USER_LOGIN": "a" * 999})

    assert (found.commit, len(found.by)) == ("", 300)
