"""This module finds images of a suite that has no debusine-worker, without a source for one."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, ImageRecipe

_WITHOUT = {"bookworm": "bookworm-backports"}


def worker_not_in_suite(fleet: Fleet) -> Iterator[Finding]:
    """Require a source of an image whose suite holds no worker."""
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe) and image.source is None and image.suite in _WITHOUT:
            yield Finding(
                "worker-not-in-suite",
                f"{image.suite} has no debusine-worker",
                ("images", name, "suite"),
                hint=f"add a source that has one, for instance of {_WITHOUT[image.suite]}",
            )
