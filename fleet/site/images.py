"""The page of images: versions, places of publication, machines, and due steps."""

from collections.abc import Iterator

from fleet.model.facts import Unknown
from fleet.site.links import IMAGES
from fleet.site.pages import Page, Shown


def images(shown: Shown) -> Iterator[Page]:
    """Yield the page of images."""
    found = shown.images
    is_unknown = isinstance(found, Unknown)
    yield Page(
        IMAGES,
        "images.html",
        {
            "images": () if is_unknown else found,
            "because": found.unknown if isinstance(found, Unknown) else "",
        },
    )
