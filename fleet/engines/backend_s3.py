"""This module reaches a Pulumi backend in S3, or in anything that speaks its protocol."""

from fleet.errors import StoreFailed
from fleet.store.s3 import S3Prefix

_SECONDS = 10
_TRIES = 3


class S3Objects:
    """A bucket, or what is under one prefix of it."""

    def __init__(self, backend: str) -> None:
        self._s3 = S3Prefix(
            backend,
            StoreFailed,
            connect_timeout=_SECONDS,
            read_timeout=_SECONDS,
            retries={"total_max_attempts": _TRIES},
        )
        self.place = self._s3.place

    def read(self, key: str) -> bytes | None:
        """Return an object's content; None when there is no such object."""
        found = self._s3.get(key)
        with self._s3.asked():
            return None if found is None else bytes(found.read())

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, however many there are."""
        return self._s3.keys(prefix)

    def create(self, key: str, content: bytes) -> None:
        """Write an object on the condition that there is none."""
        with self._s3.asked():
            self._s3.client.put_object(Body=content, IfNoneMatch="*", **self._s3.at(key))

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._s3.remove(key)
