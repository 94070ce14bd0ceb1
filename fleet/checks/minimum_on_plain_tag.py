"""This module finds minimums of tags that are no numbers."""

from collections.abc import Iterator

from fleet.schema.findings import Finding, did_you_mean
from fleet.schema.model import Fleet
from fleet.tagrules.mentions import mentions
from fleet.tagrules.numbers import tag_name
from fleet.tagrules.vocabulary import Vocabulary


def minimum_on_plain_tag(fleet: Fleet) -> Iterator[Finding]:
    """Require that a minimum is asked only of a tag of kind number."""
    numeric = Vocabulary(fleet).numeric
    for mention in mentions(fleet):
        name = tag_name(mention.tag)
        if ">=" not in mention.tag or name in numeric:
            continue
        near = did_you_mean(name, numeric)
        yield Finding(
            "minimum-on-plain-tag",
            f"{name} is a plain tag, it has no minimum",
            mention.path,
            hint=near
            if near.startswith("did")
            else f"declare it: tags: {{{name}: {{kind: number}}}}",
        )
