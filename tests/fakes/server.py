"""A server of a queue that tells of itself what a test says."""

from collections.abc import Mapping
from datetime import UTC, datetime

from fleet.errors import SourceUnreachable
from fleet.model.doctor import Machinery, Summary

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
AMD64 = Machinery(registered=4, connected=4, busy=4, running=2, pending=2)


class FakeServer:
    """A server whose user is `fleet`, with four workers of amd64."""

    def __init__(  # noqa: PLR0913 - what it tells
        self,
        *,
        user: str = "fleet",
        architectures: Mapping[str, Machinery] | None = None,
        server_time: datetime | None = NOON,
        counts: Mapping[str, int] | None = None,
        refuses: str = "",
        fix: str = "",
        broken: str = "",
    ) -> None:
        self._user = user
        self._architectures = {"amd64": AMD64} if architectures is None else architectures
        self._server_time = server_time
        self._counts = {"debian": 29} if counts is None else counts
        self._refuses = refuses
        self._fix = fix
        self._broken = broken

    def summary(self) -> Summary:
        """Return what it tells anyone."""
        if self._broken:
            raise SourceUnreachable(self._broken)
        return Summary(
            server_time=self._server_time,
            asked_at=NOON,
            architectures=dict(self._architectures),
        )

    def user(self) -> str:
        """Return whose token it is asked with."""
        if self._broken or self._refuses:
            raise SourceUnreachable(self._broken or self._refuses, fix=self._fix)
        return self._user

    def counts(self) -> Mapping[str, int]:
        """Return how much is pending."""
        if self._broken:
            raise SourceUnreachable(self._broken)
        return self._counts
