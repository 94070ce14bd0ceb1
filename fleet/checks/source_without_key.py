"""This module finds APT sources of images whose packages nobody vouches for."""

from collections.abc import Iterator

from fleet.apt_sources import problems
from fleet.schema.findings import Finding
from fleet.schema.model import Fleet, ImageRecipe


def source_without_key(fleet: Fleet) -> Iterator[Finding]:
    """Require that every source names the public key that signs it."""
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe) and image.source is not None:
            for problem in problems(image.source):
                if problem.keyless:
                    path = ("images", name, "source")
                    yield Finding(
                        "source-without-key",
                        problem.message,
                        path,
                        hint=problem.hint,
                        part=problem.part,
                    )
