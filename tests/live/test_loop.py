"""The closed loop: a real queue, real workers, and a fleet that comes and goes with the work."""

import os
import random

import pytest

from tests.live.debusine import Server
from tests.live.journal import Journal
from tests.live.project import Access, Project
from tests.live.workspace import Workspace

BUILDERS = {"workers": {"max": 2}, "retire": {"idle_after": "5s"}, "boot": {"deadline": "2m"}}
UNTIL_QUIET = ("apply", "--every", "5s", "--until-quiet", "--for", "5m")
SEED = os.environ.get("LIVE_SEED", "20261121")


def a_mix_of_work(workspace: Workspace) -> list[int]:
    """Post requests of several kinds, tags and priorities; all of them end soon."""
    nowhere = [
        {"mirror": f"{workspace.server.url}/nowhere", "suite": "sid", "components": ["main"]}
    ]
    images = [
        workspace.post(
            "mmdebstrap",
            bootstrap_options={"architecture": architecture, "variant": "minbase"},
            bootstrap_repositories=nowhere,
        )
        for architecture in ("amd64", "i386")
    ]
    plain = [workspace.post(priority=priority) for priority in (0, -10, 50, 0)]
    return [*images, *plain, workspace.post(result="failure")]


def assert_all_is_done(project: Project, journal: Journal, requests: list[int]) -> None:
    """Each request was given to one worker, run and completed by it, and nothing is left."""
    logs = project.machine_logs()
    assert journal.retried(requests) == {}, logs
    assert journal.deleted_workers() == []
    assert journal.live_tokens(project.name) == []
    assert project.machine_folders() == []
    assert project.worker_processes() == []


def test_fleet_grows_and_shrinks_with_the_work(
    project: Project, workspace: Workspace, journal: Journal
) -> None:
    project.write(name="comes", pools={"builders": BUILDERS})
    requests = a_mix_of_work(workspace)

    project.fleet(*UNTIL_QUIET)

    assert_all_is_done(project, journal, requests)
    assert len(journal.given_to(requests)) <= 2


@pytest.mark.long
def test_fleet_with_admin_command_grows_and_shrinks_with_the_work(
    project: Project, workspace: Workspace, server: Server, journal: Journal
) -> None:
    project.write(name="command", pools={"builders": BUILDERS}, admin=server.admin_command)
    requests = a_mix_of_work(workspace)

    project.fleet(*UNTIL_QUIET)

    assert_all_is_done(project, journal, requests)


@pytest.mark.parametrize("strikes", [4, pytest.param(20, marks=pytest.mark.long)])
def test_repeatedly_killed_fleet_loses_no_work(
    strikes: int,
    project: Project,
    workspace: Workspace,
    journal: Journal,
    capsys: pytest.CaptureFixture[str],
) -> None:
    moments = random.Random(SEED)  # noqa: S311 - repeatable, no secret
    project.write(name="killed", pools={"builders": BUILDERS})
    requests: list[int] = []

    for strike in range(strikes):
        seconds = moments.uniform(0.2, 9)
        with capsys.disabled():
            print(f"\nSIGKILL after {seconds:.2f} s (LIVE_SEED={SEED})", end="")  # noqa: T201 - to repeat it
        if strike % 4 == 0:  # in between there is time to let workers go
            requests += a_mix_of_work(workspace)
        project.start("apply", "--every", "2s").kill_after(seconds)
    project.fleet(*UNTIL_QUIET)

    assert_all_is_done(project, journal, requests)


def test_fleet_continues_after_database_outage(
    project: Project, workspace: Workspace, access: Access, journal: Journal
) -> None:
    project.write(name="away", pools={"builders": BUILDERS})
    access.http.hold()
    requests = a_mix_of_work(workspace)
    fleet = project.start(*UNTIL_QUIET)
    journal.wait_until_running(requests)

    with access.sql.cut():
        fleet.wait_for("unknown", times=2)
        machines = project.machine_folders()
    access.http.release()
    fleet.end()

    assert machines
    assert_all_is_done(project, journal, requests)


@pytest.mark.long
def test_two_concurrent_fleets_do_each_action_once(
    project: Project, workspace: Workspace, journal: Journal
) -> None:
    project.write(name="twice", pools={"builders": BUILDERS})
    requests = a_mix_of_work(workspace)

    both = [project.start(*UNTIL_QUIET) for _ in range(2)]
    for fleet in both:
        fleet.end()

    assert_all_is_done(project, journal, requests)
    assert len(journal.given_to(requests)) <= 2
