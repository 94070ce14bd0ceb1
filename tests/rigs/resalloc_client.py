"""Ask for tickets as Resalloc's clients do, in words of our own.

Like them it sends an id as it was typed, sends no sandbox where it has none, and asks again where
it is told a fault or finds nobody there: at most as often as a test says.
"""

import http.client
import ssl
from collections.abc import Callable
from xmlrpc.client import Error, ServerProxy

AGAIN = (Error, ConnectionError, http.client.HTTPException)


class OldClient:
    """One client of a service at a URL; each call has a connection of its own."""

    def __init__(
        self,
        url: str,
        *,
        patience: int = 1,
        pause: Callable[[], object] = lambda: None,
        trusting: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url
        self._patience = patience
        self._pause = pause
        self._trusting = trusting

    def take(self, *tags: str, sandbox: str = "") -> int:
        """Take a ticket and return its id."""
        number = self.call("takeTicket", list(tags), *([sandbox] if sandbox else []))
        assert isinstance(number, int)
        return number

    def collect(self, number: int | str) -> dict[str, object]:
        """Return what became of a ticket."""
        answer = self.call("collectTicket", number)
        assert isinstance(answer, dict)
        return answer

    def wait(self, number: int | str) -> object:
        """Return what is told of a ticket's machine once it has one."""
        return self.call("waitTicket", number)

    def close(self, number: int | str) -> object:
        """Close a ticket."""
        return self.call("closeTicket", number)

    def call(self, name: str, *arguments: object) -> object:
        """Call until there is an answer, or patience is over."""
        for left in reversed(range(self._patience)):
            try:
                with ServerProxy(self.url, context=self._trusting) as server:
                    return getattr(server, name)(*arguments)
            except AGAIN:
                if not left:
                    raise
                self._pause()
        raise AssertionError("no patience at all")
