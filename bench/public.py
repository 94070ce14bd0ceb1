"""Build docs/benchmark.md: fleet beside the real code of others, in one run on one machine.

`--alone` leaves the others' code out, but for K; `--out` is another folder than docs. What is
measured is saved in benchmark/result.json as it comes; the page and its plots are made of that
file alone by `bench.public_page`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from bench import karpenter
from bench.public_page import Result, missed, write
from bench.report import describe_machine
from tests.live import chroot
from tests.rigs.process import ROOT

OWN = ("plan", "explain", "reconcile")
OTHERS = ("debusine", "tickets")
LIMIT = 5_400
"""Seconds that one measurement has."""


def main(arguments: Sequence[str]) -> int:
    """Measure, write the page, and return 1 if a point is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench public", description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="only to see that it works")
    parser.add_argument("--alone", action="store_true", help="without the others' code, but for K")
    parser.add_argument("--page", action="store_true", help="write only the page, of its result")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the page")
    args = parser.parse_args(arguments)
    if args.page:
        result: Result = json.loads(
            (args.out / "benchmark" / "result.json").read_text(encoding="utf-8")
        )
        write(result, args.out)
        return 0
    result = {
        "format": "fleet-benchmark-2",
        "size": "smallest" if args.smallest else "whole",
        "began": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": describe_machine() + f", {_memory():.0f} GiB, {_processor()}",
        "load": round(os.getloadavg()[0], 1),
        "reports": {},
        "absent": {},
    }
    for name in OWN if args.alone else ("karpenter", *OWN, *OTHERS):
        print(f"bench: python -m bench {name}", file=sys.stderr)
        measured = _measure(name, smallest=args.smallest and name not in OTHERS)
        result["absent" if isinstance(measured, str) else "reports"][name] = measured
        # Debusine's chroot may have been made only now.
        write(result | {"versions": _versions()}, args.out)
    print(f"bench: {args.out / 'benchmark.md'} is written", file=sys.stderr)
    return int(bool(missed(result)))


def _measure(name: str, *, smallest: bool) -> object:
    """Return what another measurement of this folder reports; why not, if it reports nothing."""
    command = [sys.executable, "-m", "bench", name, "--json"]
    try:
        done = subprocess.run(
            [*command, "--smallest"] if smallest else command,
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=LIMIT,
        )  # fmt: skip
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"it did not end within {LIMIT} s"
    except ValueError:
        return f"it ended with {done.returncode}"


def _versions() -> dict[str, str]:
    shown = subprocess.run(
        ["git", "describe", "--always", "--tags"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {
        "fleet": shown.stdout.strip() or metadata.version("fleet"),
        "Python": platform.python_version(),
        "HiGHS": metadata.version("highspy"),
        karpenter.MODULE: karpenter.VERSION,
        "debusine-server": _debusine(),
    }


def _debusine() -> str:
    """Return the version in the chroot that `bench.debusine` runs."""
    status = chroot.place() / "var/lib/dpkg/status"
    text = status.read_text(encoding="utf-8") if status.exists() else ""
    _, _, fields = text.partition("Package: debusine-server\n")
    return fields.partition("\nVersion: ")[2].partition("\n")[0] or "none"


def _memory() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()
