"""Print the result of a command: as JSON with --json, else as text."""

import argparse
from collections.abc import Iterable

from pydantic import BaseModel

from fleet.ports import Console
from fleet.report.document import Block
from fleet.report.json import value_to_json
from fleet.report.terminal import WIDTH, text_for


def show(
    args: argparse.Namespace,
    console: Console,
    value: BaseModel,
    blocks: Iterable[Block],
    *,
    piped: int | None = WIDTH,
) -> None:
    """Print a value as JSON with --json, else as text.

    `piped` is the width of text without a terminal; None for unlimited lines, which scripts need.
    """
    if args.json:
        console.out(value_to_json(value))
    else:
        console.out(text_for(console, blocks, piped=piped))
