"""Sentences with gaps. The form of a gap determines the text of its figure."""

import re
from collections.abc import Callable
from functools import partial
from string import Formatter
from typing import Any, Generic, TypeVarTuple

from fleet.schema.findings import listed, some_of, yaml_key
from fleet.schema.units import write_count, write_duration, write_time

Figures = TypeVarTuple("Figures")
_FORMS: dict[str, Callable[[Any], str]] = {
    "": str,
    "comma": ", ".join,
    "duration": write_duration,
    "if": lambda _: "",
    "key": yaml_key,
    "listed": listed,
    "or": " or ".join,
    "second": "{:%Y-%m-%d %H:%M:%S} UTC".format,
    "some": some_of,
    "time": write_time,
    "unless": lambda _: "",
}
_CLAUSES = re.compile(r"\[[^\]]*\]|[^\[]+")
_Part = tuple[str, int, Callable[[Any], str]]
"""Text before a gap, the number of its figure (0 without a gap), and its form."""


class Sentence(Generic[*Figures]):
    """A sentence with the types of its figures, in the order in which their gaps appear.

    Each gap has a name and a form: `Sentence[int, str]("idle for {idle:duration}: {reason}")`. A
    form is an entry of `_FORMS`, a format of Python that begins with `.`, `,` or `%`, or a noun.
    `is` after a noun adds the verb: `{count:action is}` becomes "1 action is" or "2 actions are".
    `{count:is|are}` becomes the text for one, or for many.

    A clause in brackets is left out if a figure in it is empty: `"closed[: {reason}]"`. The form
    `if` is such a condition without text, and `unless` its opposite.
    """

    def __init__(self, text: str) -> None:
        self.gaps: dict[str, None] = {}
        """Names of the gaps, in the order of the figures of a call."""
        self._clauses: list[tuple[list[tuple[int, bool]], list[_Part]]] = []
        """The conditions of each clause, as (number of a figure, is wanted), and its parts."""
        for clause in _CLAUSES.findall(text):
            is_optional = clause[0] == "["
            gaps = [*Formatter().parse(clause[1:-1] if is_optional else clause)]
            self.gaps |= {name: None for _, name, *_ in gaps if name}
            places = {name: place for place, name in enumerate(["", *self.gaps])}
            forms = [(places[name], form != "unless") for _, name, form, _ in gaps if name]
            parts = [(lead, places[n or ""], _write_as(form or "")) for lead, n, form, _ in gaps]
            self._clauses.append((forms if is_optional else [], parts))

    def __call__(self, *figures: *Figures) -> str:
        """Return the sentence with these figures."""
        given: tuple[Any, ...] = ("", *figures)
        return "".join(
            [
                lead + write(given[place])
                for conditions, parts in self._clauses
                if not conditions or all(bool(given[nth]) is wanted for nth, wanted in conditions)
                for lead, place, write in parts
            ]
        )


def _write_as(form: str) -> Callable[[Any], str]:
    if "|" in form:
        one, many = form.split("|")
        return lambda count: one if count == 1 else many
    if form.startswith((".", ",", "%")):
        return f"{{:{form}}}".format
    noun = form.removesuffix(" is")
    if noun != form:
        return lambda count: f"{count} {noun} is" if count == 1 else f"{count} {noun}s are"
    return _FORMS.get(form) or partial(write_count, noun=noun)
