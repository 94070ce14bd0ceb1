"""This module renders which versions of images stay, and which go."""

from collections.abc import Iterator

from fleet.promotion.pruning import PrunedVersion, Pruning
from fleet.render.terminal import Line, Span, Style, line, lines_to_text
from fleet.render.words import many


def pruning_to_text(pruning: Pruning, *, colour: bool) -> str:
    """Return every version with why it stays, or where it was deleted."""
    return lines_to_text(_lines(pruning), colour=colour)


def _lines(pruning: Pruning) -> Iterator[Line]:
    gone = [each for each in pruning.versions if not each.kept]
    verb = "Deleted" if pruning.done else "Would delete"
    yield line(Span(f"{verb} {many(len(gone), 'version')} of images", Style.BOLD))
    for each in pruning.versions:
        name = f"  {each.image} {each.version} ({each.state})"
        if each.kept:
            yield line(Span("  keep  ", Style.GREEN), name.strip(), f": {each.kept}")
        else:
            yield line(Span("- delete", Style.RED), name[1:], _where(each))
    for found in pruning.forgotten:
        name = f" {found.image} {found.version} at {found.place}, {found.id}: no version"
        if found.kept:
            yield line(Span("? found", Style.YELLOW), f"{name} remembers it; {found.kept}")
        else:
            yield line(Span("- delete", Style.RED), f"{name} remembered it")
    for place, why in sorted(pruning.unlisted.items()):
        yield line(Span("? found", Style.YELLOW), f" not known what {place} holds: {why}")


def _where(version: PrunedVersion) -> str:
    places = (f"{place} {upload}" for place, upload in sorted(version.places.items()))
    return "".join(f", {each}" for each in places)
