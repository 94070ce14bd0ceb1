"""Build an image at a Debusine server, by a work request of its own.

The token goes to that server alone. The task makes a root of Debian by packages, runs one script
in it and makes it a disk. The script carries the role debusine_worker with it and runs it there,
so that the image is the same role's.

A build that is given up is aborted at the server.
"""

import gzip
import hashlib
import io
import json
import shlex
import tarfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from posixpath import dirname
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.errors import BuildFailed, FleetError
from fleet.images import folder
from fleet.images.checks import open_disk
from fleet.images.folder import Draft, Tell, drafting, log_of, manifest_of
from fleet.images.programs import last_of
from fleet.images.roots import kernel_of, packages_of
from fleet.model.images import BuildOrder, BuildStep, Manifest, Package, role_variables
from fleet.queues.http import trusted
from fleet.schema.pools import ImageRecipe
from fleet.state.storage import shipped_folder

_PIECE = 1 << 20
_REFUSED = (401, 403)
_OK = 300
_ABORTED = "aborted"
_MOST_PAGES = 20
"""Pages of the server's newest requests that are looked through for one that it tries again."""
_LONGEST_LOG = 16 << 20
"""Bytes of a log that are taken; a longer one stays at the server."""
Shape = TypeVar("Shape", bound=BaseModel)


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Request(_Shape):
    """A work request, as the server tells of it."""

    id: int
    status: str
    result: str = ""
    artifacts: tuple[int, ...] = ()
    aborted_by: int | None = None
    created_by: int | None = None
    workspace: str = ""
    task_data: dict[str, Any] = {}
    workflow_data: dict[str, Any] = {}


class Page(_Shape):
    """A part of the list of requests, the newest first."""

    next: str | None = None
    results: tuple[Request, ...]


class File(_Shape):
    """A file of an artifact."""

    size: int
    url: str
    checksums: dict[str, str] = {}


class Artifact(_Shape):
    """What a work request made."""

    category: str
    data: dict[str, Any]
    files: dict[str, File] = {}


class Server:
    """A Debusine server, spoken to by an open client that carries the token."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self.url = url.rstrip("/")
        self._client = client

    def submit(self, body: Mapping[str, object]) -> Request:
        """Post a work request."""
        try:
            answer = self._client.post(self._at("work-request/"), json=body)
        except httpx.HTTPError as error:
            raise BuildFailed(
                f"{self.url} did not answer ({error}); check there whether the request was "
                "created, and abort it before you try again"
            ) from error
        return self._shape(Request, answer)

    def request(self, number: int) -> Request:
        """Look at a work request."""
        return self._shape(Request, self._client.get(self._at(f"work-request/{number}/")))

    def retried(self, request: Request) -> Request | None:
        """Return the request by which the server tries an aborted one again, if it does.

        It does so where the worker was lost. No answer of the server names the newer request, so
        it is the first after it in which all is the same that stays so: the task, whose script
        says which build it is for, by whom and where. What a person aborted is not tried again.
        """
        if request.status != _ABORTED or request.aborted_by is not None:
            return None
        found, query = None, "task_type=Worker"
        for _ in range(_MOST_PAGES):
            page = self._shape(Page, self._client.get(self._at(f"work-request/?{query}")))
            again = [each for each in page.results if _is_again(each, request)]
            found = min(again, key=lambda each: each.id, default=found)
            if not page.next or any(each.id <= request.id for each in page.results):
                break
            query = urlsplit(page.next).query
        return found

    def abort(self, number: int) -> str:
        """Have the server give up a work request, if it still can; say what became of that."""
        try:
            answer = self._client.post(self._at(f"work-request/{number}/abort/"))
        except httpx.HTTPError as error:
            return f"not: {error}"
        return "aborted" if answer.status_code < _OK else f"not: {answer.status_code}"

    def artifacts(self, numbers: tuple[int, ...]) -> tuple[Artifact, ...]:
        """Look at artifacts."""
        return tuple(
            self._shape(Artifact, self._client.get(self._at(f"artifact/{each}/")))
            for each in numbers
        )

    def take(self, name: str, file: File, place: Path) -> None:
        """Download a file and check it."""
        checksum, size = hashlib.sha256(), 0
        with place.open("wb") as written:
            for piece in self._pieces(name, file):
                checksum.update(piece)
                size += written.write(piece)
        promised = file.checksums.get("sha256", checksum.hexdigest())
        if (size, checksum.hexdigest()) != (file.size, promised):
            raise BuildFailed(
                f"{name} came with {size} bytes of SHA-256 {checksum.hexdigest()[:12]}…, the "
                f"server has {file.size} of {promised[:12]}…"
            )

    def log(self, name: str, file: File) -> str:
        """Return the text of a log."""
        if file.size > _LONGEST_LOG:
            return f"its {file.size} bytes were left at the server\n"
        return b"".join(self._pieces(name, file)).decode(errors="replace")

    def _pieces(self, name: str, file: File) -> Iterator[bytes]:
        if not file.url.startswith(f"{self.url}/"):
            raise BuildFailed(f"the server names another host for {name}; nothing was asked there")
        with self._client.stream("GET", file.url) as answer:
            self._check(answer)
            yield from answer.iter_bytes(_PIECE)

    def _at(self, path: str) -> str:
        return f"{self.url}/api/1.0/{path}"

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
        raise BuildFailed(f"{self.url} refuses: {why}")

    def _shape(self, shape: type[Shape], answer: httpx.Response) -> Shape:
        self._check(answer)
        try:
            return shape.model_validate_json(answer.content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise BuildFailed(
                f"{answer.request.url} returned an unexpected answer: "
                f"{first['msg']}; is it a Debusine 0.16?"
            ) from None


def _is_again(request: Request, earlier: Request) -> bool:
    """Say whether the server made a request to try an earlier one again."""
    return request.id > earlier.id and _likeness(request, 0) == _likeness(earlier, 1)


def _likeness(request: Request, retries: int) -> tuple[object, ...]:
    """Return what of a request stays when it is tried again, and how often it was then."""
    count = int(request.workflow_data.get("retry_count", 0)) + retries
    return (request.created_by, request.workspace, request.task_data, count)


LIST_PACKAGES = """set -e
python3 - <<'END'
import apt_pkg
apt_pkg.init()
cache = apt_pkg.Cache(None)
sources, records = apt_pkg.SourceList(), apt_pkg.PackageRecords(cache)
sources.read_main_list()
for package in cache.packages:
    version = package.current_ver
    if version is None:
        continue
    origin = checksum = ""
    for file, place in version.file_list:
        records.lookup((file, place))
        index = sources.find_index(file)
        if index is not None:
            uri, release = index.describe.split()[:2]
            found = records.hashes.find("sha256")
            origin, checksum = f"{release} at {uri}", found.hashvalue if found else ""
            break
    source = records.source_pkg or package.name, records.source_ver or version.ver_str
    print(package.name, version.ver_str, version.arch, *source, origin, checksum, sep="\\t")
END
"""
"""Each package with its source, and which archive has it with which checksum."""


def read_packages(lines: Iterable[str]) -> tuple[Package, ...]:
    """Return the packages that a machine told of, with where they came from."""
    rows = (line.rstrip("\n").split("\t") for line in lines)
    names = ("name", "version", "architecture", "source", "source_version", "origin", "sha256")
    found = (Package.model_validate(dict(zip(names, row, strict=True))) for row in rows)
    return tuple(sorted(found, key=lambda each: (each.name, each.architecture)))


TASK = "simplesystemimagebuild"
_RUNNER = "ansible-core"
_FIRST = ("ca-certificates", "zstd")
"""What the task itself installs: enough to reach the archive and to pack the kernel's initrd.

The script installs the rest. Debusine writes the task's packages into the name of its record of
the run, which may have 255 letters: with all of them it cannot record that the request ended, and
aborts and retries it although the worker succeeded.
"""
_WIDTH = 76
_GIB = 4
"""Size of the root; it grows to the machine's disk at the first boot."""
_SCRIPT = """\
#!/bin/sh
# Written by fleet: runs the Ansible role debusine_worker in the root of an image.
set -eu
export HOME=/root LC_ALL=C.UTF-8 ANSIBLE_NOCOLOR=1
work=$(mktemp -d)
base64 --decode >"$work/role.tar" <<'END_OF_ROLE'
{role}END_OF_ROLE
tar --extract --file "$work/role.tar" --directory "$work"
apt-get --quiet update
DEBIAN_FRONTEND=noninteractive apt-get --yes --quiet --no-install-recommends install \\
    {wanted}
ansible-playbook --inventory localhost, --connection local \\
    --extra-vars {variables} "$work/ansible/worker.yml"
rm -rf "$work" ~root/.ansible
apt-get --yes --quiet purge --autoremove {runner}
# The task runs mkfs.ext4 in the locale C, which refuses other than ASCII names: a CA has one.
LC_ALL=C find / -xdev -depth -name '*[! -~]*' -print -delete
LC_ALL=C sed --in-place '/[^ -~]/d' /etc/ca-certificates.conf
update-ca-certificates --fresh
# The task's debefivm-create lets anybody in as root, names the machine and keeps apt's lists.
usermod --password '*' root
rm -f /etc/systemd/system/serial-getty@.service.d/autologin.conf
echo localhost >/etc/hostname
sed --in-place '/^127[.]0[.]1[.]1 /d' /etc/hosts
apt-get clean
mkdir -p {folder}
{{
{packages}}} >{listed}
rm -rf /var/lib/apt/lists/*
"""
LISTED = "/usr/share/fleet/packages.tsv"
"""Where the image lists its packages: only it knows where they came from."""


def why_not(recipe: ImageRecipe, mirror: str | None) -> str:
    """Return why Debusine's task cannot make this image; empty when it can."""
    if mirror is None:
        return (
            "Debusine's task needs the archive that its worker bakes from: use --mirror URL, or "
            "set `mirror` in the recipe"
        )
    if recipe.snapshot:
        return "Debusine's task cannot use an archive whose lists have expired (`snapshot`)"
    return ""


def task_data(recipe: ImageRecipe, mirror: str, kernel: str, script: str) -> dict[str, object]:
    """Return the data of the task; `kernel` is the package of the kernel that images boot."""
    return {
        "bootstrap_options": {
            "architecture": recipe.architecture,
            "variant": "minbase",
            "extra_packages": list(_FIRST),
        },
        "bootstrap_repositories": [
            {"mirror": uri, "suite": suite, "components": ["main"]}
            for uri, suite in _repositories(recipe.suite, mirror.rstrip("/"))
        ],
        "customization_script": script,
        "disk_image": {
            "format": "qcow2",
            "kernel_package": kernel,
            "partitions": [{"size": _GIB, "filesystem": "ext4", "mountpoint": "/"}],
        },
    }


def customization_script(
    role: bytes, variables: Mapping[str, object], packages: Sequence[str]
) -> str:
    """Return the script; `role` is a tar archive of the folder `ansible`.

    `packages` are those of any image's base.
    """
    encoded = b64encode(role).decode()
    lines = (encoded[at : at + _WIDTH] + "\n" for at in range(0, len(encoded), _WIDTH))
    said = shlex.quote(json.dumps(variables, sort_keys=True))
    return _SCRIPT.format(
        role="".join(lines),
        variables=said,
        runner=_RUNNER,
        wanted=" ".join(sorted({*packages, _RUNNER, "python3-apt"})),
        packages=LIST_PACKAGES,
        folder=dirname(LISTED),
        listed=LISTED,
    )


def _repositories(suite: str, mirror: str) -> list[tuple[str, str]]:
    if suite == "sid":
        return [(mirror, suite)]
    return [
        (mirror, suite),
        (mirror, f"{suite}-updates"),
        (f"{mirror}-security", f"{suite}-security"),
    ]


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

    def build(self, order: BuildOrder, tell: Tell) -> tuple[Manifest, None]:
        """Have a version built, and take it into its folder."""
        mirror = self.mirror or order.recipe.mirror
        if reason := why_not(order.recipe, mirror):
            raise BuildFailed(reason)
        log = log_of(self.images, order)
        headers = {"Token": self.token, "X-Debusine-Scope": self.scope, "User-Agent": "fleet"}
        with (
            drafting(self.images, order, partial(_logged, log, tell)) as draft,
            httpx.Client(timeout=_SECONDS, headers=headers, verify=trusted()) as client,
        ):
            run = _Run(self, Server(self.url, client), draft)
            try:
                request, artifacts = run.request(_data(order, str(mirror)))
                run.keep_logs(request, artifacts)
                with draft.phase("take"):
                    image = run.take(request, artifacts)
                with draft.phase("packages"):
                    packages = run.packages(image)
                manifest = manifest_of(order, "debusine", packages, draft.seconds)
                return draft.finish(manifest), None
            except OSError as error:
                raise BuildFailed(str(error)) from error
            except httpx.HTTPError as error:
                raise BuildFailed(f"what {self.url} was sending was cut off: {error}") from error


class _Run:
    """One build at a server."""

    def __init__(self, builder: RequestBuilder, server: Server, draft: Draft) -> None:
        self._builder = builder
        self._server = server
        self._draft = draft
        self._number = 0

    def request(self, data: dict[str, object]) -> tuple[Request, tuple[Artifact, ...]]:
        """Post the work request and wait until it is over; return it with what it made."""
        workspace = {"workspace": self._builder.workspace} if self._builder.workspace else {}
        body = {"task_name": TASK, "task_data": data, "event_reactions": {}, **workspace}
        with self._draft.phase("submit"):
            self._number = self._server.submit(body).id
            self._draft.say("submit", f"work request {self._number} at {self._server.url}")
        try:
            request = self._follow()
        except BaseException:
            aborted = self._server.abort(self._number)
            self._draft.say("abort", f"work request {self._number}: {aborted}")
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
                _note(self._draft.log, f"== {name}\n{text}")
        if (request.status, request.result) != ("completed", "success"):
            raise BuildFailed(
                f"work request {request.id} at {self._server.url} is {request.status}"
                f"{f' with {request.result}' if request.result else ''}: its page there shows why"
                + (
                    f"; its last output:\n{_failure(said)}\nall output is in {self._draft.log}"
                    if said
                    else ""
                )
            )

    def take(self, request: Request, artifacts: tuple[Artifact, ...]) -> Artifact:
        """Download the disk among the artifacts and check it; it has to be the recipe's."""
        images = [each for each in artifacts if each.category == _IMAGE and len(each.files) == 1]
        if len(images) != 1:
            raise BuildFailed(
                f"work request {request.id} at {self._server.url} has {len(images)} system images "
                "of one file, one was expected"
            )
        recipe = self._draft.order.recipe
        asked = (recipe.suite, recipe.architecture)
        got = (images[0].data.get("codename"), images[0].data.get("architecture"))
        if got != asked:
            raise BuildFailed(
                f"work request {request.id} at {self._server.url} made a system image of {got[0]} "
                f"for {got[1]}, {asked[0]} for {asked[1]} was asked for"
            )
        ((name, file),) = images[0].files.items()
        self._server.take(name, file, self._draft.folder / folder.QCOW2)
        return images[0]

    def packages(self, image: Artifact) -> tuple[Package, ...]:
        """Return the packages as the disk lists them itself; else as the server does, by name."""
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
                        f"{self._server.url} does not answer any more: {error}"
                    ) from error
                self._builder.wait(self._builder.every)
                continue
            failures = 0
            if request.status != status:
                since = self._count(status, since)
                status = request.status
                self._draft.say(status, f"work request {self._number}")
            if again:
                self._draft.say("again", f"the server lost the worker: work request {again.id}")
                self._number, status = again.id, ""
                continue
            if status not in _OVER:
                self._builder.wait(self._builder.every)
        return request

    def _count(self, status: str, since: float) -> float:
        """Add to a status how long the request had it; returns now."""
        now = time.monotonic()
        if status:
            seconds = self._draft.seconds
            seconds[status] = round(seconds.get(status, 0) + now - since, 3)
        return now


def _logged(log: Path, tell: Tell, step: BuildStep) -> None:
    """Tell of a step, and log it."""
    _note(log, f"{step.seconds:8.1f} s  {step.phase}{f': {step.task}' if step.task else ''}\n")
    tell(step)


def _note(log: Path, text: str) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(text)


def archive_of_the_role() -> bytes:
    """Return the folder of the role and its play as an archive, the same for the same files."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(shipped_folder("ansible"), "ansible", filter=_plain)
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
