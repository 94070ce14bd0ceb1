"""Run one measurement: a table for people, one JSON object with --json.

Exit 1 if a point is missed. `python -m bench public --help` tells of the one that writes a page.
"""

import argparse
import compileall
import importlib
import json
import os
import sys
from pathlib import Path

from bench.report import Report

NAMES = (
    *("startup", "tags", "karpenter", "plan", "explain", "reconcile", "baselines", "debusine"),
    *("stacks", "apply", "tickets", "images", "pages", "compare", "contrib", "simulate"),
)


def main() -> int:
    """Measure and print; return 1 if a point is missed."""
    # An installed program has its modules compiled; without it each process does that anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(Path(__file__).parents[1] / "fleet", quiet=1)
    if sys.argv[1:2] == ["public"]:
        from bench.public import main as write_page

        return write_page(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--smallest", action="store_true", help="small sizes, no points")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write plots there, if any")
    args = parser.parse_args()
    measure = importlib.import_module(f"bench.{args.name}").measure
    report: Report = measure(smallest=True) if args.smallest else measure()
    for name, svg in report.plots.items() if args.plots else ():
        (args.plots / name).write_text(svg, encoding="utf-8")
    print(json.dumps(report.as_json()) if args.json else report.as_table())
    return int(any(not point.holds for point in report.points()))


if __name__ == "__main__":
    sys.exit(main())
