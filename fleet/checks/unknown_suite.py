"""This module finds suites of images that the role cannot make a worker of."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, did_you_mean
from fleet.schema.model import Fleet, ImageRecipe

SUITES = ("bookworm", "trixie", "sid")
"""The releases of Debian that the role was run on."""

_OTHER_NAMES = {"oldstable": "bookworm", "stable": "trixie", "unstable": "sid"}


def unknown_suite(fleet: Fleet) -> Iterator[Finding]:
    """Require that fleet knows the suite of an image, by its code name."""
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe) and image.suite not in SUITES:
            meant = _OTHER_NAMES.get(image.suite)
            yield Finding(
                "unknown-suite",
                f"no image can be baked of the suite '{image.suite}'",
                ("images", name, "suite"),
                hint=f"did you mean '{meant}'?" if meant else did_you_mean(image.suite, SUITES),
            )
