"""Read and change a project over GitLab's API: merge requests, comments and settings.

Only comments of the token's user are changed. GitLab also returns the values of variables, which
are dropped when a reply is parsed. Redirects are not followed, so that the token reaches only the
named server (`fleet.queues.http`).
"""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, RootModel

from fleet.errors import SourceUnreachable, WrongUsage
from fleet.model.doctor import CiProject, CiVariable
from fleet.model.values import Id, Line, LongText
from fleet.queues.http import Body, Change, Reader, ReadLimits, Reply

MOST_CHARACTERS = 1_000_000
"""Maximum length of a comment in GitLab, in characters."""
_PAGE = 100
_MOST_PAGES = 200
_COMMENTS = "the scope `api` and the role Reporter"
_SETTINGS = "the scope `read_api` and the role Maintainer"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class _GitlabReply(BaseModel):
    model_config = ConfigDict(frozen=True)


class User(_GitlabReply):
    """The GitLab user of a token."""

    id: Id


class Note(_GitlabReply):
    """A comment on a merge request."""

    id: Id
    body: LongText
    author: User
    system: bool = False


class MergeRequest(_GitlabReply):
    """A merge request, identified by its number in the project."""

    iid: Id


class _Variable(_GitlabReply):
    key: Line
    protected: bool
    masked: bool
    environment_scope: Line


class _Branch(_GitlabReply):
    name: Line


class _Project(_GitlabReply):
    default_branch: Line | None
    ci_config_path: Line | None = None
    protect_merge_request_pipelines: bool | None = None


Item = TypeVar("Item", bound=BaseModel)


class Gitlab:
    """A GitLab project, as one user sees it. Each call may raise SourceUnreachable."""

    def __init__(self, url: str, project: str, token: str) -> None:
        """`url` is the API's URL, as in CI_API_V4_URL; raises WrongUsage for plain HTTP."""
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            raise WrongUsage(f"{url}: the token is sent over https:// only")
        self._project = f"/projects/{quote(project, safe='')}"
        self._url = url
        self._headers = {"PRIVATE-TOKEN": token}
        self._limits = ReadLimits(total=120)

    def user(self) -> int:
        """Return the id of the token's user."""
        with self._reader() as reader:
            return _check_reply(reader.get("/user", {}, self._headers)).parse(User).id

    def open_merge_requests(self) -> tuple[int, ...]:
        """Return the numbers of the open merge requests, the last changed first."""
        query = {"state": "opened", "order_by": "updated_at"}
        with self._reader() as reader:
            found = self._pages(reader, "/merge_requests", query, RootModel[list[MergeRequest]])
            return tuple(each.iid for each in found)

    def comments(self, merge_request: int, author: int) -> tuple[Note, ...]:
        """Return a user's comments on a merge request, oldest first."""
        query = {"sort": "asc", "order_by": "created_at"}
        with self._reader() as reader:
            notes = self._pages(reader, self._notes(merge_request), query, RootModel[list[Note]])
            return tuple(n for n in notes if n.author.id == author and not n.system)

    def add_comment(self, merge_request: int, body: str) -> Note:
        """Add a comment to a merge request, and return the comment."""
        return self._change("POST", self._notes(merge_request), {"body": body}).parse(Note)

    def edit_comment(self, merge_request: int, note: int, body: str) -> None:
        """Replace the text of a comment."""
        self._change("PUT", f"{self._notes(merge_request)}/{note}", {"body": body})

    def delete_comment(self, merge_request: int, note: int) -> None:
        """Delete a comment. Do nothing if it does not exist."""
        self._change("DELETE", f"{self._notes(merge_request)}/{note}", None, gone=True)

    def settings(self) -> CiProject:
        """Return the settings that decide which jobs get the project's variables."""
        with self._reader() as reader:
            variables = tuple(
                CiVariable(
                    name=each.key,
                    protected=each.protected,
                    masked=each.masked,
                    scope=each.environment_scope,
                )
                for each in self._pages(
                    reader, "/variables", {}, RootModel[list[_Variable]], needs=_SETTINGS
                )
            )
            branches = self._pages(
                reader, "/protected_branches", {}, RootModel[list[_Branch]], needs=_SETTINGS
            )
            names = tuple(each.name for each in branches)
            reply = reader.get(self._project, {}, self._headers)
            project = _check_reply(reply, needs=_SETTINGS).parse(_Project)
        return CiProject(
            default_branch=project.default_branch or "",
            configuration=project.ci_config_path or ".gitlab-ci.yml",
            protected_branches=names,
            opens_to_merge_requests=project.protect_merge_request_pipelines,
            variables=variables,
        )

    def _notes(self, merge_request: int) -> str:
        return f"/merge_requests/{merge_request}/notes"

    def _reader(self) -> Reader:
        return Reader(self._url, limits=self._limits)

    def _change(self, method: Change, path: str, body: Body, *, gone: bool = False) -> Reply:
        with self._reader() as reader:
            reply = reader.change(method, self._project + path, self._headers, body)
            if gone and reply.status == HTTPStatus.NOT_FOUND:
                return reply
            return _check_reply(reply)

    def _pages(
        self,
        reader: Reader,
        path: str,
        query: Mapping[str, str],
        shape: type[RootModel[list[Item]]],
        *,
        needs: str = _COMMENTS,
    ) -> Iterator[Item]:
        page, listed = "1", 0
        for _ in range(_MOST_PAGES):
            asked = {**query, "per_page": str(_PAGE), "page": page}
            reply = reader.get(self._project + path, asked, self._headers)
            reply = _check_reply(reply, needs=needs)
            found = reply.parse(shape).root
            listed += len(found)
            counted = reply.headers.get("x-total", "")  # GitLab omits it above 10,000 entries
            if counted.isdecimal() and listed > int(counted[:18]):
                raise SourceUnreachable(
                    f"{reply.address} listed {listed} entries, but counts {counted[:18]}"
                )
            yield from found
            page = reply.headers.get("x-next-page", "")
            if not page.isdecimal():
                return
        raise SourceUnreachable(f"{reply.address} has more than {_MOST_PAGES} pages")


def _check_reply(reply: Reply, needs: str = _COMMENTS) -> Reply:
    """Return the reply; raises SourceUnreachable with advice, without text from the server."""
    after = reply.headers.get("retry-after", "")
    refused = "it refuses this comment; is the merge request locked?"
    advice = {
        400: refused,
        401: "the token is not valid; is it expired or revoked?",
        403: f"the token may not do this; it needs {needs}",
        404: "there is no such project or merge request, or the token may not see it",
        422: refused,
        429: f"too many requests; retry in {after} s" if after.isdecimal() else "",
    }
    return reply.accepted(advice)
