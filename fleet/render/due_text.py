"""This module renders which images need building, and why."""

from collections.abc import Iterator

from fleet.promotion.due import DueImage, DueReport
from fleet.render.terminal import Line, Span, Style, line, lines_to_text
from fleet.render.words import time


def due_to_text(report: DueReport, *, colour: bool) -> str:
    """Return each image with what is due of it, why, and the commands that do it."""
    lines = [each for image in report.images for each in _lines(image)]
    return lines_to_text(
        lines or [line("fleet.yaml has no image that fleet bakes")], colour=colour
    )


def _lines(image: DueImage) -> Iterator[Line]:
    style = Style.YELLOW if image.is_due else Style.GREEN
    yield line(f"image {image.image}: ", Span(_state(image), style))
    for cause in image.causes:
        yield line(f"  {cause.because} [{cause.reason}]")
    if image.rebuild:
        yield line(f"  {image.rebuild}")
    if image.unknown:
        yield line("  ", Span("not known", Style.YELLOW), f": {image.unknown}")
    if image.steps and image.serving:
        yield line(f"  machines boot {image.serving} meanwhile")
    if image.waiting:
        yield line(f"  {image.waiting.said}; {image.waiting.command}")
    if image.is_due:
        yield from (line(f"  $ {command}") for command in commands_of(image))


def commands_of(image: DueImage) -> list[str]:
    """Return the commands that do what is due, in their order."""
    named = " ".join(filter(None, [image.image, image.version]))
    return [f"fleet image {step} {named}" for step in image.steps]


def _state(image: DueImage) -> str:
    if not image.steps:
        return "nothing is due"
    if not image.waits:
        return "due"
    until = f"; tried again from {time(image.waits_until)}" if image.waits_until else ""
    return f"due, but {image.waits}{until}"
