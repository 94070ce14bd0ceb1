"""Sentences as data: each is a text with named figures, which a call fills in."""

from datetime import datetime
from string import Formatter
from typing import Any

from fleet.schema.findings import listed
from fleet.schema.units import write_count, write_time


class Sentence(str):
    """A text with named figures in braces; a call with the figures returns the sentence.

    A time is written in UTC, and a list as names with commas. After a colon stands the noun of a
    count: `{wanted:machine}` is written as "1 machine" or "2 machines".
    """

    __slots__ = ()

    def __call__(self, **figures: object) -> str:
        """Return the sentence with its figures."""
        return _WRITER.vformat(self, (), figures)


class _FigureWriter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401 - any figure
        match value:
            case datetime():
                return write_time(value)
            case list() | tuple():
                return listed(value)
            case int() if format_spec[:1].isalpha():
                return write_count(value, format_spec)
        return format(value, format_spec)


_WRITER = _FigureWriter()
