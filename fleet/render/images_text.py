"""This module renders images and their versions as text."""

from collections.abc import Iterator
from datetime import datetime

from fleet.facts.versions import Version
from fleet.promotion.listing import ImageList, ListedImage
from fleet.render.terminal import BLANK, Line, Span, Style, line, lines_to_text, table, title
from fleet.render.words import named, since, time

_STYLES = {"current": Style.GREEN, "candidate": Style.CYAN, "failed": Style.RED}
_NOT_DECLARED = {"no": "it is not in fleet.yaml", "existing": "baked elsewhere", "recipe": ""}


def list_to_text(listed: ImageList, now: datetime, *, colour: bool) -> str:
    """Return a table with a row for each version, and one for an image that has none."""
    head = tuple(Span(text, Style.DIM) for text in ("IMAGE", "VERSION", "STATE", "AGE", "AT"))
    rows = [head, *(row for image in listed.images for row in _rows(image, now))]
    return lines_to_text(table(rows), colour=colour)


def image_to_text(image: ListedImage, *, colour: bool) -> str:
    """Return all that is known of an image's versions."""
    said = [_NOT_DECLARED[image.declared], named("pool", image.pools) if image.pools else ""]
    about = "; ".join(text for text in said if text)
    lines = [*title(f"image {image.image}"), Span(f": {about}" if about else "")]
    blocks = [each for version in image.versions for each in (BLANK, *_block(image, version))]
    if not image.versions:
        blocks = [line("it has no version yet")]
    return lines_to_text([tuple(lines), *blocks], colour=colour)


def state_of(image: ListedImage, version: Version) -> str:
    """Return a version's state, with the share of a candidate, and whether it is pinned."""
    share = f" {version.share}%" if version.state == "candidate" else ""
    return f"{version.state}{share}{', pinned' if image.pinned == version.version else ''}"


def _rows(image: ListedImage, now: datetime) -> Iterator[tuple[Span, ...]]:
    if not image.versions:
        yield tuple(map(Span, (image.image, "-", _NOT_DECLARED[image.declared] or "no version")))
    for version in image.versions:
        style = _STYLES.get(version.state, Style.PLAIN)
        places = ", ".join(sorted(version.publications)) or "-"
        yield (
            Span(image.image),
            Span(version.version),
            Span(state_of(image, version), style),
            Span(since(version.built_at, now)),
            Span(places),
        )


def _block(image: ListedImage, version: Version) -> Iterator[Line]:
    """Yield what is remembered of one version, a line each."""
    style = _STYLES.get(version.state, Style.PLAIN)
    yield line(Span(version.version, Style.BOLD), "  ", Span(state_of(image, version), style))
    by = f"{time(version.built_at)}, by {version.built_by}"
    commit = f", from commit {version.commit}" if version.commit else ""
    pairs = [
        ("since", time(version.since)),
        ("built", by + commit),
        ("because", version.why),
        ("digest", version.digest),
        ("recipe", version.recipe_digest),
        ("role", version.role_digest),
        ("provides", ", ".join(version.provides)),
    ]
    pairs += [
        (
            "published" if upload.verified else "uploading",
            f"{place}: {upload.id}, {time(upload.at)}",
        )
        for place, upload in sorted(version.publications.items())
    ]
    rows = [(Span(f"  {key}", Style.DIM), Span(text)) for key, text in pairs if text]
    yield from table(rows)
