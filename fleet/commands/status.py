"""This module shows pools and workers: state, image, work, money."""

import argparse
import shutil
from collections.abc import Mapping
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
        _write_site(Path(args.site), pages)
        console.note(f"wrote {len(pages)} files to {args.site}; open {args.site}/index.html")
    if args.json:
        console.out(status_to_json(plan))
    elif not args.site:
        console.out(status_to_text(plan, colour=console.colour))
    return 0


def _write_site(folder: Path, pages: Mapping[str, str]) -> None:
    """Write the pages; those of workers and pools that are gone go too."""
    shutil.rmtree(folder / "-" / "status", ignore_errors=True)
    for path, text in pages.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        LocalFiles().write_text(str(target), text)
