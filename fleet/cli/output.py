"""Print the result of a command: as JSON with --json, else as text."""

import argparse
import json
from collections.abc import Iterable

from pydantic import BaseModel

from fleet.ports import Console
from fleet.report.document import Block
from fleet.report.json import value_to_json
from fleet.report.terminal import WIDTH, text_for


def show_text(
    args: argparse.Namespace,
    console: Console,
    value: object,
    text: str,
    *,
    sort_keys: bool = False,
) -> None:
    """Print plain values as JSON with --json, else a text."""
    console.out(json.dumps(value, indent=2, sort_keys=sort_keys) if args.json else text)


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
