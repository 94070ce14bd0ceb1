"""This module shows pools and workers: state, image, work, money."""

import argparse
from pathlib import Path

from fleet.commands.wiring import decide
from fleet.ports import Console
from fleet.render.status_text import status_to_text
from fleet.render.to_json import status_to_json
from fleet.store.files import LocalFiles


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the status, or write it as static pages."""
    plan = decide(args, console).plan
    if args.site:
        from fleet.render.to_html import site

        pages = site(plan)
        for path, text in pages.items():
            LocalFiles().write_text(str(Path(args.site) / path), text)
        console.note(f"wrote {len(pages)} files to {args.site}")
    if args.json:
        console.out(status_to_json(plan))
    elif not args.site:
        console.out(status_to_text(plan, colour=console.colour))
    return 0
