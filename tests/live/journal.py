"""Debusine's own database keep a journal of its requests and workers.

Triggers write down each change as it is committed, so nothing that happened between two looks is
missed, and the server is none the wiser.
"""

import time
from dataclasses import dataclass
from typing import LiteralString

from tests.live.debusine import Server

_KEEP: LiteralString = """
CREATE TABLE IF NOT EXISTS live_request (
    at timestamptz DEFAULT clock_timestamp(), request int, status text, worker int);
CREATE TABLE IF NOT EXISTS live_deleted (name text);
CREATE OR REPLACE FUNCTION live_note_request() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO live_request (request, status, worker) VALUES (NEW.id, NEW.status, NEW.worker_id);
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION live_note_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO live_deleted (name) VALUES (OLD.name);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER live_changed AFTER UPDATE ON db_workrequest FOR EACH ROW
    WHEN (OLD.status <> NEW.status OR OLD.worker_id IS DISTINCT FROM NEW.worker_id)
    EXECUTE FUNCTION live_note_request();
CREATE OR REPLACE TRIGGER live_deleted AFTER DELETE ON db_worker FOR EACH ROW
    EXECUTE FUNCTION live_note_deletion();
"""
_ONCE = ["pending", "running", "completed"]


@dataclass(frozen=True)
class Step:
    """A change of a request: its new status, and the worker that has it now."""

    status: str
    worker: str | None


class Journal:
    """What became of requests and workers since it was begun."""

    def __init__(self, server: Server) -> None:
        self._server = server
        server.sql(_KEEP)

    def steps(self, request: int) -> list[Step]:
        """Return every change of a request since it became pending, in order."""
        rows = self._server.sql(
            "SELECT j.status, w.name FROM live_request j LEFT JOIN db_worker w ON w.id = j.worker"
            " WHERE j.request = %s ORDER BY j.at",
            (request,),
        )
        return [Step(*row) for row in rows if row[0] != "pending" or row[1] is not None]

    def retried(self, requests: list[int]) -> dict[int, list[Step]]:
        """Return the requests that were not just given to one worker, run and completed by it.

        Work that a machine took with it when it went would be among them: its request would be
        given to another worker, or would never be completed.
        """
        found = {request: self.steps(request) for request in requests}
        return {request: steps for request, steps in found.items() if not _is_straight(steps)}

    def wait_until_running(self, requests: list[int], *, seconds: float = 120) -> None:
        """Wait until a worker runs one of these requests."""
        until = time.monotonic() + seconds
        while all(step.status != "running" for each in requests for step in self.steps(each)):
            assert time.monotonic() < until, f"nothing runs after {seconds} s"
            time.sleep(0.2)

    def given_to(self, requests: list[int]) -> set[str]:
        """Return the workers that were given any of these requests."""
        return {step.worker for request in requests for step in self.steps(request) if step.worker}

    def order(self, requests: list[int]) -> list[int]:
        """Return the requests in the order in which they were given to a worker."""
        rows = self._server.sql(
            "SELECT request FROM live_request WHERE request = ANY(%s) AND status = 'pending'"
            " AND worker IS NOT NULL ORDER BY at",
            (requests,),
        )
        return [request for (request,) in rows]

    def deleted_workers(self) -> list[str]:
        """Return the workers whose rows are gone, and their history with them."""
        return [name for (name,) in self._server.sql("SELECT name FROM live_deleted")]

    def live_tokens(self, fleet: str) -> list[str]:
        """Return whose tokens could still be used: a fleet's workers', or nobody's."""
        rows = self._server.sql(
            "SELECT coalesce(w.name, 'nobody: ' || t.comment) FROM db_token t"
            " LEFT JOIN db_worker w ON t.id IN (w.token_id, w.activation_token_id)"
            " WHERE t.enabled AND t.token_type IN ('worker', 'worker-activation')"
            " AND (w.id IS NULL OR w.name LIKE %s) ORDER BY 1",
            (f"{fleet}-%",),
        )
        return [name for (name,) in rows]


def _is_straight(steps: list[Step]) -> bool:
    return [step.status for step in steps] == _ONCE and len({step.worker for step in steps}) == 1
