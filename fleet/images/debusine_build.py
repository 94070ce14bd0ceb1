"""Build an image with a work request at a Debusine server.

If the build is interrupted, its work request is aborted at the server.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from fleet.errors import BuildFailed, FleetError
from fleet.images import folder
from fleet.images.checks import open_disk
from fleet.images.debusine_api import Artifact, DebusineClient, WorkRequest
from fleet.images.debusine_task import LISTED, TASK, failure_of, request_data, why_not
from fleet.images.folder import Draft, Tell, drafting, manifest_of
from fleet.images.packages import read_packages
from fleet.model.images import BuildOrder, Manifest, Package
from fleet.queues.http import trusted

_TIMEOUT = httpx.Timeout(60, connect=10)
_MAX_FAILURES = 10
"""Number of consecutive failed polls after which the build fails."""
_IMAGE_CATEGORY = "debian:system-image"
_LOG_CATEGORY = "debusine:work-request-debug-logs"
_FINAL_STATUSES = ("completed", "aborted")


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
        if reason := why_not(order.debian, self.mirror or order.debian.mirror):
            raise BuildFailed(reason)

    def build(self, order: BuildOrder, tell: Tell) -> tuple[Manifest, None]:
        """Build a version at the server, and download the disk into the folder of the version."""
        mirror = self.mirror or order.debian.mirror
        self.check_ready(order)
        headers = {"Token": self.token, "X-Debusine-Scope": self.scope, "User-Agent": "fleet"}
        with (
            drafting(self.images, order, tell) as draft,
            httpx.Client(timeout=_TIMEOUT, headers=headers, verify=trusted()) as client,
        ):
            run = _ServerBuild(self, DebusineClient(self.url, client), draft)
            try:
                request, artifacts = run.request(request_data(order, str(mirror)))
                run.keep_logs(request, artifacts)
                draft.say("take")
                image = run.take(request, artifacts)
                draft.say("packages")
                packages = run.packages(image)
                manifest = manifest_of(order, "debusine", packages)
                return draft.finish(manifest), None
            except OSError as error:
                raise BuildFailed(str(error)) from error
            except httpx.HTTPError as error:
                raise BuildFailed(f"what {self.url} was sending was cut off: {error}") from error


class _ServerBuild:
    """A single image build at a Debusine server."""

    def __init__(self, builder: RequestBuilder, server: DebusineClient, draft: Draft) -> None:
        self._builder = builder
        self._server = server
        self._draft = draft
        self._number = 0

    def request(self, data: dict[str, object]) -> tuple[WorkRequest, tuple[Artifact, ...]]:
        """Create the work request and wait for its end; return the request and its artifacts."""
        workspace = {"workspace": self._builder.workspace} if self._builder.workspace else {}
        body = {"task_name": TASK, "task_data": data, "event_reactions": {}, **workspace}
        self._draft.say("submit")
        self._number = self._server.submit(body).id
        self._draft.say("submit", f"work request {self._number} at {self._server.url}")
        try:
            request = self._follow()
        except BaseException:
            aborted = self._server.abort(self._number)
            self._draft.say("abort", f"work request {self._number}: {aborted}")
            raise
        return request, self._server.artifacts(request.artifacts)

    def keep_logs(self, request: WorkRequest, artifacts: tuple[Artifact, ...]) -> None:
        """Copy the server's logs; raises BuildFailed with the last lines if the request failed."""
        said = ""
        for artifact in artifacts:
            for name, file in artifact.files.items() if artifact.category == _LOG_CATEGORY else ():
                try:
                    text = self._server.log(name, file)
                except (httpx.HTTPError, BuildFailed) as error:
                    # The image may be complete even if its log is unavailable.
                    text = f"not taken: {error}\n"
                said += text
                self._draft.note(f"== {name}\n{text}")
        if (request.status, request.result) != ("completed", "success"):
            output = f"; its last output:\n{failure_of(said)}\nall output is in {self._draft.log}"
            raise BuildFailed(
                f"work request {request.id} at {self._server.url} is {request.status}"
                f"{f' with {request.result}' if request.result else ''}: its page there shows why"
                f"{output if said else ''}"
            )

    def take(self, request: WorkRequest, artifacts: tuple[Artifact, ...]) -> Artifact:
        """Download the disk; raises BuildFailed unless suite and architecture match the recipe."""
        images = [
            each for each in artifacts if each.category == _IMAGE_CATEGORY and len(each.files) == 1
        ]
        if len(images) != 1:
            raise BuildFailed(
                f"work request {request.id} at {self._server.url} has {len(images)} system images "
                "of one file, one was expected"
            )
        recipe = self._draft.order.debian
        asked = (recipe.suite, recipe.architecture)
        got = (images[0].data.get("codename"), images[0].data.get("architecture"))
        if got != asked:
            raise BuildFailed(
                f"work request {request.id} at {self._server.url} created a system image of "
                f"{got[0]} for {got[1]}, not of {asked[0]} for {asked[1]}"
            )
        ((name, file),) = images[0].files.items()
        self._server.take(name, file, self._draft.folder / folder.QCOW2)
        return images[0]

    def packages(self, image: Artifact) -> tuple[Package, ...]:
        """Return the disk's package list, or the server's package names if it is unreadable."""
        try:
            with open_disk(self._draft.folder / folder.QCOW2) as disk:
                listed = disk.root.text(LISTED)
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

    def _follow(self) -> WorkRequest:
        """Poll until the request and all its retries have ended; return the last request."""
        status, failures = "", 0
        while status not in _FINAL_STATUSES:
            try:
                request = self._server.request(self._number)
                again = self._server.retried(request)
            except (httpx.HTTPError, BuildFailed) as error:
                failures += 1
                if failures == _MAX_FAILURES:
                    raise BuildFailed(
                        f"{self._server.url} does not answer any more: {error}"
                    ) from error
                self._builder.wait(self._builder.every)
                continue
            failures = 0
            if request.status != status:
                self._draft.say(request.status, f"work request {self._number}")
            status = request.status
            if again:
                self._draft.say("again", f"the server lost the worker: work request {again.id}")
                self._number, status = again.id, ""
            elif status not in _FINAL_STATUSES:
                self._builder.wait(self._builder.every)
        return request
