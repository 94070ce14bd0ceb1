"""The records of an image that the core knows too: manifest, tests, versions, uploads, due steps.

A manifest is stored as manifest.json in the folder of its build, `IMAGES/IMAGE/VERSION/`. It lists
the checksum of every other file in that folder.
"""

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from fleet.model.values import ForPeople, Moment, Value, digest, later, sort_by, sorted_tags
from fleet.schema.pools import ImageRecipe, Recipe

_KEYS_WITHOUT_EFFECT = {"provides", "rebuild", "publish", "promote", "version"}
"""Keys of a recipe that do not affect the content of the image."""
_API = "/api"


def recipe_digest(recipe: Recipe) -> str:
    """Return the digest of a recipe, regardless of the order of keys and of default values.

    Empty keys are left out, so that keys added later change no digest.
    """
    written = recipe.model_dump(mode="json", exclude=_KEYS_WITHOUT_EFFECT)
    if isinstance(recipe, ImageRecipe):
        written |= {
            "api_url": root_api_url(recipe.api_url),
            "source": (recipe.source or "").strip(),
        }
    kept = {key: value for key, value in written.items() if value not in (None, "", [], {}, False)}
    return digest(
        {
            key: sorted(set(value)) if isinstance(value, list) else value
            for key, value in kept.items()
        }
    )


def root_api_url(server: str | None) -> str:
    """Return the root URL of a server's API. `server` is this URL or that of the server."""
    return f"{server.rstrip('/').removesuffix(_API)}{_API}" if server else ""


EXECUTORS = ("unshare", "incus-lxc", "incus-vm", "qemu")
"""Debusine's executors (sandboxes for tasks), cheapest first."""
WHOLE_WORKER = "worker"
"""Name of an unproven job that represents all jobs, if none of the jobs could be run."""
_JUDGED_PREFIXES = ("worker:executor:", "worker:cap:", "worker:task:")
_TASK_TAG = re.compile(r"worker:task:worker:(?P<task>[^:]+):version:.*")
_TASKS_OF_CAP = {
    "autopkgtest": ("autopkgtest",),
    "mmdebstrap": ("mmdebstrap", "simplesystemimagebuild"),
    "sbuild": ("sbuild",),
}
_TASKS = ("autopkgtest", "mmdebstrap", "sbuild", "simplesystemimagebuild")


def executors_of(backends: Collection[str]) -> tuple[str, ...]:
    """Return the executors of Debusine that a recipe's backends enable. `incus` enables two."""
    both = {"incus-lxc", "incus-vm"} if "incus" in backends else set()
    return tuple(each for each in EXECUTORS if each in {*backends, *both})


def is_judged(tag: str) -> bool:
    """Return whether jobs of an image test decide if the image's workers provide a tag."""
    return tag.startswith(_JUDGED_PREFIXES)


def job_of_tag(tag: str) -> tuple[str, ...] | None:
    """Return the jobs that each suffice to prove a tag; None if a worker's report suffices."""
    kind, _, name = tag.removeprefix("worker:").partition(":")
    if tag.startswith("worker:executor:"):
        return (f"{kind}:{name}",)
    if tag.startswith("worker:cap:") and name in _TASKS_OF_CAP:
        return tuple(f"task:{task}" for task in _TASKS_OF_CAP[name])
    found = _TASK_TAG.fullmatch(tag)
    return (f"task:{found['task']}",) if found and found["task"] in _TASKS else None


def may_prove(backends: Collection[str], tasks: Collection[str], tag: str) -> bool:
    """Return whether a test job of a recipe with these backends and tasks can prove a tag."""
    jobs = job_of_tag(tag)
    enabled = {f"executor:{each}" for each in executors_of(backends)}
    enabled |= {f"task:{each}" for each in tasks}
    return is_judged(tag) and (jobs is None or not enabled.isdisjoint(jobs))


def is_open(tag: str, unproven: Iterable[str]) -> bool:
    """Return whether only the recipe decides about a tag, because no test job for it could run."""
    names = {*unproven}
    if WHOLE_WORKER in names:
        return is_judged(tag)
    return not names.isdisjoint(job_of_tag(tag) or ())


_OLD_WORKER = re.compile(r"(\d+:)?0\.(\d|1[0-5])(?!\d)")
"""Versions of debusine-worker before 0.16. These versions report no tags."""


def is_old_worker(version: str) -> bool:
    """Return whether a version of debusine-worker is too old to report tags."""
    return _OLD_WORKER.match(version) is not None


def describe_old_worker(image: str, version: str) -> str:
    """Return the problem and the fix if a worker is too old to report tags; otherwise empty."""
    if not is_old_worker(version):
        return ""
    return (
        f"debusine-worker {version} reports no tags, so Debusine 0.16 gives it no work: set "
        f"images.{image}.worker_version, and a source that has it"
    )


State = Literal[
    "building", "built", "tested", "candidate", "current", "previous", "retired", "failed"
]

BOOTABLE: frozenset[State] = frozenset({"tested", "candidate", "current", "previous", "retired"})
"""States of an image version that passed its tests."""


class Rental(Value):
    """A machine that was rented only to build or publish an image."""

    provider: str = Field(description="As fleet.yaml calls it.")
    type: str
    location: str
    seconds: int = Field(description="Time that it existed.")


class NamedVersion(Value):
    """The facts about an image version that its record and the facts of a plan share."""

    image: str
    version: str
    share: int = Field(
        0, ge=0, le=100, description="As a candidate, of each pool's workers, in percent."
    )
    by_rule: bool = Field(
        False, description="Whether `images.NAME.promote` promotes it; else only an operator does."
    )
    built_in: int | None = Field(None, description="Duration of its build, in seconds.")
    way: str = Field("", description="How it was built: disk, instance or debusine.")


class ImageVersion(NamedVersion):
    """The facts about an image version that a plan uses."""

    state: State = Field(
        "current", description="None in older recordings: the newest version is used."
    )
    ids: dict[str, str] = Field(
        default_factory=dict, description="Provider name to the provider's own image id."
    )
    provides: Annotated[tuple[str, ...], AfterValidator(sorted_tags)] = Field(
        (), description="Tags that its jobs proved, or that its worker reported at a boot."
    )
    since: Moment | None = Field(
        None, description="Start of this state; None: unknown in an older recording."
    )
    worker: str = later("", "Version of its debusine-worker, if known.")
    unproven: Annotated[tuple[str, ...], AfterValidator(sorted_tags)] | None = later(
        None,
        "Jobs of its test that the testing machine could not run, `worker` for all; "
        "None: no jobs were tried.",
    )
    why: str = later("", "Why it failed.")
    rentals: Annotated[tuple[Rental, ...], sort_by()] = Field(
        (), description="Machines that existed only to build and to publish it."
    )


class WaitingVersion(Value):
    """A tested and published image version that not all machines boot yet."""

    image: str
    version: str
    state: State
    share: int = Field(0, description="As a candidate, of each pool's workers, in percent.")
    since: Moment = Field(description="Start of this state.")
    until: Moment | None = Field(
        None, description="Time when `fleet apply` continues; None: not set."
    )
    because: ForPeople = Field(description="Reason to wait, with the deciding key of fleet.yaml.")
    command: str = Field(description="The command that makes it current now.")


class Publication(Value):
    """A copy of an image version that was uploaded to a provider or store."""

    id: str = Field(description="The provider's own image id, or the address of a file.")
    at: datetime
    verified: bool = Field(description="Whether it was read back completely after the upload.")
    rental: Rental | None = Field(None, description="The machine that the upload needed.")


class Version(NamedVersion):
    """The stored record of an image version."""

    state: State
    digest: str = Field("", description="Digest of all inputs; empty if unbuilt.")
    recipe_digest: str = Field(description="Digest of its part of fleet.yaml.")
    role_digest: str = Field(description="Digest of the role or playbook.")
    since: datetime = Field(description="Start of this state.")
    built_at: datetime = Field(description="Start of its build.")
    built_by: str
    rental: Rental | None = Field(None, description="The machine that it was built on.")
    elsewhere: bool = Field(False, description="Whether fleet.yaml names it as built elsewhere.")
    commit: str = ""
    why: str = Field("", description="Reason why it failed, as a sentence.")
    provides: tuple[str, ...] = Field(
        (), description="Tags that its jobs proved, or that its worker reported at a boot."
    )
    worker: str = Field("", description="Version of its debusine-worker, if known.")
    unproven: tuple[str, ...] | None = Field(
        None,
        description="Jobs of its test that the testing machine could not run, `worker` for all; "
        "None: no jobs were tried.",
    )
    publications: dict[str, Publication] = Field(
        default_factory=dict, description="Provider, or URL of a store, to its upload there."
    )

    @property
    def fact(self) -> ImageVersion:
        """Return the facts that a plan uses. Incomplete uploads are left out."""
        uploads = sorted(self.publications.items())
        rented = (self.rental, *(upload.rental for _, upload in uploads))
        return ImageVersion(
            image=self.image,
            version=self.version,
            state=self.state,
            share=self.share,
            ids={place: upload.id for place, upload in uploads if upload.verified},
            provides=self.provides,
            since=self.since,
            by_rule=self.by_rule,
            built_in=self.built_in,
            way=self.way,
            worker=self.worker,
            unproven=self.unproven,
            why=self.why if self.state == "failed" else "",
            rentals=tuple(filter(None, rented)),
        )


LEFT_AFTER = timedelta(hours=6)
"""Age after which an unfinished upload, or its machine, must be from a killed run.

No run takes that long: the image pipeline stops its jobs earlier.
"""


class Upload(Value):
    """An upload of an image version, as a provider or store lists it."""

    id: str = Field(description="The provider's own image id, or the address of a file.")
    image: str
    version: str
    sha256: str = Field(description="Of the disk; a provider may keep its first digits only.")
    whole: bool = Field(description="Whether it was read back; else it is incomplete.")
    since: datetime = Field(description="Start of the upload.")

    def was_left(self, before: datetime, but_for: tuple[str, str] | None) -> bool:
        """Return whether a killed run left this upload unfinished. `but_for` is being uploaded."""
        is_own = (self.image, self.version) == but_for
        return not self.whole and self.since < before and not is_own


class Transfer(Value):
    """The progress of one phase of an upload."""

    phase: Literal["prepare", "upload", "read back"]
    done: int = Field(description="In bytes.")
    total: int = Field(description="In bytes.")


class Move(NamedTuple):
    """A change of the record of an image version."""

    was: Version | None
    """The earlier record; None if the version had no record."""
    now: Version


class Package(Value):
    """A package that is installed in an image."""

    name: str
    version: str
    architecture: str
    source: str = Field(description="Name of its source package.")
    source_version: str
    origin: str = Field("", description="Its APT source, as suite/component at URI.")
    sha256: str = Field("", description="Digest of the .deb; empty: in no package list.")


class ManifestFile(Value):
    """Size and checksum of a file that a manifest lists."""

    sha256: str
    size: int = Field(description="In bytes.")


class ImageTestJob(Value):
    """A small job that tests an executor or a task on an image, and its result."""

    name: str = Field(description="Tag, for example executor:unshare or task:sbuild.")
    seconds: float = 0.0
    problem: str = later("", "Why it failed.")
    unproven: str = later("", "Why the testing machine could not run it.")

    @property
    def is_proven(self) -> bool:
        """Return whether the job ran and succeeded."""
        return not (self.problem or self.unproven)


class Test(Value):
    """The result of one kind of test of an image."""

    kind: Literal["offline", "boot", "jobs"]
    at: datetime
    seconds: float
    problems: tuple[str, ...] = Field((), description="Empty: it passed.")
    provides: tuple[str, ...] = Field(
        (), description="Tags that its jobs proved, or that its worker reported, sorted."
    )
    jobs: tuple[ImageTestJob, ...] = later((), "The jobs, in their order.")
    nothing_run: str = later("", "Why no job was run.")

    @property
    def unproven(self) -> tuple[str, ...]:
        """Return the names of jobs that the test machine could not run. `worker` means all."""
        if self.nothing_run:
            return (WHOLE_WORKER,)
        return tuple(each.name for each in self.jobs if each.unproven)


class Manifest(Value):
    """The record of the build of an image version, without secrets."""

    format: Literal["fleet-image-1"] = "fleet-image-1"
    image: str
    version: str = Field(description="Start of its build, for example 20261121T203000Z.")
    way: Literal["disk", "instance", "debusine"]
    suite: str
    architecture: str
    recipe_digest: str = Field(description="Digest of its part of fleet.yaml.")
    role_digest: str = Field(description="Digest of the role or playbook.")
    digest: str = Field(description="Digest of recipe, role and installed packages.")
    built_at: datetime
    built_by: str = Field(description="User that built it, from the machine or CI.")
    commit: str = Field("", description="The commit of fleet.yaml; empty outside of git.")
    seconds: dict[str, float] = Field(description="Phase of the build to its duration.")
    rental: Rental | None = Field(None, description="The machine that it was built on.")
    packages: tuple[Package, ...] = Field((), description="Sorted by name and architecture.")
    files: dict[str, ManifestFile] = Field(
        default_factory=dict, description="Name to size and checksum."
    )
    tests: tuple[Test, ...] = Field((), description="The oldest first.")

    @property
    def worker(self) -> str:
        """Return the installed version of debusine-worker; empty if unknown."""
        return next((each.version for each in self.packages if each.name == "debusine-worker"), "")


Step = Literal["build", "test", "publish"]


class DueReason(StrEnum):
    """The reason why a step is due."""

    NEVER_BUILT = "never-built"
    RECIPE_CHANGED = "recipe-changed"
    ROLE_CHANGED = "role-changed"
    TOO_OLD = "too-old"
    NEWER_WORKER = "newer-worker"
    SECURITY_UPDATE = "security-update"
    NOT_TESTED = "not-tested"
    NOT_PUBLISHED = "not-published"


class DueCause(Value):
    """The reason why a step is due, and a sentence with the figures of the reason."""

    reason: DueReason
    because: str


class DueImage(Value):
    """The due steps of an image, in the order of execution."""

    image: str
    steps: tuple[Step, ...] = Field((), description="The due steps, in this order.")
    version: str = Field(
        "", description="The version to test or publish; empty if one is to be built."
    )
    causes: tuple[DueCause, ...] = ()
    waits_until: Moment | None = Field(None, description="It is due from this time on.")
    waits: str = Field("", description="Reason why a due step waits.")
    serving: str = Field("", description="The version that machines boot meanwhile.")
    rebuild: str = Field(
        "", description="Duration and cost of the last build, if it is to be built again."
    )
    unknown: str = Field("", description="Facts that could not be read; no step is due for them.")
    waiting: WaitingVersion | None = Field(
        None, description="The newer version that not every machine boots yet, and why."
    )

    @property
    def is_due(self) -> bool:
        """Return whether a step can run now and need not wait for a later time."""
        return bool(self.steps) and not self.waits

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the commands that run the due steps, in order."""
        named = " ".join(filter(None, [self.image, self.version]))
        return tuple(f"fleet image {step} {named}" for step in self.steps)


class DueReport(Value):
    """The due steps of all images that fleet builds, sorted by image."""

    fleet: str
    time: Moment
    images: tuple[DueImage, ...]


Tell = Callable[[Transfer], None]


class Total:
    """The progress of one phase of an upload, in bytes."""

    def __init__(
        self, tell: Tell, phase: Literal["prepare", "upload", "read back"], total: int
    ) -> None:
        self.total = total
        self._tell = tell
        self._phase = phase
        self._done = 0

    def move(self, count: int) -> None:
        """Add transferred bytes. `count` is negative when a transfer restarts."""
        self._done = max(0, min(self._done + count, self.total))
        self._tell(Transfer(phase=self._phase, done=self._done, total=self.total))


@dataclass(frozen=True)
class ImageDisk:
    """The disk of an image version, with the manifest and folder of its build."""

    manifest: Manifest
    folder: str
    content: str
    """Checksum of the disk, or the digest of the manifest for a snapshot without local disk."""
    holder: str
    """Random word in the build's lock file. It identifies the remains of killed runs."""
    raw: Callable[[], AbstractContextManager[str]]
    """Context manager that converts the disk to raw format and yields the path."""
    tell: Tell
