"""This module records everything a decision rests on, without secrets."""

import argparse

from fleet.commands.wiring import load_config, look, wire
from fleet.ports import Console
from fleet.render.to_json import value_to_json
from fleet.store.files import LocalFiles


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the world as JSON."""
    config = load_config(args, console)
    text = value_to_json(look(config, wire(config.fleet, args.file), console))
    if args.out:
        LocalFiles().write_text(args.out, text)
        console.note(f"recorded in {args.out}; replay it with --world {args.out}")
    else:
        console.out(text)
    return 0
