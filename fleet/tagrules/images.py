"""This module picks the version of an image that counts: the newest that a provider has."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.facts.versions import ImageVersion


def newest_first(
    images: Iterable["ImageVersion"], image: str, provider: str
) -> list["ImageVersion"]:
    """Return the versions of an image that are published at a provider."""
    published = [each for each in images if each.image == image and provider in each.ids]
    return sorted(published, key=lambda each: _natural(each.version), reverse=True)


def newest_version(
    images: Iterable["ImageVersion"], image: str, provider: str
) -> "ImageVersion | None":
    """Return the latest version of an image that is published at a provider."""
    return next(iter(newest_first(images, image, provider)), None)


def _natural(version: str) -> tuple[tuple[int, str], ...]:
    """Return a sorting key in which numbers count as numbers: 2026.10 is newer than 2026.9."""
    parts = re.findall(r"[0-9]+|[^0-9]+", version)
    stripped = [(part, part.lstrip("0")) for part in parts]
    return tuple(
        (len(digits), digits) if part.isdecimal() else (-1, part) for part, digits in stripped
    )
