"""This module finds tags that fleet.yaml gives and forbids at the same time."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet
from fleet.tagrules.mentions import Mention, mentions
from fleet.tagrules.offers import find_doubts
from fleet.tagrules.vocabulary import Vocabulary


def forbidden_tag(fleet: Fleet) -> Iterator[Finding]:
    """Require that rules ask only for what rules may ask, and sources provide what they may."""
    if all(rule.asked_by is None and rule.provided_by is None for rule in fleet.tags.values()):
        return
    vocabulary = Vocabulary(fleet)
    for mention in mentions(fleet):
        if mention.role == "asked":
            yield from _asked(vocabulary, mention)
    for name in fleet.pools:
        for doubt in find_doubts(fleet, name, ()):
            # What a machine provides by itself nobody wrote: to forbid it is enough.
            if doubt.kind == "not-permitted" and doubt.path[-1:] != ("machine",):
                hint = "remove it here, or let this source provide it"
                yield Finding("forbidden-tag", doubt.because, doubt.path, hint=hint)
    for name, rule in fleet.tags.items():
        if rule.asked_by == []:
            message = f"nobody may ask for {name}, so no request ever gets what provides it"
            hint = "name who may, as in asked_by: [rules]"
            yield Finding("forbidden-tag", message, ("tags", name, "asked_by"), hint=hint)


def _asked(vocabulary: Vocabulary, mention: Mention) -> Iterator[Finding]:
    allowed, path = vocabulary.asked_by(mention.tag)
    word = "rules" if mention.path[0] == "powerful" else "task"
    if allowed is not None and word not in allowed:
        yield Finding(
            "forbidden-tag",
            f"this rule asks for {mention.tag} in vain: {'.'.join(map(str, path))} does not name "
            f"{word}",
            mention.path,
            hint=f"add {word} there, or remove the tag here",
        )
