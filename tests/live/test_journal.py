"""What the journal of a database shows, and what it would not let pass."""

import pytest

from tests.live.debusine import Server
from tests.live.journal import Journal
from tests.live.workspace import NOBODY, Workspace

GIVEN, RUNS, DONE, BACK = "pending", "running", "completed", None


@pytest.mark.parametrize(
    ("course", "is_straight"),
    [
        pytest.param([GIVEN, RUNS, DONE], True, id="done at the first try"),
        pytest.param([GIVEN, RUNS, BACK, GIVEN, RUNS, DONE], False, id="taken back"),
        pytest.param([GIVEN, BACK, GIVEN, RUNS, DONE], False, id="given twice"),
        pytest.param([GIVEN, RUNS], False, id="never done"),
        pytest.param([GIVEN, RUNS, "aborted"], False, id="aborted"),
    ],
)
def test_journal_reports_only_unordered_work_as_retried(
    workspace: Workspace, journal: Journal, course: list[str | None], *, is_straight: bool
) -> None:
    request = workspace.post()
    # The scheduler gives it to nobody meanwhile.
    tags = [NOBODY]
    workspace.server.sql(
        "UPDATE db_workrequest SET scheduler_tags_required = %s WHERE id = %s", (tags, request)
    )

    for status in course:
        move(workspace.server, request, status)

    assert (journal.retried([request]) == {}) is is_straight
    move(workspace.server, request, DONE)


def move(server: Server, request: int, status: str | None) -> None:
    """Change a request as Debusine would: given to a worker, run, taken back."""
    server.sql(
        "UPDATE db_workrequest SET status = %s, worker_id ="
        " CASE WHEN %s THEN NULL ELSE (SELECT min(id) FROM db_worker) END WHERE id = %s",
        (status or "pending", status is None, request),
    )
