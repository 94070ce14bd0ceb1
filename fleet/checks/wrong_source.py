"""This module finds APT sources of images that apt would not take."""

from collections.abc import Iterator

from fleet.apt_sources import problems
from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, ImageRecipe


def wrong_source(fleet: Fleet) -> Iterator[Finding]:
    """Require that every source is one in deb822 form, with all that apt needs of it."""
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe) and image.source is not None:
            for problem in problems(image.source):
                if not problem.keyless:
                    path = ("images", name, "source")
                    yield Finding(
                        "wrong-source", problem.message, path, hint=problem.hint, part=problem.part
                    )
