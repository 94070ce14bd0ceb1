"""Run one measurement: a table for people, one JSON object with --json.

`python -m bench public --help` tells of the one that writes a page.
"""

import argparse
import importlib
import json
import os
import sys
from pathlib import Path

from bench.report import Report

NAMES = (
    *("startup", "tags", "reconcile", "debusine", "stacks", "apply", "tickets", "images", "pages"),
    *("compare", "contrib", "simulate"),
)


def main() -> int:
    """Measure, print, and return 0: figures are to be looked at, not a verdict."""
    if sys.argv[1:2] == ["public"]:
        from bench.public import main as write_page

        return write_page(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write plots there, if any")
    args = parser.parse_args()
    # An installed program has its modules compiled; without it each process does that anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    report: Report = importlib.import_module(f"bench.{args.name}").measure()
    for name, svg in report.plots.items() if args.plots else ():
        (args.plots / name).write_text(svg, encoding="utf-8")
    print(json.dumps(report.as_json()) if args.json else report.as_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
