"""Build an image with a work request at a Debusine server.

Debusine's task creates a root file system from packages, runs one script in it and converts it to
a disk. The script contains the role debusine_worker and runs it, so that all builders use one
role. If the build is interrupted, its work request is aborted at the server.
"""

import gzip
import io
import json
import shlex
import tarfile
import time
from base64 import encodebytes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from fleet.errors import BuildFailed, FleetError
from fleet.images import folder
from fleet.images.checks import open_disk
from fleet.images.folder import Draft, Tell, drafting, manifest_of
from fleet.images.packages import read_packages
from fleet.images.programs import last_of, root_script
from fleet.images.records import BuildOrder
from fleet.images.role import READABLE, find_failure, role_variables
from fleet.images.roots import kernel_of, packages_of
from fleet.images.sources import mirror_suites
from fleet.model.images import Manifest, Package
from fleet.queues.http import trusted
from fleet.state.storage import shipped_folder

_TIMEOUT = httpx.Timeout(60, connect=10)
_MAX_FAILURES = 10
"""Number of consecutive failed polls after which the build fails."""
_IMAGE_CATEGORY = "debian:system-image"
_LOG_CATEGORY = "debusine:work-request-debug-logs"
_FINAL_STATUSES = ("completed", "aborted")
_AUTH_STATUSES = (401, 403)
_CHUNK_BYTES = 1 << 20
_MAX_PAGES = 20
"""Maximum number of pages to search for the retry of a request, newest requests first."""
_MAX_LOG_BYTES = 16 << 20
"""Maximum size of a log to download. A larger log is not downloaded."""
_Shape = TypeVar("_Shape", bound=BaseModel)


class _WorkRequest(BaseModel):
    id: int
    status: str
    result: str = ""
    artifacts: tuple[int, ...] = ()
    aborted_by: int | None = None
    created_by: int | None = None
    workspace: str = ""
    task_data: dict[str, Any] = {}
    workflow_data: dict[str, Any] = {}

    def key(self, retries: int = 0) -> tuple[object, ...]:
        """Return the fields that are equal in a retry, with the retry count plus `retries`."""
        count = int(self.workflow_data.get("retry_count", 0)) + retries
        return (self.created_by, self.workspace, self.task_data, count)


class _RequestPage(BaseModel):
    next: str | None = None
    results: tuple[_WorkRequest, ...]


class _File(BaseModel):
    size: int
    url: str
    checksums: dict[str, str] = {}


class _Artifact(BaseModel):
    category: str
    data: dict[str, Any]
    files: dict[str, _File] = {}


@dataclass(frozen=True)
class RequestBuilder:
    """Builder of images with Debusine work requests. The token's user must be a contributor."""

    images: Path
    url: str
    scope: str
    token: str = field(repr=False)
    workspace: str | None = None
    mirror: str | None = None
    wait: Callable[[float], None] = time.sleep
    every: float = 10

    def check_ready(self, order: BuildOrder) -> None:
        """Raise BuildFailed if the server's task cannot build the image."""
        if (self.mirror or order.debian.mirror) is None:
            raise BuildFailed(
                "Debusine's task needs the archive that its worker bakes from: use --mirror URL, "
                "or set `mirror` in the recipe"
            )
        if order.debian.snapshot:
            raise BuildFailed(
                "Debusine's task cannot use an archive whose lists have expired (`snapshot`)"
            )

    def build(self, order: BuildOrder, tell: Tell) -> tuple[Manifest, None]:
        """Build a version at the server, and download the disk into the folder of the version."""
        self.check_ready(order)
        # The HTTP client sends the token only to this server.
        headers = {"Token": self.token, "X-Debusine-Scope": self.scope, "User-Agent": "fleet"}
        with (
            drafting(self.images, order, tell) as draft,
            httpx.Client(timeout=_TIMEOUT, headers=headers, verify=trusted()) as client,
        ):
            try:
                packages = _ServerBuild(self, client, draft).run()
                return draft.finish(manifest_of(draft.order, "debusine", packages)), None
            except OSError as error:
                raise BuildFailed(str(error)) from error
            except httpx.HTTPError as error:
                raise BuildFailed(f"what {self.url} was sending was cut off: {error}") from error


class _ServerBuild:
    """A single image build at a Debusine server."""

    def __init__(self, builder: RequestBuilder, client: httpx.Client, draft: Draft) -> None:
        self._builder = builder
        self._client = client
        self._draft = draft
        self._url = builder.url.rstrip("/")
        self._number = 0

    def run(self) -> tuple[Package, ...]:
        """Build at the server, and download logs and disk; return the packages of the disk."""
        builder, order = self._builder, self._draft.order
        data = request_data(order, str(builder.mirror or order.debian.mirror))
        workspace = {"workspace": builder.workspace} if builder.workspace else {}
        body = {"task_name": TASK, "task_data": data, "event_reactions": {}, **workspace}
        self._draft.say("submit")
        try:
            self._number = self._ask(_WorkRequest, "work-request/", json=body).id
        except httpx.HTTPError as error:
            raise BuildFailed(
                f"{self._url} did not answer ({error}); check there whether the request was "
                "created, and abort it before you try again"
            ) from error
        self._draft.say("submit", f"work request {self._number} at {self._url}")
        try:
            request = self._follow()
        except BaseException:
            aborted = "aborted"
            try:
                self._check(
                    self._client.post(f"{self._url}/api/1.0/work-request/{self._number}/abort/")
                )
            except (httpx.HTTPError, BuildFailed) as error:
                aborted = f"not: {error}"
            self._draft.say("abort", f"work request {self._number}: {aborted}")
            raise
        artifacts = [self._ask(_Artifact, f"artifact/{each}/") for each in request.artifacts]
        said, where = self._read_logs(artifacts), f"work request {request.id} at {self._url}"
        if (request.status, request.result) != ("completed", "success"):
            last = find_failure(said) or last_of(said)
            output = f"; its last output:\n{last}\nall output is in {self._draft.log}"
            raise BuildFailed(
                f"{where} is {request.status}{f' with {request.result}' if request.result else ''}"
                f": its page there shows why{output if said else ''}"
            )
        self._draft.say("take")
        images = [
            each for each in artifacts if each.category == _IMAGE_CATEGORY and len(each.files) == 1
        ]
        if len(images) != 1:
            raise BuildFailed(
                f"{where} has {len(images)} system images of one file, one was expected"
            )
        asked = (order.debian.suite, order.debian.architecture)
        got = (images[0].data.get("codename"), images[0].data.get("architecture"))
        if got != asked:
            raise BuildFailed(
                f"{where} created a system image of {got[0]} for {got[1]}, not of {asked[0]} for "
                f"{asked[1]}"
            )
        self._take(*next(iter(images[0].files.items())))
        return self._list_packages(images[0])

    def _read_logs(self, artifacts: list[_Artifact]) -> str:
        """Append the server's logs to the log of the build; return their text."""
        logs = [each.files for each in artifacts if each.category == _LOG_CATEGORY]
        said = ""
        for name, file in (pair for files in logs for pair in files.items()):
            try:
                text = f"not downloaded: {file.size} bytes are too many\n"
                if file.size <= _MAX_LOG_BYTES:
                    text = b"".join(self._read_chunks(name, file)).decode(errors="replace")
            except (httpx.HTTPError, BuildFailed) as error:
                # The image may be complete even if its log is unavailable.
                text = f"not taken: {error}\n"
            said += text
            self._draft.note(f"== {name}\n{text}")
        return said

    def _take(self, name: str, file: _File) -> None:
        """Download the disk; raises BuildFailed if the disk is another."""
        with (self._draft.folder / folder.QCOW2).open("wb") as written:
            for piece in self._read_chunks(name, file):
                written.write(piece)
        found = folder.measure(self._draft.folder / folder.QCOW2)
        promised = file.checksums.get("sha256", found.sha256)
        if (found.size, found.sha256) != (file.size, promised):
            raise BuildFailed(
                f"{name} came with {found.size} bytes of SHA-256 {found.sha256[:12]}…, the "
                f"server has {file.size} of {promised[:12]}…"
            )

    def _list_packages(self, image: _Artifact) -> tuple[Package, ...]:
        """Return the disk's package list, or the server's package names if it is unreadable."""
        self._draft.say("packages")
        try:
            with open_disk(self._draft.folder / folder.QCOW2) as disk:
                listed = disk.text(LISTED)
            if not listed:
                raise BuildFailed(f"the disk has no {LISTED}")
            return read_packages(listed.splitlines())
        except (FleetError, ValueError) as error:
            self._draft.say(
                "packages", f"WITHOUT their sources, as the server lists them: {error}"
            )
        named = sorted(dict(image.data.get("pkglist", {})).items())
        return tuple(
            Package(name=name, version=version, architecture="", source="", source_version="")
            for name, version in named
        )

    def _follow(self) -> _WorkRequest:
        """Poll until the request and all its retries have ended; return the last request."""
        status, failures = "", 0
        while True:
            try:
                request = self._ask(_WorkRequest, f"work-request/{self._number}/")
                again = self._find_retry(request)
            except (httpx.HTTPError, BuildFailed) as error:
                failures += 1
                if failures == _MAX_FAILURES:
                    raise BuildFailed(f"{self._url} does not answer any more: {error}") from error
                self._builder.wait(self._builder.every)
                continue
            failures = 0
            if request.status != status:
                self._draft.say(request.status, f"work request {self._number}")
            status = request.status
            if again:
                self._draft.say("again", f"the server lost the worker: work request {again.id}")
                self._number, status = again.id, ""
            elif status in _FINAL_STATUSES:
                return request
            else:
                self._builder.wait(self._builder.every)

    def _find_retry(self, request: _WorkRequest) -> _WorkRequest | None:
        """Return the server's retry of an aborted request; None if the server did not retry it.

        The server retries a request if it lost the worker, but not if a user aborted the request.
        Its API does not link the retry. The retry is the first newer request with equal fields
        (`_WorkRequest.key`): the task data contains the script, which is unique for each build.
        """
        if request.status != "aborted" or request.aborted_by is not None:
            return None
        found, query = None, "task_type=Worker"
        for _ in range(_MAX_PAGES):
            page = self._ask(_RequestPage, f"work-request/?{query}")
            newer = [each for each in page.results if each.id > request.id]
            again = [each for each in newer if each.key() == request.key(1)]
            found = min(again, key=lambda each: each.id, default=found)
            if not page.next or len(newer) < len(page.results):
                break
            query = urlsplit(page.next).query
        return found

    def _read_chunks(self, name: str, file: _File) -> Iterator[bytes]:
        if not file.url.startswith(f"{self._url}/"):
            raise BuildFailed(f"{name} not downloaded: the server names another host")
        with self._client.stream("GET", file.url) as answer:
            self._check(answer)
            yield from answer.iter_bytes(_CHUNK_BYTES)

    def _ask(self, shape: type[_Shape], path: str, **body: Any) -> _Shape:  # noqa: ANN401 - JSON
        """Return the parsed reply to a GET, or to a POST if there is a body."""
        address = f"{self._url}/api/1.0/{path}"
        answer = self._client.request("POST" if body else "GET", address, **body)
        self._check(answer)
        try:
            return shape.model_validate_json(answer.content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise BuildFailed(
                f"{address} returned an unexpected answer: {first['msg']}; is it a Debusine 0.16?"
            ) from None

    def _check(self, answer: httpx.Response) -> None:
        """Raise BuildFailed for an error status, with the server's message if present."""
        if not answer.is_success:
            answer.read()
            why = f"status {answer.status_code}"
            if answer.status_code in _AUTH_STATUSES:
                why += "; the token's user has to be a contributor of the workspace"
            elif answer.headers.get("content-type", "").startswith("application/"):
                why += f": {answer.text[:500]}"
            raise BuildFailed(f"{self._url} refuses: {why}")


TASK = "simplesystemimagebuild"
_TASK_PACKAGES = ("ca-certificates", "zstd")
"""Packages that the task itself installs: to reach the archive and to pack the initrd.

The script installs all other packages. Debusine writes the task's packages into a name that is
limited to 255 characters. With all packages in the task, Debusine could not record the end of the
request: it aborted and retried the request although the worker succeeded.
"""
_ROOT_GIB = 4
"""Size of the root file system. It grows to the size of the disk at the first boot."""
LISTED = "/usr/share/fleet/packages.tsv"
"""File with the package list in the image. The server does not know package origins."""


def request_data(order: BuildOrder, mirror: str) -> dict[str, object]:
    """Return the data of the Debusine task for a build."""
    recipe = order.debian
    kernel = kernel_of(recipe.architecture)
    packages = [each for each in packages_of(recipe.architecture) if each != kernel]
    script = customization_script(role_variables(recipe), packages)
    return {
        "bootstrap_options": {
            "architecture": recipe.architecture,
            "variant": "minbase",
            "extra_packages": list(_TASK_PACKAGES),
        },
        "bootstrap_repositories": [
            {"mirror": uri, "suite": suite, "components": ["main"]}
            for uri, suite in mirror_suites(recipe.suite, mirror)
        ],
        # Make the scripts of two builds differ, so that a request never looks like a retry.
        "customization_script": f"{script}# Image {order.image}, version {order.version}.\n",
        "disk_image": {
            "format": "qcow2",
            "kernel_package": kernel,
            "partitions": [{"size": _ROOT_GIB, "filesystem": "ext4", "mountpoint": "/"}],
        },
    }


def customization_script(variables: Mapping[str, object], packages: Sequence[str]) -> str:
    """Return the script that runs the role in the image, with a reproducible archive of the role.

    `packages` are the packages that every image has before the role runs.
    """

    def normalize(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = "root"
        return None if "__pycache__" in member.name else member

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(shipped_folder("ansible"), "ansible", filter=normalize)
    given = {
        "role": encodebytes(gzip.compress(archive.getvalue(), mtime=0)).decode(),
        "variables": json.dumps(variables, sort_keys=True),
        "wanted": " ".join(sorted({*packages, "python3-apt"})),
    }
    settings = "".join(f"{name}={shlex.quote(text)}\n" for name, text in given.items())
    readable = "".join(f"export {name}={value}\n" for name, value in READABLE.items())
    return f"#!/bin/sh\n# Written by fleet.\n{settings}{readable}{root_script('customize')}"
