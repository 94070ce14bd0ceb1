"""This module renders the tags that do not count, and those that today's rules would add."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.plan import Plan, RefusedTag, RuledTag, TagDifference
from fleet.render import words
from fleet.render.terminal import Line, Span, Style, line, title

_MOST = 10


@dataclass(frozen=True)
class TagNote:
    """What is said about one tag, and of how many requests."""

    tag: str
    because: str
    path: tuple[str | int, ...]
    count: int
    requests: tuple[str, ...]
    is_wrong: bool = True
    """Whether somebody does not get what was meant."""


def tag_notes(plan: Plan) -> Iterator[tuple[str, tuple[TagNote, ...]]]:
    """Yield headings, each with its notes; nothing where there is nothing to say."""
    ruled = _ruled(plan)
    if ruled:
        yield "Tags that rules of fleet.yaml give to tickets", ruled
    refused = _grouped(plan, "refused")
    if refused:
        yield "Tags that do not count: asked for without permission", refused
    dropped = tuple(
        TagNote(
            tag,
            f"it waited so long for {tag} that it may run without it",
            (),
            len(signature.requests),
            signature.requests,
        )
        for signature in plan.signatures
        for tag in signature.dropped
    )
    if dropped:
        yield "Tags that requests may do without by now: `otherwise` of the tag", dropped
    differences = _grouped(plan, "differences")
    if differences:
        yield "Rules that the queue did not apply to requests that wait", differences


def tags_section(plan: Plan) -> Iterator[Line]:
    """Yield the notes as text for a terminal."""
    for heading, notes in tag_notes(plan):
        yield title(heading)
        for note in notes[:_MOST]:
            names = words.some_of(note.requests, total=note.count)
            sign = Span("! ", Style.YELLOW) if note.is_wrong else Span("- ")
            yield line("  ", sign, f"{words.many(note.count, 'request')}: {names}")
            yield line("      ", note.because)
            if note.path:
                place = words.cited([note.path], plan.included)
                yield line(Span(f"      see {place}", Style.DIM))
        hidden = len(notes) - _MOST
        if hidden > 0:
            yield line(f"  … and {words.many(hidden, 'more kind')}")


def _ruled(plan: Plan) -> tuple[TagNote, ...]:
    found: defaultdict[RuledTag, list[str]] = defaultdict(list)
    for signature in plan.signatures:
        for each in signature.ruled:
            found[each].extend(signature.requests)
    return tuple(
        TagNote(
            each.tag,
            f"{each.tag} by {words.place(each.path)}",
            each.path,
            len(requests),
            tuple(requests),
            is_wrong=False,
        )
        for each, requests in found.items()
    )


def _grouped(plan: Plan, kind: str) -> tuple[TagNote, ...]:
    found: defaultdict[RefusedTag | TagDifference, list[str]] = defaultdict(list)
    for signature in plan.signatures:
        for each in getattr(signature, kind):
            found[each].extend(signature.requests)
    return tuple(
        TagNote(each.tag, each.because, each.path, len(requests), tuple(requests))
        for each, requests in found.items()
    )
