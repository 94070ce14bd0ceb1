"""A written messenger: it keeps what it was given, or takes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.errors import SourceUnreachable


@dataclass
class FakeMessenger:
    """Takes messages while it is up."""

    is_up: bool = True
    sent: list[tuple[str, str, Mapping[str, object]]] = field(default_factory=list)
    tries: int = 0

    def send(self, subject: str, text: str, body: Mapping[str, object]) -> None:
        """Keep a message."""
        self.tries += 1
        if not self.is_up:
            raise SourceUnreachable("the messenger is down")
        self.sent.append((subject, text, body))
