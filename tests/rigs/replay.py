"""Replay recorded answers of a real Debusine, body for body."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tests.rigs.loopback import Answer, Loopback, Received

RECORDED = Path(__file__).parent.parent / "fixtures" / "debusine-0.16.2"
TOKEN = "made-up-viewer-token"
"""Stands in the transcripts for the token of the user with role viewer."""
PENDING = ("wr-list-pending-page1", "wr-list-pending-page2", "wr-list-pending-page3")
_SENT = ("token", "x-debusine-scope")
_NOT_REPLAYED = ("content-length", "transfer-encoding")


@dataclass(frozen=True)
class Exchange:
    """One recorded request with its answer."""

    asked: Received
    answer: Answer


def read_exchange(name: str) -> Exchange:
    """Return a transcript of the recording by its file's name."""
    head, _, body = (RECORDED / f"{name}.http").read_bytes().partition(b"\n<\n\n")
    lines = head.decode().splitlines()
    request = [line[2:] for line in lines if line.startswith("> ")]
    reply = [line[2:] for line in lines if line.startswith("< ")]
    target = urlsplit(request[0].split()[1])
    asked = Received(target.path, dict(parse_qsl(target.query)), _headers(request[1:]))
    headers = {k: v for k, v in _headers(reply[1:]).items() if k not in _NOT_REPLAYED}
    # The recorder ended each body with a line break of its own.
    answer = Answer(int(reply[0].split()[1]), body.removesuffix(b"\n"), headers)
    return Exchange(asked, answer)


class Replay(Loopback):
    """A server that answers what was recorded, and 501 to any other question."""

    def __init__(self, *names: str) -> None:
        super().__init__(self._replay)
        self._exchanges = [read_exchange(name) for name in names]

    def _replay(self, received: Received) -> Answer:
        for exchange in self._exchanges:
            if _key(exchange.asked) == _key(received):
                return exchange.answer
        return Answer(501, b"not in the recording", {"Content-Type": "text/plain"})


def _headers(lines: list[str]) -> dict[str, str]:
    pairs = (line.split(": ", 1) for line in lines)
    return {name.lower(): value for name, value in pairs}


def _key(asked: Received) -> object:
    return (asked.path, asked.query, {name: asked.headers.get(name) for name in _SENT})
