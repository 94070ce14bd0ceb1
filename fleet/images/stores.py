"""Publish versions of images to a store: a directory, or S3.

Each version has a folder IMAGE/VERSION/ in the store, with the files of its build, SHA256SUMS and
a mark, `fleet.json`. The mark is written first, with the state "partial". After every file was
read back, the state becomes "whole".

In a directory, a large file is named NAME.partial until it is complete and synced to the disk.

In S3, a large file is a multipart upload. S3 shows the file when all parts are complete, and keeps
the parts of an interrupted upload until the upload is resumed or aborted.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from fleet.clock import utc_now
from fleet.errors import FileUnreadable, PublicationRefused, SourceUnreachable
from fleet.images.folder import MANIFEST
from fleet.model.images import ImageDisk, Manifest, Tell, Total, Upload
from fleet.model.values import Value
from fleet.state.files import replace_file
from fleet.state.s3 import S3Prefix

MARK = "fleet.json"
SUMS = "SHA256SUMS"


class _Mark(Value):
    """Content of the mark in a version's folder: owner, checksum of the disk, and state."""

    fleet: str
    image: str
    version: str
    sha256: str
    state: Literal["partial", "whole"]
    at: datetime

    @property
    def folder(self) -> str:
        """Return the key prefix of the version's folder, which also contains the mark."""
        return f"{self.image}/{self.version}/"


class StorePublisher:
    """Publisher to one store. It implements the port Publisher."""

    kind, noun = "store", "upload"

    def __init__(
        self, shelf: "Directory | Bucket", fleet: str, *, now: Callable[[], datetime] = utc_now
    ) -> None:
        self.fleet = fleet
        self.place = shelf.address
        self._shelf = shelf
        self._now = now

    def find(self, version: tuple[str, str] | None = None) -> Iterator[Upload]:
        """Yield the upload in each folder marked as this fleet's, except for copied folders."""
        for key in self._shelf.keys("/".join((*version, "")) if version else ""):
            mark = self._read_mark(key) if key.endswith(f"/{MARK}") else None
            if mark and mark.fleet == self.fleet and key == mark.folder + MARK:
                yield self._describe_upload(mark)

    def upload(self, disk: ImageDisk, known: Upload | None) -> tuple[Upload, None]:  # noqa: ARG002 - the store is compared
        """Write the folder of a version, read every file back, and mark the folder as whole."""
        manifest = disk.manifest
        wanted = _Mark(
            fleet=self.fleet,
            image=manifest.image,
            version=manifest.version,
            sha256=disk.content,
            state="partial",
            at=self._now(),
        )
        # List before reading the mark: a concurrent publisher writes its mark before its files.
        there = [key for key in self._shelf.keys(wanted.folder) if "/." not in key]
        mark = self._read_mark(wanted.folder + MARK)
        if there and (not mark or (mark.fleet, mark.sha256) != (self.fleet, disk.content)):
            owner = f"has another disk, of fleet {mark.fleet}" if mark else f"has no mark {MARK}"
            raise PublicationRefused(
                f"{self.place}/{wanted.folder} {owner}: it is another upload than fleet "
                f"{self.fleet}'s; move it away"
            )
        self._write_mark(wanted)
        self._write_files(wanted.folder, manifest, Path(disk.folder), disk.tell)
        whole = wanted.altered(state="whole")
        self._write_mark(whole)
        return self._describe_upload(whole), None

    def owner(self, upload_id: str) -> str | None:
        """Return the fleet that owns an upload; None if it is unmarked or in another store."""
        before = self._folder_key(upload_id)
        if not before:
            return None
        self._shelf.reach()
        mark = self._read_mark(before + MARK)
        return None if mark is None else mark.fleet

    def remove(self, upload_id: str) -> None:
        """Remove the folder of an upload. The mark is removed last."""
        if before := self._folder_key(upload_id):  # an empty prefix would match all keys
            self._remove_folder(before)

    def clean_others(self, before: datetime) -> tuple[str, ...]:  # noqa: ARG002 - the port's own argument
        """Return an empty tuple, because uploads to a store rent no machines."""
        return ()

    def _folder_key(self, upload_id: str) -> str:
        """Return the key prefix of an upload's folder; empty if the upload is in another store."""
        key = upload_id.removeprefix(f"{self.place}/")
        before, slash, name = key.rpartition("/")
        return before + slash if name and key != upload_id else ""

    def _write_files(self, before: str, manifest: Manifest, folder: Path, tell: Tell) -> None:
        """Write the files of a version and their checksums, and read all files back."""
        own = manifest.model_dump_json(indent=1).encode()
        sums = {name: each.sha256 for name, each in manifest.files.items()}
        upload = Total(tell, "upload", sum(each.size for each in manifest.files.values()))
        for name in sorted(sums):
            self._shelf.put(before + name, folder / name, upload.move)
        self._shelf.write(before + MANIFEST, own)
        sums[MANIFEST] = hashlib.sha256(own).hexdigest()
        lines = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
        self._shelf.write(before + SUMS, lines.encode())
        back = Total(tell, "read back", upload.total + len(own))
        for name in sorted(sums):
            seen = hashlib.sha256()
            for piece in self._shelf.pieces(before + name):
                seen.update(piece)
                back.move(len(piece))
            if seen.hexdigest() != sums[name]:
                # Remove the files, or the next run would resume from the damaged content.
                self._remove_folder(before)
                raise PublicationRefused(
                    f"{self.place}/{before}{name} has sha256 {seen.hexdigest()} where "
                    f"{sums[name]} was written; does the file in {folder} still match its "
                    "manifest? The upload was removed"
                )

    def _remove_folder(self, before: str) -> None:
        for key in self._shelf.keys(before):
            if key != before + MARK:
                self._shelf.remove(key)
        self._shelf.remove(before)

    def _write_mark(self, mark: _Mark) -> None:
        self._shelf.write(mark.folder + MARK, mark.model_dump_json(indent=1).encode())

    def _read_mark(self, key: str) -> _Mark | None:
        content = next(self._shelf.pieces(key), None)
        if content is None:
            return None
        try:
            return _Mark.model_validate_json(content)
        except ValidationError as error:
            raise PublicationRefused(
                f"{self.place}/{key} is no mark of fleet; move it away"
            ) from error

    def _describe_upload(self, mark: _Mark) -> Upload:
        keys = self._shelf.keys(mark.folder)
        disk = next((key for key in keys if "/disk." in key), f"{mark.folder}disk.qcow2")
        return Upload(
            id=f"{self.place}/{disk}",
            image=mark.image,
            version=mark.version,
            sha256=mark.sha256,
            whole=mark.state == "whole",
            since=mark.at,
        )


_CHUNK_BYTES = 1 << 20
_PARTIAL = ".partial"
_FILE_MODE = 0o644


class Directory:
    """The files of a directory, with a URL `file:///PATH`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.address = root.as_uri()

    def reach(self) -> None:
        """Raise FileUnreadable if the directory is missing. The first publication creates it."""
        if not self._root.is_dir():
            raise FileUnreadable(
                f"{self._root} does not exist, so its contents are unknown; mount it, or make an "
                "empty one if it is lost"
            )

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the names of files with a prefix, including unfinished files, sorted."""
        with _reporting_unreadable(self._root):
            files = [path for path in self._root.rglob("*") if path.is_file()]
        names = (path.relative_to(self._root).as_posix() for path in files)
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield the content of a file in chunks; nothing if the file does not exist."""
        path = self._root / key
        with _reporting_unreadable(path), suppress(FileNotFoundError), path.open("rb") as file:
            while piece := file.read(_CHUNK_BYTES):
                yield piece

    def write(self, key: str, content: bytes) -> None:
        """Write a small file atomically."""
        path = self._root / key
        with _reporting_unreadable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content, mode=_FILE_MODE)
            _sync(path.parent)

    def put(self, key: str, source: Path, moved: Callable[[int], None]) -> None:
        """Copy a file. Keep the equal part that an earlier attempt wrote."""
        path = self._root / key
        draft = path.with_name(path.name + _PARTIAL)
        with _reporting_unreadable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as ours, draft.open("a+b") as theirs:
                # A concurrent writer of the same file waits for the lock and finds it complete.
                fcntl.flock(theirs, fcntl.LOCK_EX)
                # Start with the first chunk that differs.
                theirs.seek(0)
                while piece := ours.read(_CHUNK_BYTES):
                    if theirs.read(len(piece)) != piece:
                        ours.seek(-len(piece), os.SEEK_CUR)
                        break
                    moved(len(piece))
                # In append mode, each write goes to the end, regardless of the read position.
                theirs.truncate(ours.tell())
                while piece := ours.read(_CHUNK_BYTES):
                    theirs.write(piece)
                    moved(len(piece))
                theirs.flush()
                os.fsync(theirs.fileno())
                if draft.exists():
                    draft.replace(path)
            _sync(path.parent)

    def remove(self, prefix: str) -> None:
        """Remove the files with a prefix, and the folders that become empty."""
        for key in self.keys(prefix):
            path = self._root / key
            with _reporting_unreadable(path):
                path.unlink(missing_ok=True)
                for folder in (path.parent, path.parent.parent):
                    if folder != self._root:
                        with suppress(OSError):  # the folder is not empty
                            folder.rmdir()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _reporting_unreadable(path: Path) -> Iterator[None]:
    """Raise FileUnreadable with the reason if the body cannot read or write a file."""
    try:
        yield
    except OSError as error:
        raise FileUnreadable(
            f"{error.filename or path}: {error.strerror}; the partial upload stays, "
            "and the next `fleet image publish` continues it"
        ) from error


_PART_BYTES = 16 << 20
_MAX_PARTS = 10_000
_TIMEOUT_SECONDS = 60
_MAX_ATTEMPTS = 5
_UPLOAD_ENDED = "NoSuchUpload"
_RESUME_ADVICE = "; the next `fleet image publish` continues from here"


class Bucket:
    """The files below a prefix of an S3 bucket, `s3://BUCKET/PREFIX?region=…&endpoint=…`."""

    def __init__(self, url: str, *, part_bytes: int = _PART_BYTES) -> None:
        self._part = part_bytes
        self._s3 = S3Prefix(
            url,
            SourceUnreachable,
            next_step=_RESUME_ADVICE,
            connect_timeout=_TIMEOUT_SECONDS,
            read_timeout=_TIMEOUT_SECONDS,
            retries={"total_max_attempts": _MAX_ATTEMPTS, "mode": "standard"},
            # Many S3-compatible servers do not support checksums by default.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self.address = self._s3.address

    def reach(self) -> None:
        """Raise SourceUnreachable if the bucket does not exist or the server does not respond."""
        with self._s3.asked():
            self._s3.client.list_objects_v2(
                Bucket=self._s3.bucket, Prefix=self._s3.before, MaxKeys=1
            )

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return all keys with a prefix."""
        return self._s3.keys(prefix)

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield the content of an object in chunks; nothing if the object does not exist."""
        if (found := self._s3.get(key)) is not None:
            with self._s3.asked():
                yield from found.iter_chunks(_CHUNK_BYTES)

    def write(self, key: str, content: bytes) -> None:
        """Write a small object."""
        with self._s3.asked():
            self._s3.client.put_object(Body=content, **self._s3.at(key))

    def put(self, key: str, source: Path, moved: Callable[[int], None]) -> None:
        """Upload a file. Keep the equal parts that an earlier attempt uploaded."""
        with self._s3.asked() as error_class:
            try:
                self._upload_parts(key, source, moved)
            except error_class as error:
                # A concurrent run completed the same upload. The caller reads the object back.
                if self._s3.get(key) is not None:
                    return
                if error.response["Error"]["Code"] != _UPLOAD_ENDED:
                    raise
                # On some servers, a completed upload is not immediately visible as an object.
                self._upload_parts(key, source, lambda _: None)

    def remove(self, prefix: str) -> None:
        """Abort the unfinished uploads with a prefix, then remove the objects with the prefix."""
        for upload in self._list_unfinished(prefix):
            with self._s3.asked(absent_is_fine=True):
                self._s3.client.abort_multipart_upload(
                    Bucket=self._s3.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )
        for key in self.keys(prefix):
            self._s3.remove(key)

    def _upload_parts(self, key: str, source: Path, moved: Callable[[int], None]) -> None:
        """Upload a file as parts, into the latest unfinished upload of the key if there is one."""
        mine = [
            each for each in self._list_unfinished(key) if each["Key"] == self._s3.before + key
        ]
        upload = max(
            mine, key=lambda each: each["Initiated"], default=None
        ) or self._s3.client.create_multipart_upload(**self._s3.at(key))
        at = {**self._s3.at(key), "UploadId": upload["UploadId"]}
        pages = self._s3.client.get_paginator("list_parts").paginate(**at)
        there = {
            each["PartNumber"]: each["ETag"] for page in pages for each in page.get("Parts", ())
        }
        size = max(self._part, -(-source.stat().st_size // _MAX_PARTS))
        done: list[dict[str, object]] = []
        with source.open("rb") as file:
            # S3 requires one part even for an empty file.
            while (content := file.read(size)) or not done:
                number = len(done) + 1
                # The ETag of a part is its MD5, except with some encryptions; the part is then
                # sent again. The SHA-256 of the whole file is verified when it is read back.
                digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
                tag = there.get(number, "")
                if tag.strip('"') != digest:
                    sent = self._s3.client.upload_part(**at, PartNumber=number, Body=content)
                    tag = sent["ETag"]
                done.append({"PartNumber": number, "ETag": tag})
                moved(len(content))
        self._s3.client.complete_multipart_upload(**at, MultipartUpload={"Parts": done})

    def _list_unfinished(self, prefix: str) -> list[Any]:
        with self._s3.asked():
            pages = self._s3.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._s3.bucket, Prefix=self._s3.before + prefix
            )
            return [each for page in pages for each in page.get("Uploads", ())]
