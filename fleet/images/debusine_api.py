"""Ask a Debusine server for work requests and their artifacts; its token goes to it alone."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.errors import BuildFailed

_PIECE = 1 << 20
_REFUSED = (401, 403)
_OK = 300
_ABORTED = "aborted"
_MOST_PAGES = 20
"""Pages of the server's newest requests that are looked through for one that it tries again."""
_LONGEST_LOG = 16 << 20
"""Bytes of a log that are taken; a longer one stays at the server."""
Shape = TypeVar("Shape", bound=BaseModel)


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Request(_Shape):
    """A work request, as the server describes it."""

    id: int
    status: str
    result: str = ""
    artifacts: tuple[int, ...] = ()
    aborted_by: int | None = None
    created_by: int | None = None
    workspace: str = ""
    task_data: dict[str, Any] = {}
    workflow_data: dict[str, Any] = {}


class Page(_Shape):
    """A part of the list of requests, the newest first."""

    next: str | None = None
    results: tuple[Request, ...]


class File(_Shape):
    """A file of an artifact."""

    size: int
    url: str
    checksums: dict[str, str] = {}


class Artifact(_Shape):
    """A result of a work request."""

    category: str
    data: dict[str, Any]
    files: dict[str, File] = {}


class Server:
    """A Debusine server, spoken to by an open client that carries the token."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self.url = url.rstrip("/")
        self._client = client

    def submit(self, body: Mapping[str, object]) -> Request:
        """Post a work request."""
        try:
            answer = self._client.post(self._at("work-request/"), json=body)
        except httpx.HTTPError as error:
            raise BuildFailed(
                f"{self.url} did not answer ({error}); check there whether the request was "
                "created, and abort it before you try again"
            ) from error
        return self._shape(Request, answer)

    def request(self, number: int) -> Request:
        """Look at a work request."""
        return self._shape(Request, self._client.get(self._at(f"work-request/{number}/")))

    def retried(self, request: Request) -> Request | None:
        """Return the request by which the server tries an aborted one again, if it does.

        It does so where the worker was lost. No answer of the server names the newer request, so
        it is the first after it in which all is the same that stays so: the task, whose script
        identifies the build. The server does not retry a request that a person aborted.
        """
        if request.status != _ABORTED or request.aborted_by is not None:
            return None
        found, query = None, "task_type=Worker"
        for _ in range(_MOST_PAGES):
            page = self._shape(Page, self._client.get(self._at(f"work-request/?{query}")))
            again = [each for each in page.results if _is_again(each, request)]
            found = min(again, key=lambda each: each.id, default=found)
            if not page.next or any(each.id <= request.id for each in page.results):
                break
            query = urlsplit(page.next).query
        return found

    def abort(self, number: int) -> str:
        """Have the server abort a work request, if it still can; return the outcome in words."""
        try:
            answer = self._client.post(self._at(f"work-request/{number}/abort/"))
        except httpx.HTTPError as error:
            return f"not: {error}"
        return "aborted" if answer.status_code < _OK else f"not: {answer.status_code}"

    def artifacts(self, numbers: tuple[int, ...]) -> tuple[Artifact, ...]:
        """Look at artifacts."""
        return tuple(
            self._shape(Artifact, self._client.get(self._at(f"artifact/{each}/")))
            for each in numbers
        )

    def take(self, name: str, file: File, place: Path) -> None:
        """Download a file and check it."""
        checksum, size = hashlib.sha256(), 0
        with place.open("wb") as written:
            for piece in self._pieces(name, file):
                checksum.update(piece)
                size += written.write(piece)
        promised = file.checksums.get("sha256", checksum.hexdigest())
        if (size, checksum.hexdigest()) != (file.size, promised):
            raise BuildFailed(
                f"{name} came with {size} bytes of SHA-256 {checksum.hexdigest()[:12]}…, the "
                f"server has {file.size} of {promised[:12]}…"
            )

    def log(self, name: str, file: File) -> str:
        """Return the text of a log."""
        if file.size > _LONGEST_LOG:
            return f"its {file.size} bytes were left at the server\n"
        return b"".join(self._pieces(name, file)).decode(errors="replace")

    def _pieces(self, name: str, file: File) -> Iterator[bytes]:
        if not file.url.startswith(f"{self.url}/"):
            raise BuildFailed(f"the server names another host for {name}; nothing was asked there")
        with self._client.stream("GET", file.url) as answer:
            self._check(answer)
            yield from answer.iter_bytes(_PIECE)

    def _at(self, path: str) -> str:
        return f"{self.url}/api/1.0/{path}"

    def _check(self, answer: httpx.Response) -> None:
        """Raise BuildFailed for a refusal, in the server's words if it has some."""
        if answer.status_code < _OK:
            return
        answer.read()
        why = f"status {answer.status_code}"
        if answer.status_code in _REFUSED:
            why += "; the token's user has to be a contributor of the workspace"
        elif answer.headers.get("content-type", "").startswith("application/"):
            why += f": {answer.text[:500]}"
        raise BuildFailed(f"{self.url} refuses: {why}")

    def _shape(self, shape: type[Shape], answer: httpx.Response) -> Shape:
        self._check(answer)
        try:
            return shape.model_validate_json(answer.content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise BuildFailed(
                f"{answer.request.url} returned an unexpected answer: "
                f"{first['msg']}; is it a Debusine 0.16?"
            ) from None


def _is_again(request: Request, earlier: Request) -> bool:
    """Say whether the server made a request to try an earlier one again."""
    return request.id > earlier.id and _likeness(request, 0) == _likeness(earlier, 1)


def _likeness(request: Request, retries: int) -> tuple[object, ...]:
    """Return the parts of a request that a retry keeps, and the number of its retries."""
    count = int(request.workflow_data.get("retry_count", 0)) + retries
    return (request.created_by, request.workspace, request.task_data, count)
