"""Client for work requests and artifacts of a Debusine server.

The client sends the token only to that server.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.errors import BuildFailed

_CHUNK_BYTES = 1 << 20
_AUTH_STATUSES = (401, 403)
_MIN_ERROR_STATUS = 300
_ABORTED = "aborted"
_MAX_PAGES = 20
"""Maximum number of pages to search for the retry of a request, newest requests first."""
_MAX_LOG_BYTES = 16 << 20
"""Maximum size of a log to download. A larger log is not downloaded."""
Shape = TypeVar("Shape", bound=BaseModel)


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class WorkRequest(_Shape):
    """A work request, as the server's API returns it."""

    id: int
    status: str
    result: str = ""
    artifacts: tuple[int, ...] = ()
    aborted_by: int | None = None
    created_by: int | None = None
    workspace: str = ""
    task_data: dict[str, Any] = {}
    workflow_data: dict[str, Any] = {}


class RequestPage(_Shape):
    """A page of the list of work requests, newest first."""

    next: str | None = None
    results: tuple[WorkRequest, ...]


class ArtifactFile(_Shape):
    """A file of an artifact, with its size in bytes."""

    size: int
    url: str
    checksums: dict[str, str] = {}


class Artifact(_Shape):
    """An artifact of a Debusine server, the result of a work request."""

    category: str
    data: dict[str, Any]
    files: dict[str, ArtifactFile] = {}


class DebusineClient:
    """Client of a Debusine server. The HTTP client sends the token."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self.url = url.rstrip("/")
        self._client = client

    def submit(self, body: Mapping[str, object]) -> WorkRequest:
        """Create a work request; raises BuildFailed if the server does not respond."""
        try:
            answer = self._client.post(self._url_of("work-request/"), json=body)
        except httpx.HTTPError as error:
            raise BuildFailed(
                f"{self.url} did not answer ({error}); check there whether the request was "
                "created, and abort it before you try again"
            ) from error
        return self._parse(WorkRequest, answer)

    def request(self, number: int) -> WorkRequest:
        """Return a work request by its number."""
        return self._parse(WorkRequest, self._client.get(self._url_of(f"work-request/{number}/")))

    def retried(self, request: WorkRequest) -> WorkRequest | None:
        """Return the server's retry of an aborted request; None if the server did not retry it.

        The server retries a request if it lost the worker, but not if a user aborted the request.
        Its API does not link the retry. The retry is the first newer request with equal fields
        (`_retry_key`): the task data contains the script, which is unique for each build.
        """
        if request.status != _ABORTED or request.aborted_by is not None:
            return None
        found, query = None, "task_type=Worker"
        for _ in range(_MAX_PAGES):
            page = self._parse(
                RequestPage, self._client.get(self._url_of(f"work-request/?{query}"))
            )
            again = [each for each in page.results if _is_retry(each, request)]
            found = min(again, key=lambda each: each.id, default=found)
            if not page.next or any(each.id <= request.id for each in page.results):
                break
            query = urlsplit(page.next).query
        return found

    def abort(self, number: int) -> str:
        """Abort a work request; return "aborted", or the reason why it was not aborted."""
        try:
            answer = self._client.post(self._url_of(f"work-request/{number}/abort/"))
        except httpx.HTTPError as error:
            return f"not: {error}"
        return (
            "aborted" if answer.status_code < _MIN_ERROR_STATUS else f"not: {answer.status_code}"
        )

    def artifacts(self, numbers: tuple[int, ...]) -> tuple[Artifact, ...]:
        """Return the artifacts with these numbers."""
        return tuple(
            self._parse(Artifact, self._client.get(self._url_of(f"artifact/{each}/")))
            for each in numbers
        )

    def take(self, name: str, file: ArtifactFile, place: Path) -> None:
        """Download a file; raises BuildFailed if its size or checksum is wrong."""
        checksum, size = hashlib.sha256(), 0
        with place.open("wb") as written:
            for piece in self._read_chunks(name, file):
                checksum.update(piece)
                size += written.write(piece)
        promised = file.checksums.get("sha256", checksum.hexdigest())
        if (size, checksum.hexdigest()) != (file.size, promised):
            raise BuildFailed(
                f"{name} came with {size} bytes of SHA-256 {checksum.hexdigest()[:12]}…, the "
                f"server has {file.size} of {promised[:12]}…"
            )

    def log(self, name: str, file: ArtifactFile) -> str:
        """Return the text of a log, or a note if it is too large to download."""
        if file.size > _MAX_LOG_BYTES:
            return f"not downloaded: {file.size} bytes are too many\n"
        return b"".join(self._read_chunks(name, file)).decode(errors="replace")

    def _read_chunks(self, name: str, file: ArtifactFile) -> Iterator[bytes]:
        if not file.url.startswith(f"{self.url}/"):
            raise BuildFailed(f"{name} not downloaded: the server names another host")
        with self._client.stream("GET", file.url) as answer:
            self._check(answer)
            yield from answer.iter_bytes(_CHUNK_BYTES)

    def _url_of(self, path: str) -> str:
        return f"{self.url}/api/1.0/{path}"

    def _check(self, answer: httpx.Response) -> None:
        """Raise BuildFailed for an error status, with the server's message if present."""
        if answer.status_code < _MIN_ERROR_STATUS:
            return
        answer.read()
        why = f"status {answer.status_code}"
        if answer.status_code in _AUTH_STATUSES:
            why += "; the token's user has to be a contributor of the workspace"
        elif answer.headers.get("content-type", "").startswith("application/"):
            why += f": {answer.text[:500]}"
        raise BuildFailed(f"{self.url} refuses: {why}")

    def _parse(self, shape: type[Shape], answer: httpx.Response) -> Shape:
        self._check(answer)
        try:
            return shape.model_validate_json(answer.content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise BuildFailed(
                f"{answer.request.url} returned an unexpected answer: "
                f"{first['msg']}; is it a Debusine 0.16?"
            ) from None


def _is_retry(request: WorkRequest, earlier: WorkRequest) -> bool:
    """Return whether a request is the server's retry of an earlier request."""
    return request.id > earlier.id and _retry_key(request, 0) == _retry_key(earlier, 1)


def _retry_key(request: WorkRequest, retries: int) -> tuple[object, ...]:
    """Return the fields that are equal in a retry, with the retry count plus `retries`."""
    count = int(request.workflow_data.get("retry_count", 0)) + retries
    return (request.created_by, request.workspace, request.task_data, count)
