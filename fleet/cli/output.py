"""Print the result of a command: as JSON if requested, else as text."""

import argparse
from collections.abc import Iterable

from pydantic import BaseModel

from fleet.ports import Console
from fleet.report.json import value_to_json
from fleet.report.terminal import Line, lines_to_text


def show(
    args: argparse.Namespace, console: Console, value: BaseModel, lines: Iterable[Line]
) -> None:
    """Print a value as JSON with --json, else as text."""
    if args.json:
        console.out(value_to_json(value))
    else:
        show_lines(console, lines)


def show_lines(console: Console, lines: Iterable[Line]) -> None:
    """Print lines, in colour if the console has it."""
    console.out(lines_to_text(lines, colour=console.colour))
