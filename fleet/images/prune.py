"""Delete unreferenced versions of images.

An unreadable listing counts as a reference to every version that it might contain, so that a
failed listing never causes a deletion.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from fleet.errors import FleetError, PublicationRefused
from fleet.guard.approvals import judge_approvals
from fleet.images.pipeline import Pipeline
from fleet.images.promote import change_version
from fleet.model.facts import Listing, Unknown, World
from fleet.model.images import BOOTABLE, State, Upload, Version
from fleet.model.plan import Create, Plan
from fleet.model.values import Moment, Value
from fleet.schema.model import ExistingImage, Fleet, Pool
from fleet.schema.pools import Recipe
from fleet.state.store import Store

KEPT = 2
"""Number of versions to keep per image without `rebuild.keep`."""
PRUNED = "it was pruned: nothing referred to it"
"""Reason in the record of a version that a prune deleted or started to delete."""
FORGOTTEN_ADVICE = "publish it again while its build is here, or delete it: --forgotten ID"
"""Advice about an upload without a recorded version. fleet deletes it only on command."""
_SERVING_STATES = ("candidate", "current", "previous")


class PrunedVersion(Value):
    """An image version, with the reason to keep it or the uploads that are deleted."""

    image: str
    version: str
    state: State
    kept: str = Field("", description="Reason to keep it; empty: deleted, or to be deleted.")
    places: dict[str, str] = Field(
        default_factory=dict, description="Place to the deleted object."
    )


class UntrackedUpload(Value):
    """A complete upload without a version in the store. The upload still costs money."""

    place: str
    id: str = Field(description="The provider's own image id, or the address of a folder.")
    image: str
    version: str
    since: Moment = Field(description="Start of its upload.")
    kept: str = Field(
        FORGOTTEN_ADVICE, description="Reason to keep it; empty: deleted, or to be deleted."
    )


class Pruning(Value):
    """The result of a prune for each version."""

    fleet: str
    versions: tuple[PrunedVersion, ...]
    forgotten: tuple[UntrackedUpload, ...] = Field(
        (), description="Deleted only if an operator names it."
    )
    unlisted: dict[str, str] = Field(
        default_factory=dict, description="Place to the reason why it is unreadable."
    )
    failed: bool = Field(False, description="Whether a deletion failed.")
    done: bool = Field(description="False: dry run.")

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0, or 1 if a deletion failed."""
        return int(self.failed)


@dataclass(frozen=True)
class _VersionReferences:
    """All objects that may refer to an image version."""

    fleet: Fleet
    world: World
    plans: Mapping[str, Plan]
    newest: frozenset[tuple[str, str]]
    """Image and version of each version that `rebuild.keep` keeps."""
    built: Mapping[str, str]
    """Image to its newest version that passed its test."""


def find_unreferenced(
    fleet: Fleet, world: World, versions: Sequence[Version], plans: Mapping[str, Plan]
) -> tuple[PrunedVersion, ...]:
    """Return each version and any reason to keep it. `plans` maps file name to saved plan."""
    good = [each for each in versions if each.state in BOOTABLE]
    case = _VersionReferences(
        fleet,
        world,
        plans,
        frozenset(_select_newest(fleet, good)),
        {each.image: each.version for each in sorted(good, key=lambda each: each.version)},
    )
    return tuple(
        PrunedVersion(
            image=version.image,
            version=version.version,
            state=version.state,
            kept=next(_find_references(case, version), ""),
            # fleet never deletes images that were built elsewhere.
            places={}
            if version.elsewhere
            else {place: upload.id for place, upload in version.publications.items()},
        )
        for version in versions
    )


def places_of(fleet: Fleet, versions: Iterable[Version]) -> tuple[str, ...]:
    """Return each provider or store that may have an image, sorted, including removed stores."""
    named = {place for recipe in fleet.baked.values() for place in recipe.publish}
    before = {place for version in versions for place in version.publications if "://" in place}
    return tuple(sorted({*fleet.providers, *named, *before}))


def find_forgotten(
    fleet: Fleet, versions: Iterable[Version], listed: Mapping[str, Iterable[Upload]]
) -> tuple[UntrackedUpload, ...]:
    """Return complete uploads that neither a version nor fleet.yaml refers to.

    `listed` maps provider or store to uploads. Ids are compared across all providers and stores:
    two providers can share an account, and a provider can have a new name.
    """
    existing = [image for image in fleet.images.values() if isinstance(image, ExistingImage)]
    named = {upload for image in existing for upload in image.existing.values()}
    published = {upload.id for version in versions for upload in version.publications.values()}
    found = {
        upload.id: UntrackedUpload(
            place=place,
            id=upload.id,
            image=upload.image,
            version=upload.version,
            since=upload.since,
        )
        for place, uploads in sorted(listed.items(), reverse=True)
        for upload in uploads
        if upload.whole and upload.id not in named | published
    }
    return tuple(sorted(found.values(), key=lambda each: (each.place, each.image, each.version)))


def _select_newest(fleet: Fleet, good: Iterable[Version]) -> Iterator[tuple[str, str]]:
    """Yield (image, version) for each version that `rebuild.keep` keeps."""
    known = sorted((each.image, each.version) for each in good)
    for name, image in fleet.images.items():
        rebuild = image.rebuild if isinstance(image, Recipe) else None
        yield from [each for each in known if each[0] == name][
            -(rebuild.keep if rebuild else KEPT) :
        ]


def _find_references(case: _VersionReferences, version: Version) -> Iterator[str]:
    """Yield the reasons to keep a version, the most informative first."""
    image = case.fleet.images.get(version.image)
    if version.state == "building":
        yield "it is being built"
    if image is not None and version.state in _SERVING_STATES:
        yield f"it is the {version.state} version"
    if image is not None and image.version == version.version:
        yield f"fleet.yaml pins it (images.{version.image}.version)"
    yield from _named_in_fleet(case, version)
    yield from _find_machines(case, version)
    yield from _find_stack_records(case, version)
    yield from _find_plans(case, version)
    yield from _find_approvals(case, version)
    if (version.image, version.version) in case.newest:
        yield "it is one of the newest that rebuild.keep keeps"
    if version.state == "built":
        yield "it waits for its test"
    failed = image is not None and version.state == "failed" and version.why != PRUNED
    if failed and version.version > case.built.get(version.image, ""):
        yield "it failed after the newest that passed its test: fleet image due counts it"


def _named_in_fleet(case: _VersionReferences, version: Version) -> Iterator[str]:
    """Yield the keys of fleet.yaml that refer to a version by its id at a provider."""
    for name, image in case.fleet.images.items():
        if isinstance(image, ExistingImage):
            for place, upload in sorted(version.publications.items()):
                if image.existing.get(place) == upload.id:
                    yield f"fleet.yaml names it (images.{name}.existing.{place})"


def _find_machines(case: _VersionReferences, version: Version) -> Iterator[str]:
    for place, upload in sorted(version.publications.items()):
        if place not in case.fleet.providers:
            if "://" not in place:
                yield f"provider {place} is no longer in fleet.yaml: its machines are unknown"
            continue
        listing = case.world.providers.get(place, Unknown(unknown="it was not read"))
        if not isinstance(listing, Listing):
            yield f"the machines of provider {place} are unknown: {listing.unknown}"
            continue
        for machine in listing.machines:
            if machine.image == upload.id:
                yield f"machine {machine.name} boots it"


def _find_stack_records(case: _VersionReferences, version: Version) -> Iterator[str]:
    stacks = case.world.stacks
    if isinstance(stacks, Unknown):
        yield f"the machines in stacks are unknown: {stacks.unknown}"
        return
    ids = {place: upload.id for place, upload in version.publications.items()}
    for pool, stack in sorted(stacks.items()):
        if isinstance(stack, Unknown):
            declared = case.fleet.pools.get(pool)
            if not isinstance(declared, Pool) or declared.provider in ids:
                what = f"the machines in the stack of pool {pool}"
                yield f"{what} are unknown: {stack.unknown}"
            continue
        for worker in stack.workers:
            if worker.image == ids.get(stack.provider):
                yield f"the stack of pool {pool} records {worker.name}, which boots it"


def _find_plans(case: _VersionReferences, version: Version) -> Iterator[str]:
    ids = {upload.id for upload in version.publications.values()}
    for name, plan in case.plans.items():
        for action in (*plan.actions, *plan.withheld):
            if isinstance(action, Create) and action.inputs.image in ids:
                yield f"the plan saved in {name} makes {action.worker} with it"


def _find_approvals(case: _VersionReferences, version: Version) -> Iterator[str]:
    """Yield a reason for each approval that is not used up, of a pool that boots this image."""
    for verdict in judge_approvals(case.fleet, case.world, case.fleet.pools):
        pool = case.fleet.pools.get(verdict.pool)
        boots_it = isinstance(pool, Pool) and pool.image == version.image
        if boots_it and not verdict.inert and version.state in BOOTABLE:
            yield f"an approval of pool {verdict.pool}, which boots this image, is not used up"


@dataclass(frozen=True)
class Pruner:
    """Functions that delete a version's record, uploads and local folder."""

    store: Store
    publisher_of: Callable[[str], Pipeline]
    drop_build: Callable[[str, str], None]
    """Function that deletes a version's local folder, if it exists; raises FleetError."""


def prune_versions(judged: Sequence[PrunedVersion], pruner: Pruner) -> tuple[PrunedVersion, ...]:
    """Delete unreferenced versions. Return all versions, with the error of a failed deletion."""
    return tuple(each if each.kept else _prune_version(each, pruner) for each in judged)


def list_uploads(
    places: Iterable[str], publisher_of: Callable[[str], Pipeline]
) -> tuple[dict[str, tuple[Upload, ...]], dict[str, str]]:
    """Return the uploads per provider or store, and the error of each unreadable one."""
    listed: dict[str, tuple[Upload, ...]] = {}
    unlisted: dict[str, str] = {}
    for place in places:
        try:
            try:
                publisher = publisher_of(place)
            except PublicationRefused:
                continue  # the provider stores no images
            listed[place] = publisher.uploads()
        except FleetError as error:
            unlisted[place] = str(error)
    return listed, unlisted


def name_forgotten(
    found: Iterable[UntrackedUpload], named: Collection[str]
) -> tuple[UntrackedUpload, ...]:
    """Mark the uploads with these ids for deletion; raises FleetError for an unknown id."""
    judged = tuple(each.altered(kept="") if each.id in named else each for each in found)
    if unknown := sorted(set(named) - {each.id for each in judged}):
        raise FleetError(
            f"no readable place has {', '.join(unknown)} without a version in the store; `fleet "
            "image prune --dry-run` shows which have one"
        )
    return judged


def delete_forgotten(
    judged: Iterable[UntrackedUpload], publisher_of: Callable[[str], Pipeline]
) -> tuple[UntrackedUpload, ...]:
    """Delete the marked uploads; return all uploads, with the error if a deletion failed."""

    def delete(each: UntrackedUpload) -> UntrackedUpload:
        try:
            _delete_everywhere({each.place: each.id}, publisher_of)
        except FleetError as error:
            return each.altered(kept=f"it could not be deleted: {error}")
        return each

    return tuple(each if each.kept else delete(each) for each in judged)


def _prune_version(judged: PrunedVersion, pruner: Pruner) -> PrunedVersion:
    """Delete a version. Record it as failed first, so that no process promotes it."""

    def fail(version: Version) -> Version:
        if version.state != judged.state:
            raise FleetError(f"it is {version.state} since")
        # The version list omits the places of an image that was built elsewhere.
        ids = {place: upload.id for place, upload in version.publications.items()}
        if not version.elsewhere and ids != judged.places:
            raise FleetError("where it is published has changed since")
        return version.altered(state="failed", why=PRUNED)

    try:
        change_version(pruner.store, judged.image, judged.version, fail)
        _delete_everywhere(judged.places, pruner.publisher_of)
        pruner.drop_build(judged.image, judged.version)
    except FleetError as error:
        return judged.altered(kept=f"it could not be deleted: {error}")
    pruner.store.forget_image_version(judged.image, judged.version)
    return judged


def _delete_everywhere(places: Mapping[str, str], publisher_of: Callable[[str], Pipeline]) -> None:
    """Delete all uploads of a version; raises FleetError with the deletions that failed."""
    left = []
    for place, upload in sorted(places.items()):
        try:
            publisher_of(place).delete(upload)
        except FleetError as error:
            left.append(f"{place}: {error}")
    if left:
        raise FleetError("; ".join(left))
