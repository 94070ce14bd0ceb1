"""This module has a Debusine server build images: it posts, follows and takes what came of it.

A build that is given up is aborted at the server. The token goes to that server alone.
"""

import gzip
import hashlib
import io
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.errors import BuildFailed
from fleet.image_request import TASK, customization_script, task_data, why_not
from fleet.images import folder
from fleet.images.base import kernel_of, packages_of
from fleet.images.disk import locked
from fleet.images.manifests import manifest_of
from fleet.images.role import ansible_folder
from fleet.manifest import BuildOrder, BuildStep, Manifest, Package
from fleet.recipes import role_variables

_SECONDS = httpx.Timeout(60, connect=10)
_PIECE = 1 << 20
_MOST_FAILURES = 10
"""Looks in a row that may come to nothing before the build is given up."""
_IMAGE = "debian:system-image"
_OVER = ("completed", "aborted")
_REFUSED = (401, 403)
_OK = 300
Shape = TypeVar("Shape", bound=BaseModel)


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Request(_Shape):
    """A work request, as the server tells of it."""

    id: int
    status: str
    result: str = ""
    artifacts: tuple[int, ...] = ()


class _File(_Shape):
    size: int
    url: str
    checksums: dict[str, str] = {}


class _Artifact(_Shape):
    category: str
    data: dict[str, Any]
    files: dict[str, _File] = {}


@dataclass(frozen=True)
class RequestBuilder:
    """Bakes by a work request of a Debusine server; its user has to be a contributor there."""

    images: Path
    url: str
    scope: str
    token: str = field(repr=False)
    workspace: str | None = None
    mirror: str | None = None
    wait: Callable[[float], None] = time.sleep
    every: float = 10

    def build(self, order: BuildOrder, tell: Callable[[BuildStep], None]) -> Manifest:
        """Have a version built, and take it into its folder."""
        mirror = self.mirror or order.recipe.mirror
        if reason := why_not(order.recipe, mirror):
            raise BuildFailed(reason)
        headers = {"Token": self.token, "X-Debusine-Scope": self.scope, "User-Agent": "fleet"}
        with (
            locked(self.images / order.image),
            httpx.Client(timeout=_SECONDS, headers=headers) as client,
        ):
            run = _Run(self, order, client, tell)
            partial = folder.open_build(self.images, order.image, order.version)
            try:
                with run.phase("submit"):
                    number = run.submit(_data(order, str(mirror)))
                try:
                    artifacts = run.follow(number)
                except BaseException:
                    run.abort(number)
                    raise
                with run.phase("take"):
                    artifact = run.take(number, artifacts, partial)
                run.note(partial / folder.LOG)
                manifest = manifest_of(order, "debusine", _packages(artifact), run.seconds)
                return folder.finish_build(partial, manifest)[1]
            except OSError as error:
                raise BuildFailed(str(error)) from error
            except httpx.HTTPError as error:
                raise BuildFailed(f"what {self.url} was sending broke off: {error}") from error
            finally:
                folder.drop_build(partial)


class _Run:
    """One build at a server."""

    def __init__(
        self,
        builder: RequestBuilder,
        order: BuildOrder,
        client: httpx.Client,
        tell: Callable[[BuildStep], None],
    ) -> None:
        self._builder = builder
        self._order = order
        self._client = client
        self._tell = tell
        self._began = time.monotonic()
        self._base = builder.url.rstrip("/")
        self._lines: list[str] = []
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tell of a phase, and count how long it takes."""
        began = time.monotonic()
        self._say(name)
        yield
        self.seconds[name] = round(time.monotonic() - began, 3)

    def submit(self, data: dict[str, object]) -> int:
        """Post the work request and return its number."""
        workspace = {"workspace": self._builder.workspace} if self._builder.workspace else {}
        body = {"task_name": TASK, "task_data": data, "event_reactions": {}, **workspace}
        try:
            answer = self._client.post(self._at("work-request/"), json=body)
        except httpx.HTTPError as error:
            raise BuildFailed(
                f"{self._base} did not answer ({error}); look there whether the request waits "
                "all the same, and abort it before you try again"
            ) from error
        request = self._shape(_Request, answer)
        self._say("submit", f"work request {request.id} at {self._base}")
        return request.id

    def follow(self, number: int) -> tuple[int, ...]:
        """Wait until a work request is over, and return its artifacts."""
        status, failures = "", 0
        while status not in _OVER:
            try:
                answer = self._client.get(self._at(f"work-request/{number}/"))
                request = self._shape(_Request, answer)
            except (httpx.HTTPError, BuildFailed) as error:
                failures += 1
                if failures == _MOST_FAILURES:
                    raise BuildFailed(f"{self._base} tells nothing any more: {error}") from error
                self._builder.wait(self._builder.every)
                continue
            failures = 0
            if request.status != status:
                status = request.status
                self._say(status, f"work request {number}")
            if status not in _OVER:
                self._builder.wait(self._builder.every)
        if (request.status, request.result) != ("completed", "success"):
            raise BuildFailed(
                f"work request {number} at {self._base} is {request.status}"
                f"{f' with {request.result}' if request.result else ''}: its page there shows why"
            )
        return request.artifacts

    def abort(self, number: int) -> None:
        """Have the server give up a work request, if it still can."""
        try:
            answer = self._client.post(self._at(f"work-request/{number}/abort/"))
            outcome = "aborted" if answer.status_code < _OK else f"not: {answer.status_code}"
        except httpx.HTTPError as error:
            outcome = f"not: {error}"
        self._say("abort", f"work request {number}: {outcome}")

    def take(self, number: int, artifacts: tuple[int, ...], place: Path) -> _Artifact:
        """Download the disk among the artifacts and check it."""
        told = [
            self._shape(_Artifact, self._client.get(self._at(f"artifact/{each}/")))
            for each in artifacts
        ]
        images = [each for each in told if each.category == _IMAGE and len(each.files) == 1]
        if len(images) != 1:
            raise BuildFailed(
                f"work request {number} at {self._base} has {len(images)} system images of one "
                "file, one was expected"
            )
        ((name, file),) = images[0].files.items()
        if not file.url.startswith(f"{self._base}/"):
            raise BuildFailed(f"the server names another host for {name}; nothing was asked there")
        checksum, size = hashlib.sha256(), 0
        with (
            self._client.stream("GET", file.url) as answer,
            (place / folder.QCOW2).open("wb") as disk,
        ):
            self._check(answer)
            for piece in answer.iter_bytes(_PIECE):
                checksum.update(piece)
                size += disk.write(piece)
        promised = file.checksums.get("sha256", checksum.hexdigest())
        if (size, checksum.hexdigest()) != (file.size, promised):
            raise BuildFailed(
                f"{name} came with {size} bytes of SHA-256 {checksum.hexdigest()[:12]}…, the "
                f"server has {file.size} of {promised[:12]}…"
            )
        return images[0]

    def note(self, path: Path) -> None:
        """Write what was told of this build."""
        path.write_text("".join(f"{line}\n" for line in self._lines), encoding="utf-8")

    def _at(self, path: str) -> str:
        return f"{self._base}/api/1.0/{path}"

    def _say(self, phase: str, detail: str = "") -> None:
        seconds = time.monotonic() - self._began
        self._lines.append(f"{seconds:8.1f} s  {phase}{f': {detail}' if detail else ''}")
        self._tell(BuildStep(phase=phase, task=detail, seconds=seconds))

    def _check(self, answer: httpx.Response) -> None:
        """Refuse an answer that is none, in the server's words where it has some."""
        if answer.status_code < _OK:
            return
        answer.read()
        why = f"status {answer.status_code}"
        if answer.status_code in _REFUSED:
            why += "; the token's user has to be a contributor of the workspace"
        elif answer.headers.get("content-type", "").startswith("application/"):
            why += f": {answer.text[:500]}"
        raise BuildFailed(f"{self._base} refuses: {why}")

    def _shape(self, shape: type[Shape], answer: httpx.Response) -> Shape:
        self._check(answer)
        try:
            return shape.model_validate_json(answer.content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise BuildFailed(
                f"{answer.request.url} answers with something else than was expected: "
                f"{first['msg']}; is it a Debusine 0.16?"
            ) from None


def archive_of_the_role() -> bytes:
    """Return the folder of the role and its play as an archive, the same for the same files."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(ansible_folder(), "ansible", filter=_plain)
    return gzip.compress(archive.getvalue(), mtime=0)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Keep of a file its name and content, and nothing of Python's caches."""
    if "__pycache__" in member.name:
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    return member


def _data(order: BuildOrder, mirror: str) -> dict[str, object]:
    script = customization_script(archive_of_the_role(), role_variables(order.recipe))
    architecture = order.recipe.architecture
    return task_data(
        *(order.recipe, mirror, packages_of(architecture), kernel_of(architecture), script)
    )


def _packages(artifact: _Artifact) -> tuple[Package, ...]:
    """Return what the server lists: name and version, nothing else."""
    listed = sorted(dict(artifact.data.get("pkglist", {})).items())
    return tuple(
        Package(name=name, version=version, architecture="", source="", source_version="")
        for name, version in listed
    )
