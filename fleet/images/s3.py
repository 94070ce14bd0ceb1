"""This module keeps published files in S3, or in anything that speaks its protocol.

A large file is uploaded in parts; S3 shows it only when all of them are there, and keeps the
parts of an upload that died until they are taken up or removed.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, urlsplit

from fleet.errors import SourceUnreachable

_PIECE = 1 << 20
_PART = 16 << 20
_MOST_PARTS = 10_000
_SECONDS = 60
_TRIES = 5
_ABSENT = frozenset({"NoSuchKey", "404", "NoSuchUpload"})


class Bucket:
    """A Shelf below a prefix of a bucket, `s3://BUCKET/PREFIX?region=…&endpoint=…`."""

    def __init__(self, url: str, *, part_bytes: int = _PART, tries: int = _TRIES) -> None:
        parts = urlsplit(url)
        self._bucket, folder = parts.hostname or "", parts.path.strip("/")
        self._before = f"{folder}/" if folder else ""
        self._options = dict(parse_qsl(parts.query))
        self._part = part_bytes
        self._tries = tries
        self.place = f"s3://{self._bucket}/{folder}".rstrip("/")

    def reach(self) -> None:
        """Raise where there is no such bucket, or nobody answers."""
        with self._asked():
            self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._before, MaxKeys=1)

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, however many there are."""
        with self._asked():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._before + prefix
            )
            found = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return tuple(sorted(str(key).removeprefix(self._before) for key in found))

    def read(self, key: str, limit: int) -> bytes | None:
        """Return a small object; None where there is none."""
        found = self._get(key)
        return None if found is None else bytes(found.read(limit))

    def write(self, key: str, content: bytes) -> None:
        """Write a small object."""
        with self._asked():
            self._client.put_object(Body=content, **self._at(key))

    def put(self, key: str, source: Path, moved: Callable[[int], None]) -> None:
        """Upload a file in parts; those that an earlier try uploaded are compared and kept."""
        with self._asked() as error_class, source.open("rb") as file:
            upload = self._begun(key) or self._client.create_multipart_upload(**self._at(key))
            at = {**self._at(key), "UploadId": upload["UploadId"]}
            try:
                there = self._parts(at)
                done = [
                    {"PartNumber": number, "ETag": self._put_part(at, number, content, there)}
                    for number, content in _parts_of(file, self._part_size(source), moved)
                ]
                self._client.complete_multipart_upload(**at, MultipartUpload={"Parts": done})
            except error_class:
                # One who uploads the same at once has ended it; what is there is read back.
                if self._get(key) is None:
                    raise

    def sha256(self, key: str, moved: Callable[[int], None]) -> str:
        """Return the checksum of an object, read back; empty where there is none."""
        found, digest = self._get(key), hashlib.sha256()
        if found is None:
            return ""
        with self._asked():
            for piece in found.iter_chunks(_PIECE):
                digest.update(piece)
                moved(len(piece))
        return digest.hexdigest()

    def remove(self, prefix: str) -> None:
        """Remove the objects that begin so, their unfinished uploads first."""
        for upload in self._uploads(prefix):
            with self._asked(absent_is_fine=True):
                self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )
        for key in self.keys(prefix):
            with self._asked():
                self._client.delete_object(**self._at(key))

    def _part_size(self, source: Path) -> int:
        return max(self._part, -(-source.stat().st_size // _MOST_PARTS))

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._before + key}

    def _get(self, key: str) -> Any:  # noqa: ANN401 - boto3 ships no types
        with self._asked() as error_class:
            try:
                return self._client.get_object(**self._at(key))["Body"]
            except error_class as error:
                if error.response.get("Error", {}).get("Code") in _ABSENT:
                    return None
                raise

    def _begun(self, key: str) -> Any:  # noqa: ANN401 - same
        """Return the latest upload of a key that did not end."""
        mine = [each for each in self._uploads(key) if each["Key"] == self._before + key]
        return max(mine, key=lambda each: each["Initiated"], default=None)

    def _uploads(self, prefix: str) -> list[Any]:
        with self._asked():
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._before + prefix
            )
            return [each for page in pages for each in page.get("Uploads", ())]

    def _parts(self, at: dict[str, str]) -> dict[int, str]:
        pages = self._client.get_paginator("list_parts").paginate(**at)
        return {
            each["PartNumber"]: each["ETag"] for page in pages for each in page.get("Parts", ())
        }

    def _put_part(
        self, at: dict[str, str], number: int, content: bytes, there: dict[int, str]
    ) -> str:
        # S3's name of a part is its MD5, but for some encryptions: then it is sent again. That
        # all is right is seen by SHA-256 when the file is read back.
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if there.get(number, "").strip('"') == digest:
            return there[number]
        sent = self._client.upload_part(**at, PartNumber=number, Body=content)
        return str(sent["ETag"])

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - same
        # boto3 is slow to load, and most commands publish nothing.
        import boto3
        from botocore.config import Config

        by_path = self._options.get("s3ForcePathStyle", "").lower() in ("true", "1")
        config = Config(
            connect_timeout=_SECONDS,
            read_timeout=_SECONDS,
            retries={"total_max_attempts": self._tries, "mode": "standard"},
            # Many servers that speak S3 know no other checksums than those they are asked for.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if by_path else "auto"},
        )
        session = boto3.Session(profile_name=self._options.get("profile"))
        return session.client(
            "s3",
            region_name=self._options.get("region"),
            endpoint_url=self._options.get("endpoint"),
            config=config,
        )

    @contextmanager
    def _asked(self, *, absent_is_fine: bool = False) -> Iterator[type[Any]]:
        """Say of what failed why; yields the class of what the server refuses."""
        from botocore import exceptions

        try:
            yield exceptions.ClientError
        except exceptions.ClientError as error:
            said = error.response.get("Error", {})
            if absent_is_fine and said.get("Code") in _ABSENT:
                return
            raise SourceUnreachable(
                f"{self.place} refuses {error.operation_name}: {said.get('Code', 'no reason')}: "
                f"{said.get('Message', '')}"
            ) from error
        except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
            raise SourceUnreachable(
                f"{self.place} does not answer: {type(error).__name__}; the next `fleet image "
                "publish` goes on from here"
            ) from error
        except (exceptions.BotoCoreError, ValueError) as error:
            raise SourceUnreachable(f"{self.place} cannot be asked: {error}") from error


def _parts_of(
    file: BinaryIO, size: int, moved: Callable[[int], None]
) -> Iterator[tuple[int, bytes]]:
    """Yield each part with its number; an empty file has one, as S3 wants one at least."""
    number, content = 1, file.read(size)
    while content or number == 1:
        yield number, content
        moved(len(content))
        number, content = number + 1, file.read(size)
