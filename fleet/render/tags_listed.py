"""This module renders the list of tags: what each is, who provides it, who makes it come true."""

from collections.abc import Iterator

from fleet.explain.enforcement import WORDS, EnforcedClaim, ListedTag, TagList
from fleet.render.terminal import Line, Span, Style, line, lines_to_text


def tag_list_to_text(listed: TagList, *, colour: bool) -> str:
    """Return every tag with its claims and their lines of fleet.yaml."""
    return lines_to_text(_lines(listed), colour=colour)


def _lines(listed: TagList) -> Iterator[Line]:
    if not listed.tags:
        yield line(f"Fleet {listed.fleet} knows no tags")
    for tag in listed.tags:
        yield line(Span(tag.tag, Style.BOLD), f"  {_described(tag)}")
        for each in tag.enforcement:
            yield from _claim(each)


def _described(tag: ListedTag) -> str:
    words = [tag.kind] if tag.kind != "plain" else []
    words += ["on demand"] if tag.on_demand else []
    words += ["exclusive"] if tag.exclusive else []
    words += [f"at most {count} {per}" for per, count in sorted(tag.limits.items())]
    pools = ", ".join(tag.pools)
    words.append(f"provided by {pools}" if pools else "no pool provides it")
    return ", ".join(words)


def _claim(each: EnforcedClaim) -> Iterator[Line]:
    style = Style.PLAIN if each.by == "scheduler" else Style.YELLOW
    yield line(
        f"  {each.claim} at {each.queue}: ", Span(WORDS[each.by], style), f" ({each.because})"
    )
    if each.place and each.claim != "tag":
        yield line(Span(f"      see {each.place}", Style.DIM))
