"""Access S3 with boto3: sessions, and the objects below a prefix of a bucket.

URLs have the form of Pulumi's, `s3://BUCKET/PREFIX?region=…&endpoint=…`. Credentials come from the
default chain of AWS; no message shows credentials.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fleet.errors import FleetError, needing


def new_session(**options: str | None) -> Any:  # noqa: ANN401 - boto3 creates classes at run time
    """Return a new boto3 session with boto3's options, such as `region_name`."""
    # boto3 loads slowly, and most commands do not use AWS.
    import boto3
    from botocore.session import get_session

    session = get_session()
    tables = _service_data()
    session.register_component("data_loader", tables)
    made = boto3.Session(**options, botocore_session=session)
    # Each boto3 session would add its own data folder again.
    tables.search_paths[:] = dict.fromkeys(tables.search_paths)
    return made


@cache
def _service_data() -> Any:  # noqa: ANN401 - botocore has no types
    """Return botocore's service data. It is large, so all sessions share it."""
    from botocore.loaders import create_loader

    return create_loader()


_MISSING_CODES = frozenset({"NoSuchKey", "404", "NoSuchUpload"})
_TRUE_VALUES = frozenset({"true", "1", "t"})


class S3Prefix:
    """The objects below a prefix of an S3 bucket. Methods raise the class `failed` on errors.

    `config` has options of botocore: time-outs and retries.
    """

    def __init__(
        self, url: str, failed: type[FleetError], *, next_step: str = "", **config: object
    ) -> None:
        parts = urlsplit(url)
        folder = parts.path.strip("/")
        self.bucket = parts.hostname or ""
        self.before = f"{folder}/" if folder else ""
        self.address = f"s3://{self.bucket}/{folder}".rstrip("/")
        self._options = dict(parse_qsl(parts.query))
        self._failed = failed
        self._next_step = next_step
        self._config = config

    def at(self, key: str) -> dict[str, str]:
        """Return the bucket and full key of an object, as arguments for boto3."""
        return {"Bucket": self.bucket, "Key": self.before + key}

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return all keys that start with this prefix, sorted."""
        with self.asked():
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.before + prefix
            )
            found = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return tuple(sorted(str(key).removeprefix(self.before) for key in found))

    def get(self, key: str) -> Any:  # noqa: ANN401 - boto3 has no types
        """Return the content of an object as a stream; None if the object is missing."""
        with self.asked(absent_is_fine=True):
            return self.client.get_object(**self.at(key))["Body"]
        return None

    def remove(self, key: str) -> None:
        """Delete an object."""
        with self.asked():
            self.client.delete_object(**self.at(key))

    @cached_property
    def client(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """Return the boto3 client of S3. Loading boto3 is slow, so this is done on first use."""
        with needing("s3", self.address, self._failed):
            from botocore.config import Config

        by_path = self._is_set("s3ForcePathStyle", "use_path_style")
        style = {"addressing_style": "path" if by_path else "auto"}
        session = new_session(profile_name=self._options.get("profile"))
        return session.client(
            "s3",
            region_name=self._options.get("region"),
            endpoint_url=self._endpoint(),
            config=Config(**self._config, s3=style),
        )

    @contextmanager
    def asked(self, *, absent_is_fine: bool = False) -> Iterator[type[Any]]:
        """Raise boto3's errors in the body as `failed`. Yield the class of the server's errors."""
        with needing("s3", self.address, self._failed):
            from botocore import exceptions

        try:
            yield exceptions.ClientError
        except exceptions.ClientError as error:
            said = error.response.get("Error", {})
            if absent_is_fine and said.get("Code") in _MISSING_CODES:
                return
            raise self._failed(
                f"{self.address} refuses {error.operation_name}: {said.get('Code', 'no reason')}: "
                f"{said.get('Message', '')}"
            ) from error
        except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
            raise self._failed(
                f"{self.address} does not answer: {type(error).__name__}{self._next_step}"
            ) from error
        except (exceptions.BotoCoreError, ValueError) as error:
            raise self._failed(f"{self.address} cannot be asked: {error}") from error

    def _endpoint(self) -> str | None:
        """Return the server's URL with a scheme, which older URLs leave out; None for AWS."""
        endpoint = self._options.get("endpoint")
        if not endpoint or "://" in endpoint:
            return endpoint
        plain = self._is_set("disableSSL", "disable_https")
        return f"{'http' if plain else 'https'}://{endpoint}"

    def _is_set(self, *names: str) -> bool:
        return bool({self._options.get(name, "").lower() for name in names} & _TRUE_VALUES)
