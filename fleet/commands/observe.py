"""This module records everything a decision rests on, without secrets."""

import argparse

from fleet.commands.loading import load_fleet
from fleet.commands.wiring import SystemClock, wire
from fleet.operate.observe import observe
from fleet.ports import Console
from fleet.render.to_json import value_to_json
from fleet.store.files import write_text


def run(args: argparse.Namespace, console: Console) -> int:
    """Write the world as JSON."""
    fleet = load_fleet(args.file, console).fleet
    console.progress(f"reading queues, providers and stacks of fleet {fleet.fleet}")
    text = value_to_json(observe(fleet, wire(fleet, args.file), SystemClock().now()))
    if args.out:
        write_text(args.out, text)
        console.note(f"recorded in {args.out}; replay it with --world {args.out}")
    else:
        console.out(text)
    return 0
