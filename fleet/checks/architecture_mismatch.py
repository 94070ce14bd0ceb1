"""This module finds pools whose image is not for the machines they boot it on."""

from collections.abc import Iterator

from fleet.catalogue import find_type
from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, Pool

RULE = "architecture-mismatch"


def check(fleet: Fleet) -> Iterator[Finding]:
    """Require that an image has the architecture that the catalogue knows of the machine."""
    for name, pool in fleet.pools.items():
        if not isinstance(pool, Pool) or pool.image not in fleet.images:
            continue
        known = find_type(fleet, pool)
        image = fleet.images[pool.image]
        if known is None or known.name == "own" or image.architecture == known.architecture:
            continue
        yield Finding(
            RULE,
            f"image '{pool.image}' is for {image.architecture}, machines of type "
            f"'{known.name}' are {known.architecture}",
            ("pools", name, "image"),
            hint=f"use an image for {known.architecture}, or another machine type: "
            "they would never boot",
        )
