"""Sentences with gaps. The form of a gap determines the text of its figure."""

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
    "key": yaml_key,
    "listed": listed,
    "or": " or ".join,
    "second": "{:%Y-%m-%d %H:%M:%S} UTC".format,
    "some": some_of,
    "time": write_time,
}


class Sentence(Generic[*Figures]):
    """A sentence with the types of its figures, in the order in which their gaps appear.

    Each gap has a name and a form: `Sentence[int, str]("idle for {idle:duration}: {reason}")`. A
    form is an entry of `_FORMS`, a format of Python that begins with `.` or `%`, or a noun. `is`
    after a noun adds the verb: `{count:action is}` becomes "1 action is" or "2 actions are".
    """

    def __init__(self, text: str) -> None:
        self.gaps: dict[str, None] = {}
        """Names of the gaps, in the order of the figures of a call."""
        self._parts: list[tuple[str, str, Callable[[Any], str]]] = []
        for lead, name, form, _ in Formatter().parse(text):
            self._parts.append((lead, name or "", _write_as(form or "")))
            if name:
                self.gaps[name] = None

    def __call__(self, *figures: *Figures) -> str:
        """Return the sentence with these figures."""
        given: tuple[object, ...] = figures
        values = {"": ""} | dict(zip(self.gaps, given, strict=True))
        return "".join([lead + write(values[name]) for lead, name, write in self._parts])


def _write_as(form: str) -> Callable[[Any], str]:
    if form.startswith((".", "%")):
        return f"{{:{form}}}".format
    noun = form.removesuffix(" is")
    if noun != form:
        return lambda count: f"{count} {noun} is" if count == 1 else f"{count} {noun}s are"
    return _FORMS.get(form) or partial(write_count, noun=noun)
