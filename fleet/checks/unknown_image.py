"""This module finds pools whose image nothing declares."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, did_you_mean
from fleet.schema.model import Fleet, StaticPool


def unknown_image(fleet: Fleet) -> Iterator[Finding]:
    """Require that the image of a pool is declared under `images`."""
    for name, pool in fleet.pools.items():
        if isinstance(pool, StaticPool) or pool.image in fleet.images:
            continue
        yield Finding(
            "unknown-image",
            f"there is no image '{pool.image}'",
            ("pools", name, "image"),
            hint=did_you_mean(pool.image, fleet.images) or f"add images: {{{pool.image}: …}}",
        )
