"""This module says which versions of an image move when one is promoted or taken back.

Only a version that passed its test is promoted. Promoting makes what was current the previous
version, which boots where the current one does not; taking back the latest promotion retires it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from fleet.errors import PromotionRefused
from fleet.facts.versions import BOOTABLE, Move, Publication, State, Version


def promote(
    versions: Iterable[Version], wanted: Version, now: datetime, *, share: int | None = None
) -> tuple[Move, ...]:
    """Return what moves when a version becomes current, or with a share the candidate."""
    others = [each for each in versions if each.version != wanted.version]
    current = _in(others, "current")
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
            *(_move(each, "retired", now, replaced) for each in _in(others, "candidate")),
        )
    older = [each for each in _in(others, "candidate") if each.version < wanted.version]
    replaced = f"{wanted.version} was promoted in its place"
    return (
        _move(wanted, "current", now),
        *(_move(each, "previous", now) for each in current),
        *(_move(each, "retired", now, replaced) for each in [*_in(others, "previous"), *older]),
    )


def retire(wanted: Version, now: datetime, why: str) -> tuple[Move, ...]:
    """Return what moves when a candidate is given up."""
    return (_move(wanted, "retired", now, why),)


def take_back(versions: Sequence[Version], image: str, now: datetime) -> tuple[Move, ...]:
    """Return what moves when the latest promotion is taken back: a candidate's, else the last."""
    if candidates := _in(versions, "candidate"):
        return tuple(_move(each, "retired", now, "it was taken back") for each in candidates)
    previous = _in(versions, "previous")
    if not previous:
        raise PromotionRefused(
            f"image {image} has no previous version to go back to; "
            f"`fleet image promote {image} VERSION` makes any tested one current"
        )
    return (
        _move(previous[-1], "current", now),
        *(
            _move(each, "retired", now, f"it was taken back for {previous[-1].version}")
            for each in _in(versions, "current")
        ),
    )


def declared_version(
    image: str, ids: Mapping[str, str], versions: Iterable[Version], now: datetime, *, by: str
) -> Version:
    """Return what fleet.yaml names of an image baked elsewhere; a new version if it names new ids.

    Nobody but who wrote that line tested it, and who promotes it: that is why it is as tested.
    """
    for version in versions:
        if {place: each.id for place, each in version.publications.items()} == ids:
            return version
    vouched = {place: Publication(id=id_, at=now, verified=True) for place, id_ in ids.items()}
    return Version(
        image=image,
        version=now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ"),
        state="tested",
        recipe_digest="",
        role_digest="",
        since=now,
        built_at=now,
        built_by=by,
        elsewhere=True,
        publications=vouched,
    )


def newest_promotable(versions: Iterable[Version], image: str) -> Version:
    """Return the latest version that waits for its promotion; raises where none does."""
    waiting = [each for each in versions if each.state in ("tested", "candidate")]
    if not waiting:
        raise PromotionRefused(
            f"no tested version of image {image} waits for its promotion; "
            f"see them with `fleet image show {image}`"
        )
    return max(waiting, key=lambda each: each.version)


def _in(versions: Iterable[Version], state: State) -> list[Version]:
    return sorted(
        (each for each in versions if each.state == state), key=lambda each: each.version
    )


def _move(was: Version, state: State, now: datetime, why: str = "", *, share: int = 0) -> Move:
    update = {"state": state, "since": now, "why": why, "share": share}
    # What fleet.yaml names is remembered by its promotion.
    is_new = was.elsewhere and was.state == "tested"
    return Move(None if is_new else was, was.model_copy(update=update))
