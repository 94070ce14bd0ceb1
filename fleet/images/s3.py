"""This module keeps published files in S3, or in anything that speaks its protocol.

A large file is uploaded in parts; S3 shows it only when all of them are there, and keeps the
parts of an upload that died until they are taken up or removed.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fleet.errors import SourceUnreachable
from fleet.store.s3 import S3Prefix

_PIECE = 1 << 20
_PART = 16 << 20
_MOST_PARTS = 10_000
_SECONDS = 60
_TRIES = 5
_ENDED = "NoSuchUpload"
_NEXT = "; the next `fleet image publish` goes on from here"


class Bucket:
    """A Shelf below a prefix of a bucket, `s3://BUCKET/PREFIX?region=…&endpoint=…`."""

    def __init__(self, url: str, *, part_bytes: int = _PART, tries: int = _TRIES) -> None:
        self._part = part_bytes
        self._s3 = S3Prefix(
            url,
            SourceUnreachable,
            next_step=_NEXT,
            connect_timeout=_SECONDS,
            read_timeout=_SECONDS,
            retries={"total_max_attempts": tries, "mode": "standard"},
            # Many servers that speak S3 know no other checksums than those they are asked for.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self.place = self._s3.place

    def reach(self) -> None:
        """Raise where there is no such bucket, or nobody answers."""
        with self._s3.asked():
            self._s3.client.list_objects_v2(
                Bucket=self._s3.bucket, Prefix=self._s3.before, MaxKeys=1
            )

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, however many there are."""
        return self._s3.keys(prefix)

    def read(self, key: str, limit: int) -> bytes | None:
        """Return a small object; None where there is none."""
        found = self._s3.get(key)
        return None if found is None else bytes(found.read(limit))

    def write(self, key: str, content: bytes) -> None:
        """Write a small object."""
        with self._s3.asked():
            self._s3.client.put_object(Body=content, **self._s3.at(key))

    def put(self, key: str, source: Path, moved: Callable[[int], None]) -> None:
        """Upload a file in parts; those that an earlier try uploaded are compared and kept."""
        with self._s3.asked() as error_class:
            try:
                self._put(key, source, moved)
            except error_class as error:
                # One who uploads the same at once has ended it; what is there is read back.
                if self._s3.get(key) is not None:
                    return
                if error.response["Error"]["Code"] != _ENDED:
                    raise
                # Of some servers it is neither an upload any more nor an object yet.
                self._put(key, source, lambda _: None)

    def sha256(self, key: str, moved: Callable[[int], None]) -> str:
        """Return the checksum of an object, read back; empty where there is none."""
        found, digest = self._s3.get(key), hashlib.sha256()
        if found is None:
            return ""
        with self._s3.asked():
            for piece in found.iter_chunks(_PIECE):
                digest.update(piece)
                moved(len(piece))
        return digest.hexdigest()

    def remove(self, prefix: str) -> None:
        """Remove the objects that begin so, their unfinished uploads first."""
        for upload in self._uploads(prefix):
            with self._s3.asked(absent_is_fine=True):
                self._s3.client.abort_multipart_upload(
                    Bucket=self._s3.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )
        for key in self.keys(prefix):
            self._s3.remove(key)

    def _put(self, key: str, source: Path, moved: Callable[[int], None]) -> None:
        with source.open("rb") as file:
            upload = self._begun(key) or self._s3.client.create_multipart_upload(
                **self._s3.at(key)
            )
            at = {**self._s3.at(key), "UploadId": upload["UploadId"]}
            there = self._parts(at)
            done = [
                {"PartNumber": number, "ETag": self._put_part(at, number, content, there)}
                for number, content in _parts_of(file, self._part_size(source), moved)
            ]
            self._s3.client.complete_multipart_upload(**at, MultipartUpload={"Parts": done})

    def _part_size(self, source: Path) -> int:
        return max(self._part, -(-source.stat().st_size // _MOST_PARTS))

    def _begun(self, key: str) -> Any:  # noqa: ANN401 - boto3 ships no types
        """Return the latest upload of a key that did not end."""
        mine = [each for each in self._uploads(key) if each["Key"] == self._s3.before + key]
        return max(mine, key=lambda each: each["Initiated"], default=None)

    def _uploads(self, prefix: str) -> list[Any]:
        with self._s3.asked():
            pages = self._s3.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._s3.bucket, Prefix=self._s3.before + prefix
            )
            return [each for page in pages for each in page.get("Uploads", ())]

    def _parts(self, at: dict[str, str]) -> dict[int, str]:
        pages = self._s3.client.get_paginator("list_parts").paginate(**at)
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
        sent = self._s3.client.upload_part(**at, PartNumber=number, Body=content)
        return str(sent["ETag"])


def _parts_of(
    file: BinaryIO, size: int, moved: Callable[[int], None]
) -> Iterator[tuple[int, bytes]]:
    """Yield each part with its number; an empty file has one, as S3 wants one at least."""
    number, content = 1, file.read(size)
    while content or number == 1:
        yield number, content
        moved(len(content))
        number, content = number + 1, file.read(size)
