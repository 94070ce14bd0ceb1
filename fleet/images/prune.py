"""Delete unreferenced versions of images.

An unreadable listing counts as a reference to every version that it might contain, so that a
failed listing never causes a deletion.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import Field

from fleet.errors import FleetError, PublicationRefused
from fleet.guard.approvals import judge_approvals
from fleet.images.due import MAX_BACK_OFF
from fleet.images.promote import change_version
from fleet.images.publish import Pipeline
from fleet.model.facts import Unknown, World
from fleet.model.images import BOOTABLE, State, Upload, Version, recipe_digest
from fleet.model.plan import Create, Plan
from fleet.model.values import Moment, Value
from fleet.schema.model import ExistingImage, Fleet, Pool, Recipe
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


def find_unreferenced(
    fleet: Fleet, world: World, versions: Sequence[Version], plans: Mapping[str, Plan]
) -> tuple[PrunedVersion, ...]:
    """Return each version and any reason to keep it. `plans` maps file name to saved plan."""
    uses: dict[tuple[str, str], str] = {}
    planned = (
        (_ANY, action.inputs.image, f"the plan saved in {name} makes {action.worker} with it")
        for name, plan in plans.items()
        for action in (*plan.actions, *plan.withheld)
        if isinstance(action, Create)
    )
    for place, upload, reason in (*_list_uses(fleet, world), *planned):
        uses.setdefault((place, upload), reason)
    approved = {
        pool.image: f"an approval of pool {each.pool}, which boots this image, is not used up"
        for each in reversed(judge_approvals(fleet, world, fleet.pools))
        if isinstance(pool := fleet.pools.get(each.pool), Pool) and not each.inert
    }
    counted = _find_counted(fleet, world.time, versions)
    good = sorted((each.image, each.version) for each in versions if each.state in BOOTABLE)
    newest: set[tuple[str, str]] = set()
    for name, image in fleet.images.items():
        keep = image.rebuild.keep if isinstance(image, Recipe) and image.rebuild else KEPT
        newest |= {*[one for one in good if one[0] == name][-keep:]}

    def explain(version: Version) -> str:
        names, image = (version.image, version.version), fleet.images.get(version.image)
        places = sorted(version.publications)
        unknown = [each for each in places if each not in fleet.providers and "://" not in each]
        gone = f"provider {unknown[0]} is no longer in fleet.yaml" if unknown else ""
        ids = sorted((place, each.id) for place, each in version.publications.items())
        keys = [key for at, id_ in ids for key in ((at, id_), (at, _ANY), (_ANY, id_))]
        used = next((uses[key] for key in (*keys, (_ANY, _ANY)) if key in uses), "")
        reasons = (
            (version.state == "building", "it is being built"),
            (image and version.state in _SERVING_STATES, f"it is the {version.state} version"),
            (
                image and image.version == version.version,
                f"fleet.yaml pins it (images.{version.image}.version)",
            ),
            (gone, f"{gone}: its machines are unknown"),
            (used, used),
            (names in good and version.image in approved, approved.get(version.image, "")),
            (names in newest, "it is one of the newest that rebuild.keep keeps"),
            (version.state == "built", "it waits for its test"),
            (
                version in counted and version.version > dict(good).get(version.image, ""),
                "it failed after the newest that passed its test: fleet image due counts it",
            ),
        )
        return next((reason for applies, reason in reasons if applies), "")

    return tuple(
        PrunedVersion(
            image=version.image,
            version=version.version,
            state=version.state,
            kept=explain(version),
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


def _find_counted(fleet: Fleet, now: datetime, versions: Sequence[Version]) -> list[Version]:
    """Return the failed versions on which the delay of a build may depend (`due.py`)."""
    failed = [each for each in versions if each.state == "failed" and each.why != PRUNED]
    latest = {each.image: each.since for each in sorted(failed, key=lambda each: each.since)}
    digests = {name: recipe_digest(recipe) for name, recipe in fleet.baked.items()}
    return [
        each
        for each in failed
        if each.recipe_digest == digests.get(each.image)
        and now - latest[each.image] < 2 * MAX_BACK_OFF
    ]


_ANY = "*"
"""In a use of an upload: any place, or any upload of the place."""


def _list_uses(fleet: Fleet, world: World) -> Iterator[tuple[str, str, str]]:
    """Yield place, upload and reason of each use. Unreadable machines may use any upload."""
    for name, image in fleet.images.items():
        for place, upload in image.existing.items() if isinstance(image, ExistingImage) else ():
            yield place, upload, f"fleet.yaml names it (images.{name}.existing.{place})"
    for place in fleet.providers:
        listing = world.providers.get(place, Unknown(unknown="it was not read"))
        if isinstance(listing, Unknown):
            why = f"the machines of provider {place} are unknown: {listing.unknown}"
            yield place, _ANY, why
            continue
        for machine in listing.machines:
            yield place, machine.image or "", f"machine {machine.name} boots it"
    if isinstance(world.stacks, Unknown):
        yield _ANY, _ANY, f"the machines in stacks are unknown: {world.stacks.unknown}"
    for pool, stack in () if isinstance(world.stacks, Unknown) else sorted(world.stacks.items()):
        if isinstance(stack, Unknown):
            declared = fleet.pools.get(pool)
            place = declared.provider if isinstance(declared, Pool) else _ANY
            why = f"the machines in the stack of pool {pool} are unknown: {stack.unknown}"
            yield place, _ANY, why
            continue
        for worker in stack.workers:
            records = f"the stack of pool {pool} records {worker.name}, which boots it"
            yield stack.provider, worker.image, records


_Judged = TypeVar("_Judged", PrunedVersion, UntrackedUpload)


@dataclass(frozen=True)
class Pruner:
    """Functions that delete a version's record, uploads and local folder."""

    store: Store
    publisher_of: Callable[[str], Pipeline]
    drop_build: Callable[[str, str], None]
    """Function that deletes a version's local folder, if it exists; raises FleetError."""

    def delete(self, judged: _Judged) -> _Judged:
        """Delete an unreferenced version or upload; return it, with the error if that failed."""
        if judged.kept:
            return judged
        try:
            if isinstance(judged, PrunedVersion):
                self._delete_version(judged)
            else:
                self._delete_uploads({judged.place: judged.id})
        except FleetError as error:
            return judged.altered(kept=f"it could not be deleted: {error}")
        return judged

    def _delete_version(self, judged: PrunedVersion) -> None:
        """Delete a version. Record it as failed first, so that no process promotes it."""

        def fail(version: Version) -> Version:
            if version.state != judged.state:
                raise FleetError(f"it is {version.state} since")
            # The version list omits the places of an image that was built elsewhere.
            ids = {place: upload.id for place, upload in version.publications.items()}
            if not version.elsewhere and ids != judged.places:
                raise FleetError("where it is published has changed since")
            return version.altered(state="failed", why=PRUNED)

        change_version(self.store, judged.image, judged.version, fail)
        self._delete_uploads(judged.places)
        self.drop_build(judged.image, judged.version)
        self.store.forget_image_version(judged.image, judged.version)

    def _delete_uploads(self, places: Mapping[str, str]) -> None:
        """Delete all uploads of a version; raises FleetError with the deletions that failed."""
        left = []
        for place, upload in sorted(places.items()):
            try:
                self.publisher_of(place).delete(upload)
            except FleetError as error:
                left.append(f"{place}: {error}")
        if left:
            raise FleetError("; ".join(left))


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
