"""This module has a Debusine server build images: it posts, follows and takes what came of it.

A build that is given up is aborted at the server.
"""

import gzip
import io
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from fleet.errors import BuildFailed, FleetError
from fleet.facts.image_request import LISTED, TASK, customization_script, task_data, why_not
from fleet.facts.manifest import BuildOrder, BuildStep, Manifest, Package
from fleet.facts.package_list import read_packages
from fleet.facts.recipes import role_variables
from fleet.images import folder
from fleet.images.base import kernel_of, packages_of
from fleet.images.contents import open_disk
from fleet.images.disk import locked
from fleet.images.manifests import manifest_of
from fleet.images.programs import last_of
from fleet.images.request_server import Artifact, Request, Server
from fleet.images.role import ansible_folder
from fleet.images.sbom import sbom_of
from fleet.schema.pools import ImageRecipe
from fleet.web.trust import trusted

_SECONDS = httpx.Timeout(60, connect=10)
_MOST_FAILURES = 10
"""Looks in a row that may come to nothing before the build is given up."""
_IMAGE = "debian:system-image"
_LOGS = "debusine:work-request-debug-logs"
_OVER = ("completed", "aborted")
_FATAL = "fatal: "
"""What Ansible begins the line with that says why a task failed."""
_LONGEST = 2000
"""Letters of that line that are shown."""


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
            httpx.Client(timeout=_SECONDS, headers=headers, verify=trusted()) as client,
        ):
            partial = folder.open_build(self.images, order.image, order.version)
            log = self.images / order.image / f"{order.version}.log"
            run = _Run(self, Server(self.url, client), log, tell)
            try:
                request, artifacts = run.request(_data(order, str(mirror)))
                run.keep_logs(request, artifacts)
                with run.phase("take"):
                    image = run.take(request, artifacts, order.recipe, partial)
                with run.phase("packages"):
                    packages = run.packages(image, partial)
                manifest = manifest_of(order, "debusine", packages, run.seconds)
                if all(each.source for each in packages):
                    (partial / folder.SBOM).write_text(sbom_of(manifest), encoding="utf-8")
                log.rename(partial / folder.LOG)
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
        server: Server,
        log: Path,
        tell: Callable[[BuildStep], None],
    ) -> None:
        self._builder = builder
        self._server = server
        self._log = log
        self._tell = tell
        self._began = time.monotonic()
        self._number = 0
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tell of a phase, and count how long it takes."""
        began = time.monotonic()
        self._say(name)
        yield
        self.seconds[name] = round(time.monotonic() - began, 3)

    def request(self, data: dict[str, object]) -> tuple[Request, tuple[Artifact, ...]]:
        """Post the work request and wait until it is over; return it with what it made."""
        workspace = {"workspace": self._builder.workspace} if self._builder.workspace else {}
        body = {"task_name": TASK, "task_data": data, "event_reactions": {}, **workspace}
        with self.phase("submit"):
            self._number = self._server.submit(body).id
            self._say("submit", f"work request {self._number} at {self._server.url}")
        try:
            request = self._follow()
        except BaseException:
            aborted = self._server.abort(self._number)
            self._say("abort", f"work request {self._number}: {aborted}")
            raise
        return request, self._server.artifacts(request.artifacts)

    def keep_logs(self, request: Request, artifacts: tuple[Artifact, ...]) -> None:
        """Add what the server logged; BuildFailed with the end of it where the request failed."""
        said = ""
        for artifact in artifacts:
            for name, file in artifact.files.items() if artifact.category == _LOGS else ():
                try:
                    text = self._server.log(name, file)
                except (httpx.HTTPError, BuildFailed) as error:
                    # The image is what was asked for, and may be there all the same.
                    text = f"not taken: {error}\n"
                said += text
                self._note(f"== {name}\n{text}")
        if (request.status, request.result) != ("completed", "success"):
            raise BuildFailed(
                f"work request {request.id} at {self._server.url} is {request.status}"
                f"{f' with {request.result}' if request.result else ''}: its page there shows why"
                + (f"; it said last:\n{_failure(said)}\n{self._log} holds all" if said else "")
            )

    def take(
        self,
        request: Request,
        artifacts: tuple[Artifact, ...],
        recipe: ImageRecipe,
        place: Path,
    ) -> Artifact:
        """Download the disk among the artifacts and check it; it has to be the recipe's."""
        images = [each for each in artifacts if each.category == _IMAGE and len(each.files) == 1]
        if len(images) != 1:
            raise BuildFailed(
                f"work request {request.id} at {self._server.url} has {len(images)} system images "
                "of one file, one was expected"
            )
        asked = (recipe.suite, recipe.architecture)
        got = (images[0].data.get("codename"), images[0].data.get("architecture"))
        if got != asked:
            raise BuildFailed(
                f"work request {request.id} at {self._server.url} made a system image of {got[0]} "
                f"for {got[1]}, {asked[0]} for {asked[1]} was asked for"
            )
        ((name, file),) = images[0].files.items()
        self._server.take(name, file, place / folder.QCOW2)
        return images[0]

    def packages(self, image: Artifact, place: Path) -> tuple[Package, ...]:
        """Return the packages as the disk lists them itself; else as the server does, by name."""
        try:
            with open_disk(place / folder.QCOW2) as disk:
                listed = disk.root.text(LISTED)
            if not listed:
                raise BuildFailed(f"the disk has no {LISTED}")
            return read_packages(listed.splitlines())
        except (FleetError, ValueError) as error:
            self._say("packages", f"WITHOUT their sources, as the server lists them: {error}")
        named = sorted(dict(image.data.get("pkglist", {})).items())
        return tuple(
            Package(name=name, version=version, architecture="", source="", source_version="")
            for name, version in named
        )

    def _follow(self) -> Request:
        """Wait until the request is over, and so is each by which the server tries it again."""
        status, failures, since = "", 0, time.monotonic()
        while status not in _OVER:
            try:
                request = self._server.request(self._number)
                again = self._server.retried(request)
            except (httpx.HTTPError, BuildFailed) as error:
                failures += 1
                if failures == _MOST_FAILURES:
                    raise BuildFailed(
                        f"{self._server.url} tells nothing any more: {error}"
                    ) from error
                self._builder.wait(self._builder.every)
                continue
            failures = 0
            if request.status != status:
                since = self._count(status, since)
                status = request.status
                self._say(status, f"work request {self._number}")
            if again:
                self._say("again", f"the server lost the worker: work request {again.id}")
                self._number, status = again.id, ""
                continue
            if status not in _OVER:
                self._builder.wait(self._builder.every)
        return request

    def _count(self, status: str, since: float) -> float:
        """Add to a status how long the request had it; returns now."""
        now = time.monotonic()
        if status:
            self.seconds[status] = round(self.seconds.get(status, 0) + now - since, 3)
        return now

    def _say(self, phase: str, detail: str = "") -> None:
        seconds = time.monotonic() - self._began
        self._note(f"{seconds:8.1f} s  {phase}{f': {detail}' if detail else ''}\n")
        self._tell(BuildStep(phase=phase, task=detail, seconds=seconds))

    def _note(self, text: str) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(text)


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
    architecture = order.recipe.architecture
    kernel = kernel_of(architecture)
    packages = [each for each in packages_of(architecture) if each != kernel]
    variables = role_variables(order.recipe)
    script = customization_script(archive_of_the_role(), variables, packages)
    # Else two requests of one recipe were the same, and one could be taken for the other's retry.
    script += f"# Image {order.image}, version {order.version}.\n"
    return task_data(order.recipe, mirror, kernel, script)


def _failure(log: str) -> str:
    """Return of a log what tells most: the task of the role that failed, else its last lines."""
    lines = log.splitlines()
    fatal = next((at for at, line in enumerate(lines) if line.startswith(_FATAL)), None)
    if fatal is None:
        return last_of(log)
    tasks = [line.rstrip(" *") for line in lines[:fatal] if line.startswith("TASK [")]
    return "\n".join(f"  {line[:_LONGEST]}" for line in (*tasks[-1:], lines[fatal]))
