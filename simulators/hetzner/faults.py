"""Decide when the simulated Hetzner API fails, and how."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from simulators.hetzner.wire import Refused, Reply, Request, Resource


@dataclass
class Fault:
    """A failure of some requests; `path` is a pattern such as `/servers/*`, behind the version.

    With a status or code the request is refused, and nothing is done unless `done` says so. Else
    it is done, and its answer comes late, broken, by half or not at all.
    """

    method: str = "*"
    path: str = "*"
    status: int | None = None
    code: str | None = None
    done: bool = False
    """The request is refused, but it was done all the same."""
    after: int = 0
    """How many matching requests are answered well before the first that fails."""
    count: int | None = None
    """How many fail; None: all that follow, until `heal`."""
    latency: float = 0
    """Seconds between the deed and its answer."""
    answer_lost: bool = False
    """The deed is done, and the connection is closed without an answer."""
    broken_off: bool = False
    """The answer breaks off in its middle."""
    half_page: bool = False
    """A listing leaves out the second half of each page, but counts it."""
    action_fails: bool = False
    """The deed is done, and the last action that it has begun ends in an error."""
    retry_after: int | None = None
    """Seconds that a refusal asks to wait."""
    seen: int = 0
    """How many requests have matched."""

    def strikes(self, request: Request) -> bool:
        """Count a request, and say whether it is to fail."""
        if self.method not in ("*", request.method) or not fnmatchcase(request.path, self.path):
            return False
        self.seen += 1
        return self.after < self.seen <= self.after + (self.count or self.seen)

    def refusal(self) -> Reply | None:
        """Return what is answered instead of the truth."""
        if self.status is None and self.code is None:
            return None
        status = self.status or _STATUS.get(self.code or "", 500)
        code = self.code or _CODES.get(status, "server_error")
        reply = Refused(status, code, f"{code}: this failure was ordered").reply()
        if status != _TOO_MANY:
            return reply
        wait = {"Retry-After": str(1 if self.retry_after is None else self.retry_after)}
        return Reply(status, reply.content, wait)


def halve(reply: Reply) -> Reply:
    """Return a listing without the second half of its page."""
    content: Resource = {
        name: value[: len(value) // 2] if isinstance(value, list) else value
        for name, value in (reply.content or {}).items()
    }
    return Reply(reply.status, content, reply.headers)


_TOO_MANY = 429
_STATUS = {
    "unauthorized": 401,
    "forbidden": 403,
    "resource_limit_exceeded": 403,
    "not_found": 404,
    "conflict": 409,
    "uniqueness_error": 409,
    "resource_unavailable": 412,
    "placement_error": 412,
    "invalid_input": 422,
    "locked": 423,
    "rate_limit_exceeded": 429,
    "unavailable": 503,
    "timeout": 504,
}
_CODES = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    412: "resource_unavailable",
    422: "invalid_input",
    423: "locked",
    429: "rate_limit_exceeded",
    500: "server_error",
    502: "bad_gateway",
    503: "unavailable",
    504: "timeout",
}
