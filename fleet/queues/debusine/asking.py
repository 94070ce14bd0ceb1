"""This module asks a Debusine server over REST; whatever is no answer becomes a sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

from fleet.errors import SourceUnreachable
from fleet.queues.debusine.rows import Page
from fleet.queues.debusine.walk import Walk
from fleet.web.reader import Reader, Reply, TooSlow

LIST = "/api/1.0/work-request/"
# The task type is written as Debusine writes it: `worker` would list nothing, with status 200.
_ASKED = {"status": "pending", "task_type": "Worker"}
_MAX_PAGES = 10_000
_REFUSED = (401, 403)


class Asking:
    """One reading's questions; the token goes only where it is needed."""

    def __init__(self, reader: Reader, token: str | None) -> None:
        self._reader = reader
        self._token = token

    def page(self, walk: Walk) -> Page:
        """Return the next page of a scope's list, once it is sure to be of that list."""
        if walk.cursor in walk.asked or len(walk.asked) >= _MAX_PAGES:
            because = "leads in a circle" if walk.cursor in walk.asked else "does not end"
            raise SourceUnreachable(
                f"{self._reader.base}{LIST}: the list of scope {walk.scope} {because} (after "
                f"{len(walk.asked)} pages and {len(walk.rows)} requests); is a proxy or cache "
                "answering instead of Debusine?"
            )
        query = _ASKED | ({} if walk.cursor is None else {"cursor": walk.cursor})
        with _in_time():
            reply = self._reader.get(LIST, query, self._of(walk.scope))
        page = self._checked(reply, walk.scope).parse(Page)
        self._check(page, walk.scope)
        return page

    def _check(self, page: Page, scope: str) -> None:
        for row in page.results:
            given = {"status": row.status, "task_type": row.task_type, "scope": row.scope}
            if given != _ASKED | {"scope": scope}:
                raise SourceUnreachable(
                    f"{self._reader.base}{LIST} listed request {row.id}, which is not pending "
                    f"work for workers in scope {scope}; is a proxy or cache answering for "
                    "another address?"
                )

    def anyone(self, path: str, *, only: bytes = b"", silence: float | None = None) -> Reply:
        """Return what the server tells anyone, without a token; `only` lines that begin so."""
        with _in_time():
            reply = self._reader.get(path, {}, {}, only=only, silence=silence)
        return self._checked(reply, None)

    def with_token(self, path: str, scope: str) -> Reply:
        """Return what the server tells of the token's user."""
        with _in_time():
            reply = self._reader.get(path, {}, self._of(scope))
        return self._checked(reply, scope)

    def _of(self, scope: str) -> dict[str, str]:
        secret = {} if self._token is None else {"Token": self._token}
        return {"X-Debusine-Scope": scope, **secret}

    def _checked(self, reply: Reply, scope: str | None) -> Reply:
        if reply.status == 200:  # noqa: PLR2004 - HTTP's OK
            return reply
        advice = self._advice(reply.status, scope)
        raise SourceUnreachable(f"{reply.place} answered with status {reply.status}: {advice}")

    def _advice(self, status: int, scope: str | None) -> str:
        match status:
            case _ if status in _REFUSED:
                return self._refused(scope)
            case 404 if scope is not None:
                return f"it knows no scope {scope}, or is not a Debusine server"
            case 404:
                return "is it a Debusine server?"
            case 400:
                return "it refuses the question; is its version supported (0.16)?"
            case _:
                return "the trouble is the server's; try again, then look at its log"

    def _refused(self, scope: str | None) -> str:
        if scope is None:
            return "Debusine tells this to anyone; is it a proxy before it that does not?"
        if self._token is None:
            return "it tells nothing without a token; give this queue a `token` in fleet.yaml"
        return (
            "the token is wrong, disabled or expired, or not a user's; "
            "`debusine-admin create_token USER` makes one"
        )


@contextmanager
def _in_time() -> Iterator[None]:
    try:
        yield
    except TooSlow as error:
        raise TooSlow(
            f"{error}: reading was given up, because demand older than guards.demand_max_age is "
            "not acted upon. Raise that limit, or find out why the server is so slow"
        ) from error
