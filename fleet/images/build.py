"""This module has an image built, and remembers of the version what became of it."""

from collections.abc import Callable
from typing import TypeVar

from fleet.errors import FleetError
from fleet.model.images import BuildOrder, Manifest, Version, after_tests
from fleet.ports import Clock, Store

_T = TypeVar("_T")


def remember_build(
    order: BuildOrder,
    digests: tuple[str, str],
    store: Store,
    clock: Clock,
    build: Callable[[], tuple[Manifest, _T]],
) -> tuple[Manifest, _T]:
    """Return what a build gives; the store knows of it before it begins, and how it ended.

    `digests` are the recipe's and the role's.
    """
    building = Version(
        image=order.image,
        version=order.version,
        state="building",
        recipe_digest=digests[0],
        role_digest=digests[1],
        since=order.built_at,
        built_at=order.built_at,
        built_by=order.built_by,
        commit=order.commit,
    )
    store.save_image_version(building, was=None)
    try:
        manifest, more = build()
    except (FleetError, KeyboardInterrupt) as error:
        why = str(error).partition("\n")[0].rstrip(":") or "it was interrupted"
        failed = {"state": "failed", "since": clock.now(), "why": why}
        store.save_image_version(building.model_copy(update=failed), was=building)
        raise
    now = clock.now()
    update = {
        "state": "built",
        "since": now,
        "digest": manifest.digest,
        "built_in": round(sum(manifest.seconds.values())),
        "way": manifest.way,
        "rental": manifest.rental,
    }
    built = building.model_copy(update=update)
    tested = after_tests(built, manifest.tests, now) if manifest.tests else built
    store.save_image_version(tested, was=building)
    return manifest, more


def give_up_dead(
    store: Store, image: str, clock: Clock, is_alive: Callable[[str], bool | None]
) -> None:
    """Remember that builds failed whose process is gone: nobody else would say so."""
    for version in store.image_versions():
        dead = version.image == image and version.state == "building"
        if dead and is_alive(version.built_by) is False:
            failed = {"state": "failed", "since": clock.now(), "why": "its process was killed"}
            store.save_image_version(version.model_copy(update=failed), was=version)
