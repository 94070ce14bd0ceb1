"""This module reaches a Pulumi backend in S3, or in anything that speaks its protocol.

Credentials come by AWS's own chain, as they do for the CLI; no message shows them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fleet.engines.objects import place_of
from fleet.errors import StoreFailed

_SECONDS = 10
_TRIES = 3
_ABSENT = frozenset({"NoSuchKey", "404"})
_YES = frozenset({"true", "1", "t"})


class S3Objects:
    """A bucket, or what is under one prefix of it."""

    def __init__(self, backend: str) -> None:
        parts = urlsplit(backend)
        folder = parts.path.strip("/")
        self.place = place_of(backend)
        self._bucket = parts.hostname or ""
        self._before = f"{folder}/" if folder else ""
        self._options = dict(parse_qsl(parts.query))

    def read(self, key: str) -> bytes | None:
        """Return an object's content; None when there is no such object."""
        with self._asked() as error_class:
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._before + key)
                return bytes(found["Body"].read())
            except error_class as error:
                if error.response.get("Error", {}).get("Code") in _ABSENT:
                    return None
                raise

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, however many there are."""
        with self._asked():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._before + prefix
            )
            found = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return tuple(sorted(str(key).removeprefix(self._before) for key in found))

    def create(self, key: str, content: bytes) -> None:
        """Write an object on the condition that there is none."""
        with self._asked():
            self._client.put_object(
                Bucket=self._bucket, Key=self._before + key, Body=content, IfNoneMatch="*"
            )

    def remove(self, key: str) -> None:
        """Remove an object."""
        with self._asked():
            self._client.delete_object(Bucket=self._bucket, Key=self._before + key)

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - boto3 ships no types
        import boto3
        from botocore.config import Config

        is_by_path = {
            self._options.get(name, "").lower() for name in ("s3ForcePathStyle", "use_path_style")
        }
        config = Config(
            connect_timeout=_SECONDS,
            read_timeout=_SECONDS,
            retries={"total_max_attempts": _TRIES},
            s3={"addressing_style": "path" if is_by_path & _YES else "auto"},
        )
        session = boto3.Session(profile_name=self._options.get("profile"))
        return session.client(
            "s3",
            region_name=self._options.get("region"),
            endpoint_url=self._endpoint(),
            config=config,
        )

    def _endpoint(self) -> str | None:
        """Return where the server is, with the scheme that older URLs leave out."""
        endpoint = self._options.get("endpoint")
        if not endpoint or "://" in endpoint:
            return endpoint
        plain = {self._options.get(name, "").lower() for name in ("disableSSL", "disable_https")}
        return f"{'http' if plain & _YES else 'https'}://{endpoint}"

    @contextmanager
    def _asked(self) -> Iterator[type[Any]]:
        """Say of what failed why; yields the class of what the server refuses."""
        from botocore import exceptions

        try:
            yield exceptions.ClientError
        except exceptions.ClientError as error:
            said = error.response.get("Error", {})
            raise StoreFailed(
                f"{self.place} refuses {error.operation_name}: {said.get('Code', 'no reason')}: "
                f"{said.get('Message', '')}"
            ) from error
        except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
            raise StoreFailed(f"{self.place} does not answer: {type(error).__name__}") from error
        except (exceptions.BotoCoreError, ValueError) as error:
            raise StoreFailed(f"{self.place} cannot be asked: {error}") from error
