"""Publish versions of images to a store: a directory, or S3.

Below the store's address each version has a folder, IMAGE/VERSION/, with the files of its build,
SHA256SUMS, and the mark, `fleet.json`. The mark is written first and says "partial"; it says
"whole" only after every file was read back.

A large file has its name only when it is whole and on the disk; until then it is NAME.partial.

A large file is uploaded in parts; S3 shows it only when all of them are there, and keeps the
parts of an upload that died until they are taken up or removed.
"""

import fcntl
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import ValidationError

from fleet.clock import utc_now
from fleet.errors import FileUnreadable, PublicationRefused, SourceUnreachable
from fleet.images.folder import MANIFEST
from fleet.images.pipeline import Pipeline, Work
from fleet.images.programs import Tell, Total
from fleet.model.images import Manifest, Upload
from fleet.model.values import Value
from fleet.state.files import replace_file
from fleet.state.s3 import S3Prefix

MARK = "fleet.json"
SUMS = "SHA256SUMS"


class Shelf(ABC):
    """Files of one store, by key, as in IMAGE/VERSION/NAME; each raises a FleetError."""

    address: str
    """Its URL, without credentials."""

    @abstractmethod
    def reach(self) -> None:
        """Raise where the store itself is not there: what it holds is not known then."""

    @abstractmethod
    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, sorted; none where nothing was ever published."""

    @abstractmethod
    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield the content of a file; nothing where there is none."""

    @abstractmethod
    def write(self, key: str, content: bytes) -> None:
        """Write a small file, whole or not at all."""

    @abstractmethod
    def put(self, key: str, source: Path, moved: Callable[[int], None]) -> None:
        """Write a large file, going on where an earlier try of the same content ended."""

    @abstractmethod
    def remove(self, prefix: str) -> None:
        """Remove every file whose key begins so, and what is left of unfinished ones."""


class _Mark(Value):
    """Whose a folder is, and what it is to hold."""

    fleet: str
    image: str
    version: str
    sha256: str
    state: Literal["partial", "whole"]
    at: datetime


def _key(mark: _Mark) -> str:
    """Return where a mark belongs; a copy of its folder elsewhere is not fleet's."""
    return f"{mark.image}/{mark.version}/{MARK}"


class StorePublisher(Pipeline):
    """One store: Publisher."""

    kind, noun = "store", "upload"

    def __init__(self, shelf: Shelf, fleet: str, *, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(fleet)
        self.place = shelf.address
        self._shelf = shelf
        self._now = now

    def find(self, version: tuple[str, str] | None = None) -> Iterator[Upload]:
        """Yield every folder that carries this fleet's mark, in its own place: no copy."""
        below = "/".join((*version, "")) if version else ""
        keys = [key for key in self._shelf.keys(below) if key.endswith(f"/{MARK}")]
        for key in keys:
            mark = self._mark(key)
            if mark and mark.fleet == self.fleet and key == _key(mark):
                yield self._upload(mark)

    def upload(self, work: Work, known: Upload | None) -> tuple[Upload, None]:  # noqa: ARG002 - what is there is compared
        """Write the folder of a version, read every file back and mark it as whole."""
        manifest = work.manifest
        before = f"{manifest.image}/{manifest.version}/"
        # In this order: one who publishes the same at once writes the mark first.
        there = [key for key in self._shelf.keys(before) if "/." not in key]
        mark = self._mark(before + MARK)
        if there and (not mark or (mark.fleet, mark.sha256) != (self.fleet, work.content)):
            owner = f"has another disk, of fleet {mark.fleet}" if mark else f"has no mark {MARK}"
            raise PublicationRefused(
                f"{self.place}/{before} {owner}: it is another upload than fleet {self.fleet}'s; "
                "move it away"
            )
        wanted = _Mark(
            fleet=self.fleet,
            image=manifest.image,
            version=manifest.version,
            sha256=work.content,
            state="partial",
            at=self._now(),
        )
        self._write(wanted, manifest, work.folder, work.tell)
        return self._upload(wanted.altered(state="whole")), None

    def owner(self, upload_id: str) -> str | None:
        """Return the fleet in the mark of the folder that an upload is in."""
        before = self._before(upload_id)
        if not before:
            return None
        self._shelf.reach()
        mark = self._mark(before + MARK)
        return None if mark is None else mark.fleet

    def remove(self, upload_id: str) -> None:
        """Remove the folder that an upload is in; its mark goes last."""
        if before := self._before(upload_id):  # else it would be all keys
            self._remove(before)

    def _before(self, upload_id: str) -> str:
        """Return the keys' beginning of an upload; empty where it is of another store."""
        key = upload_id.removeprefix(f"{self.place}/")
        before, slash, name = key.rpartition("/")
        return before + slash if name and key != upload_id else ""

    def _write(self, mark: _Mark, manifest: Manifest, folder: Path, tell: Tell) -> None:
        before = f"{mark.image}/{mark.version}/"
        own = manifest.model_dump_json(indent=1).encode()
        files = dict(manifest.files)
        self._note(mark)
        upload = Total(tell, "upload", sum(each.size for each in files.values()))
        for name in sorted(files):
            self._shelf.put(before + name, folder / name, upload.move)
        self._shelf.write(before + MANIFEST, own)
        sums = {name: each.sha256 for name, each in files.items()}
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
                # What is there would be gone on with by the next run as if it were right.
                self._remove(before)
                raise PublicationRefused(
                    f"{self.place}/{before}{name} has sha256 {seen.hexdigest()} where "
                    f"{sums[name]} was written; does the file in {folder} still match its "
                    "manifest? The upload was removed"
                )
        self._note(mark.altered(state="whole"))

    def _remove(self, before: str) -> None:
        for key in self._shelf.keys(before):
            if key != before + MARK:
                self._shelf.remove(key)
        self._shelf.remove(before)

    def _note(self, mark: _Mark) -> None:
        self._shelf.write(_key(mark), mark.model_dump_json(indent=1).encode())

    def _mark(self, key: str) -> _Mark | None:
        content = next(self._shelf.pieces(key), None)
        if content is None:
            return None
        try:
            return _Mark.model_validate_json(content)
        except ValidationError as error:
            raise PublicationRefused(
                f"{self.place}/{key} is no mark of fleet; move it away"
            ) from error

    def _upload(self, mark: _Mark) -> Upload:
        keys = self._shelf.keys(f"{mark.image}/{mark.version}/")
        disk = next((key.rpartition("/")[2] for key in keys if "/disk." in key), "disk.qcow2")
        return Upload(
            id=f"{self.place}/{mark.image}/{mark.version}/{disk}",
            image=mark.image,
            version=mark.version,
            sha256=mark.sha256,
            whole=mark.state == "whole",
            since=mark.at,
        )


_PIECE = 1 << 20
_PARTIAL = ".partial"
_MODE = 0o644


class Directory(Shelf):
    """A shelf in a directory, `file:///PATH`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.address = root.as_uri()

    def reach(self) -> None:
        """Raise where there is no such directory; the first file that is published makes it."""
        if not self._root.is_dir():
            raise FileUnreadable(
                f"{self._root} does not exist, so its contents are unknown; mount it, or make an "
                "empty one if it is lost"
            )

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the names of files that begin so; those that are not whole too."""
        with _reporting_unreadable(self._root):
            files = [path for path in self._root.rglob("*") if path.is_file()]
        names = (path.relative_to(self._root).as_posix() for path in files)
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield the content of a file; nothing where there is none."""
        path = self._root / key
        with _reporting_unreadable(path), suppress(FileNotFoundError), path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    def write(self, key: str, content: bytes) -> None:
        """Write a small file, whole or not at all."""
        path = self._root / key
        with _reporting_unreadable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content, mode=_MODE)
            _sync(path.parent)

    def put(self, key: str, source: Path, moved: Callable[[int], None]) -> None:
        """Copy a file; what an earlier try wrote of it is compared and kept."""
        path = self._root / key
        draft = path.with_name(path.name + _PARTIAL)
        with _reporting_unreadable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as ours, draft.open("a+b") as theirs:
                # A concurrent writer of the same file waits, and finds it done.
                fcntl.flock(theirs, fcntl.LOCK_EX)
                _copy(ours, theirs, moved)
                if draft.exists():
                    draft.replace(path)
            _sync(path.parent)

    def remove(self, prefix: str) -> None:
        """Remove the files that begin so, and folders that are empty by it."""
        for key in self.keys(prefix):
            path = self._root / key
            with _reporting_unreadable(path):
                path.unlink(missing_ok=True)
                for folder in (path.parent, path.parent.parent):
                    if folder != self._root:
                        with suppress(OSError):  # it holds something else
                            folder.rmdir()


def _copy(ours: BinaryIO, theirs: BinaryIO, moved: Callable[[int], None]) -> None:
    """Make one file like the other, from the first piece in which they differ."""
    theirs.seek(0)
    while piece := ours.read(_PIECE):
        if theirs.read(len(piece)) != piece:
            ours.seek(-len(piece), os.SEEK_CUR)
            break
        moved(len(piece))
    # Opened to append: what is written goes to the end, wherever the reading was.
    theirs.truncate(ours.tell())
    while piece := ours.read(_PIECE):
        theirs.write(piece)
        moved(len(piece))
    theirs.flush()
    os.fsync(theirs.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _reporting_unreadable(path: Path) -> Iterator[None]:
    """Say of a file that cannot be read or written why."""
    try:
        yield
    except OSError as error:
        raise FileUnreadable(
            f"{error.filename or path}: {error.strerror}; the partial upload stays, "
            "and the next `fleet image publish` continues it"
        ) from error


_PART = 16 << 20
_MOST_PARTS = 10_000
_SECONDS = 60
_TRIES = 5
_ENDED = "NoSuchUpload"
_NEXT = "; the next `fleet image publish` continues from here"


class Bucket(Shelf):
    """A shelf below a prefix of a bucket, `s3://BUCKET/PREFIX?region=…&endpoint=…`."""

    def __init__(self, url: str, *, part_bytes: int = _PART) -> None:
        self._part = part_bytes
        self._s3 = S3Prefix(
            url,
            SourceUnreachable,
            next_step=_NEXT,
            connect_timeout=_SECONDS,
            read_timeout=_SECONDS,
            retries={"total_max_attempts": _TRIES, "mode": "standard"},
            # Many servers that speak S3 know no other checksums than those they are asked for.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self.address = self._s3.address

    def reach(self) -> None:
        """Raise if there is no such bucket, or no answer."""
        with self._s3.asked():
            self._s3.client.list_objects_v2(
                Bucket=self._s3.bucket, Prefix=self._s3.before, MaxKeys=1
            )

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, however many there are."""
        return self._s3.keys(prefix)

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield the content of an object; nothing where there is none."""
        if (found := self._s3.get(key)) is not None:
            with self._s3.asked():
                yield from found.iter_chunks(_PIECE)

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
