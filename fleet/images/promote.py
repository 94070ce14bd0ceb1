"""Promote an image version, or revert a promotion; list images and their versions.

With `promote_all`, this module implements the port Promoter.

Only a version that passed its test is promoted. A promotion makes the current version the previous
one, which machines boot if they cannot boot the current one. Reverting a promotion retires the
promoted version.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from fleet.errors import FleetError, PromotionRefused, VersionMoved
from fleet.images.folder import version_at
from fleet.model.facts import World
from fleet.model.images import BOOTABLE, Move, Publication, State, Version, WaitingVersion
from fleet.model.plan import Plan
from fleet.model.pool_limits import pace_of
from fleet.model.values import Value
from fleet.planner.images import images_by_pool
from fleet.ports import Tell
from fleet.reconcile import reconcile
from fleet.schema.model import ExistingImage, Fleet, ImageRecipe, PlaybookRecipe, Recipe
from fleet.state.store import Store
from fleet.words.runs import add_reason


def promote(
    versions: Iterable[Version], wanted: Version, now: datetime, *, share: int | None = None
) -> tuple[Move, ...]:
    """Return the state changes that make a version current or, with a share, the candidate."""
    others = [each for each in versions if each.version != wanted.version]
    current = _filter_state(others, "current")
    if wanted.state == "current":
        raise PromotionRefused(f"image {wanted.image} {wanted.version} is current already")
    if wanted.state not in BOOTABLE:
        raise PromotionRefused(
            f"image {wanted.image} {wanted.version} is {wanted.state}: only a version that passed "
            f"its test is promoted (fleet image test {wanted.image} {wanted.version})"
        )
    if share is not None:
        if not current:
            raise PromotionRefused(
                f"image {wanted.image} has no current version that a candidate could boot beside; "
                "promote one without --candidate first"
            )
        replaced = f"{wanted.version} is the candidate in its place"
        return (
            _move(wanted, "candidate", now, share=share),
            *(
                _move(each, "retired", now, replaced)
                for each in _filter_state(others, "candidate")
            ),
        )
    older = [each for each in _filter_state(others, "candidate") if each.version < wanted.version]
    replaced = f"{wanted.version} was promoted in its place"
    return (
        _move(wanted, "current", now),
        *(_move(each, "previous", now) for each in current),
        *(
            _move(each, "retired", now, replaced)
            for each in [*_filter_state(others, "previous"), *older]
        ),
    )


def take_back(
    versions: Sequence[Version], image: str, now: datetime, way_out: str
) -> tuple[Move, ...]:
    """Return the state changes that retire the candidate, or else revert the latest promotion.

    `way_out` is the advice if no previous version exists.
    """
    if candidates := _filter_state(versions, "candidate"):
        return tuple(_move(each, "retired", now, "it was taken back") for each in candidates)
    previous = _filter_state(versions, "previous")
    if not previous:
        promotable = [each.version for each in versions if each.state in ("tested", "retired")]
        way = f"`fleet image promote {image} {max(promotable)}`" if promotable else way_out
        raise PromotionRefused(f"image {image} has no previous version to go back to; {way}")
    return (
        _move(previous[-1], "current", now),
        *(
            _move(each, "retired", now, f"it was taken back for {previous[-1].version}")
            for each in _filter_state(versions, "current")
        ),
    )


def declared_version(
    image: str, declared: ExistingImage, versions: Sequence[Version], now: datetime, *, by: str
) -> Version:
    """Return the version of an image built elsewhere, from the image ids in fleet.yaml.

    The version counts as tested, because its author tests the image, not fleet. Its name is the
    pinned version, else the time of its first promotion.
    """
    ids, pin = declared.existing, declared.version
    for version in versions:
        is_its = {place: each.id for place, each in version.publications.items()} == ids
        if is_its and pin in (None, version.version):
            return version
        if is_its or version.version == pin:
            raise PromotionRefused(
                f"image {image} {version.version} is remembered with "
                f"{'the ids of fleet.yaml' if is_its else 'other ids'}: images.{image}.version is "
                f"{pin}; change it to {version.version if is_its else 'a new name'}"
            )
    published = {place: Publication(id=id_, at=now, verified=True) for place, id_ in ids.items()}
    return Version(
        image=image,
        version=pin or version_at(now, [version.version for version in versions]),
        state="tested",
        recipe_digest="",
        role_digest="",
        since=now,
        built_at=now,
        built_by=by,
        elsewhere=True,
        publications=published,
    )


def newest_promotable(versions: Iterable[Version], image: str) -> Version:
    """Return the newest tested or candidate version; raises PromotionRefused without a version."""
    waiting = [each for each in versions if each.state in ("tested", "candidate")]
    if not waiting:
        raise PromotionRefused(
            f"no tested version of image {image} waits for its promotion; "
            f"see them with `fleet image show {image}`"
        )
    return max(waiting, key=lambda each: each.version)


def _filter_state(versions: Iterable[Version], state: State) -> list[Version]:
    return sorted(
        (each for each in versions if each.state == state), key=lambda each: each.version
    )


def _move(was: Version, state: State, now: datetime, why: str = "", *, share: int = 0) -> Move:
    # The store gets a version that was built elsewhere only at its first promotion.
    is_new = was.elsewhere and was.state == "tested"
    moved = was.altered(state=state, since=now, why=why, share=share)
    return Move(None if is_new else was, moved)


def recipe_of(fleet: Fleet, image: str) -> Recipe:
    """Return the recipe of an image; raises FleetError if fleet.yaml has no recipe for it."""
    match fleet.images.get(image):
        case ImageRecipe() | PlaybookRecipe() as recipe:
            return recipe
        case None:
            raise FleetError(f"no image {image}; known: {', '.join(fleet.images) or 'none'}")
        case _:
            raise FleetError(
                f"image {image} is built elsewhere (`existing`), not by fleet; edit "
                f"images.{image}.existing in fleet.yaml, then `fleet image promote {image}`"
            )


class ListedImage(Value):
    """An image that fleet.yaml declares or that has versions in the store."""

    image: str
    declared: Literal["recipe", "existing", "no"] = Field(
        description="Its declaration in fleet.yaml; `no`: not declared."
    )
    pinned: str | None = Field(
        None, description="The version that fleet.yaml pins; it boots whatever is promoted."
    )
    pools: tuple[str, ...] = Field((), description="Pools whose machines boot it, sorted.")
    versions: tuple[Version, ...] = Field((), description="The newest first.")
    troubles: dict[str, str] = Field(
        default_factory=dict,
        description="Pool to the reason why it boots another version or creates no machine.",
    )
    waiting: WaitingVersion | None = Field(
        None, description="The newer version that waits for its promotion, and why."
    )


class ImageList(Value):
    """The output of `fleet image list`: images, sorted by name."""

    fleet: str
    images: tuple[ListedImage, ...]


def list_images(
    fleet: Fleet,
    versions: Iterable[Version],
    troubles: Mapping[str, str],
    waiting: Mapping[str, WaitingVersion],
) -> ImageList:
    """Return every image with its versions. `troubles` maps pool to its image problem."""
    known: dict[str, list[Version]] = {name: [] for name in fleet.images}
    for version in versions:
        known.setdefault(version.image, []).insert(0, version)
    listed = []
    for name, found in sorted(known.items()):
        image = fleet.images.get(name)
        is_recipe = isinstance(image, Recipe)
        pools = sorted(n for n, pool in fleet.dynamic_pools.items() if pool.image == name)
        each = ListedImage(
            image=name,
            declared="no" if image is None else "recipe" if is_recipe else "existing",
            pinned=image.version if image else None,
            pools=tuple(pools),
            versions=tuple(found),
            troubles={pool: troubles[pool] for pool in pools if pool in troubles},
            waiting=waiting.get(name),
        )
        listed.append(each)
    return ImageList(fleet=fleet.fleet, images=tuple(listed))


class MovedVersion(Value):
    """An image version whose state changes."""

    version: str
    was: State | None = Field(description="None: it was not known before.")
    now: State
    share: int = Field(0, description="As a candidate, of each pool's workers, in percent.")


class Recycled(Value):
    """The effect of a promotion on a pool."""

    pool: str
    boots: str = Field(description="Version of its next machines; empty: unknown.")
    replaced: tuple[str, ...] = Field((), description="Workers that the next plans replace.")
    held: int = Field(description="Number of its machines.")
    at_a_time: int = Field(description="Maximum share of the pool at the same time, in percent.")
    windows: tuple[str, ...] = ()


class PromotionResult(Value):
    """The state changes of a promotion, and their effects on pools."""

    image: str
    moves: tuple[MovedVersion, ...]
    pools: tuple[Recycled, ...]
    unknown: tuple[str, ...] = Field(
        (), description="Unreadable sources, and the changes that they stop."
    )
    done: bool = Field(description="False: dry run.")


def foresee(fleet: Fleet, world: World, moves: Iterable[Move], *, done: bool) -> PromotionResult:
    """Return the state changes and the machines to replace. `done`: the changes are stored."""
    moved = {(move.now.image, move.now.version): move.now.fact for move in moves}
    versions = {(each.image, each.version): each for each in world.versions} | moved
    later = world.altered(images=tuple(versions.values()))
    after = reconcile(fleet, later)
    (image,) = {move.now.image for move in moves}
    boots = images_by_pool(fleet, later)
    held = {verdict.pool: verdict.machines for verdict in after.pools}
    outdated = sorted((each.pool, each.worker) for each in after.workers if each.outdated)
    return PromotionResult(
        image=image,
        moves=tuple(
            MovedVersion(
                version=move.now.version,
                was=move.was.state if move.was else None,
                now=move.now.state,
                share=move.now.share,
            )
            for move in moves
        ),
        pools=tuple(
            Recycled(
                pool=name,
                boots=next((each.version for each in boots[name]), ""),
                replaced=tuple(worker for at, worker in outdated if at == name),
                held=held.get(name, 0),
                at_a_time=pace_of(pool).at_a_time,
                windows=pace_of(pool).windows,
            )
            for name, pool in sorted(fleet.dynamic_pools.items())
            if pool.image == image
        ),
        unknown=after.unknown,
        done=done,
    )


_MAX_ATTEMPTS = 10


def find_version(versions: Iterable[Version], image: str, version: str) -> Version:
    """Return a version from the store. If it is absent, raise FleetError with known versions."""
    known = [each for each in versions if each.image == image]
    for each in known:
        if each.version == version:
            return each
    names = ", ".join(sorted(each.version for each in known)) or "none"
    raise FleetError(f"image {image} has no version {version}; it has: {names}")


def change_version(
    store: Store, image: str, version: str, change: Callable[[Version], Version]
) -> Version:
    """Change the stored version with `change`; return the changed version.

    If another process changed the version concurrently, call `change` again. Exceptions of
    `change` pass through.
    """
    for _ in range(_MAX_ATTEMPTS):
        was = find_version(store.image_versions(), image, version)
        changed = change(was)
        try:
            store.save_image_version(changed, was=was)
        except VersionMoved:
            continue
        return changed
    raise VersionMoved(f"image {image} {version} is under concurrent update; retry")


def promote_all(
    plan: Plan, store: Store, now: datetime, note: Tell, tell: Tell
) -> tuple[str, ...]:
    """Apply promotions and return the successful ones. The next run retries the others."""
    done = []
    for each in plan.promotions:
        said = f"image {each.image}: {each.verb} {each.version}"
        versions = [one for one in store.image_versions() if one.image == each.image]
        wanted = (each.version, each.was)
        found = next((one for one in versions if (one.version, one.state) == wanted), None)
        if found is None:
            tell(f"{said} failed: image {each.image} {each.version} is no longer {each.was}")
            continue
        try:
            moves: tuple[Move, ...] = (_move(found, "retired", now, each.because),)
            if each.now != "retired":
                moves = promote(versions, found, now, share=each.share or None)
            note(said)
            store.move_image_versions(moves)
        except (PromotionRefused, VersionMoved) as trouble:
            tell(f"{said} failed: {trouble}")
        else:
            tell(add_reason(said, each.because))
            done.append(f"{each.image} {each.version}")
    return tuple(done)
