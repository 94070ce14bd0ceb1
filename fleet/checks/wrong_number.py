"""This module finds numeric tags whose number is missing, out of range or on the wrong side."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet
from fleet.tagrules.mentions import Mention, mentions
from fleet.tagrules.numbers import read_minimums, read_numbers, tag_name
from fleet.tagrules.vocabulary import Vocabulary

_RANGE = "a number is not negative, below 10^12, and has at most six places"


def wrong_number(fleet: Fleet) -> Iterator[Finding]:
    """Require numbers within range: `name>=64` where one asks, `name=128` where one provides."""
    numeric = Vocabulary(fleet).numeric
    for mention in mentions(fleet):
        name = tag_name(mention.tag)
        if name in numeric:
            yield from _number(mention, name)
    for name in numeric:
        if name.endswith("*"):
            message = "a numeric tag needs its whole name"
            hint = "declare each numeric tag by itself"
            yield Finding("wrong-number", message, ("tags", name, "kind"), hint=hint)


def _number(mention: Mention, name: str) -> Iterator[Finding]:
    asks = mention.role == "asked"
    read = read_minimums if asks else read_numbers
    if read([mention.tag], [name])[1]:
        return
    form = f"{name}>=64" if asks else f"{name}=128"
    sign = ">=" if asks else "="
    rest = mention.tag.removeprefix(name)
    if rest.startswith(sign) and not rest.startswith(f"{sign}="):
        yield Finding("wrong-number", f"{mention.tag} is out of range", mention.path, hint=_RANGE)
    else:
        does = "asks for" if asks else "states"
        message = f"{name} is a number: who {does} it writes {form}"
        yield Finding("wrong-number", message, mention.path, hint=f"write it like {form}")
