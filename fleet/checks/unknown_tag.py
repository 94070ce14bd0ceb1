"""This module finds tags that lead nowhere: asked for and never provided, or misspelt."""

import re
from collections.abc import Collection, Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet
from fleet.tagrules.mentions import mentions
from fleet.tagrules.numbers import tag_name
from fleet.tagrules.sources import pool_sources
from fleet.tagrules.vocabulary import Vocabulary

_NEAR = 0.85
_DIGITS = re.compile(r"[0-9]+")


def unknown_tag(fleet: Fleet) -> Iterator[Finding]:
    """Warn of a tag that no pool provides, or that is nearly another one."""
    if not fleet.pools:
        return
    mentioned = tuple(mentions(fleet))
    asked = {tag_name(m.tag) for m in mentioned if m.role == "asked"}
    declared = {name for name in fleet.tags if not name.endswith("*")}
    if not asked and not declared:
        return
    provided = {tag_name(p.tag) for name in fleet.pools for p in pool_sources(fleet, name, ())}
    for mention in mentioned:
        name = tag_name(mention.tag)
        if mention.role == "asked" and name not in provided:
            message = f"no pool provides {name}: what asks for it waits for ever"
            hint = _meant(name, provided) or "add it to `provides` of a pool that really has it"
            yield Finding("unknown-tag", message, mention.path, severity="warning", hint=hint)
        elif mention.role != "asked" and name not in asked | declared:
            near = _meant(name, asked | declared)
            if near:
                message = f"nothing asks for {name}, and nothing declares it"
                yield Finding("unknown-tag", message, mention.path, severity="warning", hint=near)
    vocabulary = Vocabulary(fleet)
    for name in sorted(declared - provided):
        near = _meant(name, provided)
        if near or vocabulary.is_on_demand(name) or vocabulary.is_exclusive(name):
            message = f"no pool provides {name}"
            hint = near or "add it to `provides` of a pool, or remove it"
            yield Finding(
                "unknown-tag", message, ("tags", name), severity="warning", at="key", hint=hint
            )


def _meant(tag: str, known: Collection[str]) -> str:
    """Return a hint where a tag is nearly a known one; other figures make it another tag."""
    if not known:
        return ""
    import difflib

    shape = _DIGITS.sub("0", tag)
    others = [each for each in sorted(known) if each != tag and _DIGITS.sub("0", each) != shape]
    close = difflib.get_close_matches(tag, others, n=1, cutoff=_NEAR)
    return f"did you mean '{close[0]}'?" if close else ""
