"""Build docs/benchmark.md: fleet beside the real code of others, in one run on one machine.

`--quick` takes a tenth of the sizes, `--alone` leaves the others' code out, `--out` is another
folder than docs. What is measured is saved in benchmark/result.json as it comes; the page and its
plots are made of that file alone by `bench.public_page`.
"""

import argparse
import compileall
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from threading import Lock

from bench import karpenter
from bench.one import Answer, decide, run_alone
from bench.public_page import Result, write
from bench.report import describe_machine
from bench.worlds import Size
from tests.live import chroot
from tests.rigs.process import ROOT

SMALL = (Size(100, 40, 10, 10), Size(1_000, 300, 40, 100))
LARGER = (Size(10_000, 2_000, 100, 1_000), Size(10_000, 2_000, 400, 10_000))
GREAT = Size(100_000, 8_000, 400, 2_000)
TENTH = Size(10_000, 800, 100, 200)
LEAST = Size(1_000, 40, 20, 10)
SEEDS = 8, 9
"""Of more worlds of the greatest size under limits: what is searched there depends on luck."""
LONG = {10_000: 210, 100_000: 150}
"""Seconds that a decision under limits and its check have, by requests; the point is 30."""
UNLIMITED = 300
"""Seconds that any other decision has."""
PODS, ALONE = (1_000, 5_000, 20_000), 1_000
OTHERS = 900
"""Seconds that another measurement of this folder has."""


def main(arguments: Sequence[str]) -> int:
    """Measure, write the page, and return 0: figures are to be looked at, not a verdict."""
    parser = argparse.ArgumentParser(prog="python -m bench public", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes")
    parser.add_argument("--smallest", action="store_true", help="only to see that it works")
    parser.add_argument("--alone", action="store_true", help="without the others' code")
    parser.add_argument("--at-once", action="store_true", help="two measurements at a time")
    parser.add_argument("--page", action="store_true", help="write only the page, of its result")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the page")
    args = parser.parse_args(arguments)
    if args.page:
        result = args.out / "benchmark" / "result.json"
        write(json.loads(result.read_text(encoding="utf-8")), args.out)
        return 0
    if args.at_once and args.alone:
        parser.error("--at-once is about the others' code, which --alone leaves out")
    # As a package's are: a checkout's modules are compiled by whoever comes first.
    compileall.compile_dir(ROOT / "fleet", quiet=1)
    run = Run(args.out, LEAST if args.smallest else TENTH if args.quick else GREAT)
    run.result["at_once"] = args.at_once
    others = [] if args.alone else ["debusine", "tickets"]
    with ThreadPoolExecutor(1) as beside:
        waiting = [beside.submit(run.of_bench, name) for name in others if args.at_once]
        run.decide(run.small)
        run.command(limited=False)
        if not args.alone:
            run.karpenter()
        run.decide(run.large)
        for name in others if not args.at_once else ():
            run.of_bench(name)
        run.decide(run.limited)
        run.command(limited=True)
        for each in waiting:
            each.result()
    print(f"bench: {args.out / 'benchmark.md'} is written", file=sys.stderr)
    return 0


class Run:
    """One run and what it found so far."""

    def __init__(self, out: Path, great: Size) -> None:
        self.out, self.great, self.quick = out, great, great != GREAT
        self.saving = Lock()
        self.small = SMALL[:1] if great == LEAST else SMALL
        larger = () if self.quick else LARGER
        self.large = tuple(dict.fromkeys((*grown(great), *larger)))
        others = () if self.quick else [replace(great, seed=seed) for seed in SEEDS]
        self.limited = [
            replace(each, limited=True) for each in (*self.small, *larger[:1], great, *others)
        ]
        self.result: Result = {
            "format": "fleet-benchmark-1",
            "size": "quick" if self.quick else "whole",
            "began": datetime.now(UTC).isoformat(timespec="minutes"),
            "machine": describe_machine() + f", {_memory():.0f} GiB, {_processor()}",
            "load": round(os.getloadavg()[0], 1),
            "versions": _versions(),
            "decisions": [],
            "command": {},
            "karpenter": [],
            "others": {},
            "absent": {},
        }

    def decide(self, sizes: Iterable[Size]) -> None:
        """Decide about invented worlds."""
        for size in sizes:
            print(f"bench: decide {size}", file=sys.stderr)
            limit = (60 if self.quick else LONG.get(size.requests)) if size.limited else None
            rounds = 1 if size.limited or size.requests > SMALL[1].requests else 3
            case = asdict(size) | {"rounds": rounds}
            self.result["decisions"].append(asdict(size) | decide(case, limit or UNLIMITED))
            self.save()

    def command(self, *, limited: bool) -> None:
        """Run `fleet plan` on files."""
        size = replace(self.great, limited=limited)
        print(f"bench: fleet plan, {size}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            # Not in this process: who is started by a large one is said to have been as large.
            decide({"folder": folder} | asdict(size), UNLIMITED)
            config, world = Path(folder) / "fleet.yaml", Path(folder) / "world.json"
            plan = ["plan", "-f", str(config), "--world", str(world), "--json"]
            limit = LONG[GREAT.requests] if limited else UNLIMITED
            found = run_alone([sys.executable, "-m", "fleet", *plan], limit)
        self.result["command"]["limited" if limited else "unlimited"] = found
        self.save()

    def karpenter(self) -> None:
        """Solve its pods, and decide about the same as requests; then each pod on its own node."""
        print("bench: beside Karpenter", file=sys.stderr)
        try:
            karpenter.built()
        except karpenter.NotHere as reason:
            self.lacks("karpenter", str(reason))
            return
        pods = [(each // 10 if self.quick else each, False) for each in PODS]
        for count, alone in (*pods, (ALONE // 10 if self.quick else ALONE, True)):
            theirs: Mapping[str, object] = karpenter.solve(count, UNLIMITED, alone=alone)
            case = {"asks": theirs.get("asks"), "rounds": 2}
            ours: Answer = decide(case, UNLIMITED) if "asks" in theirs else {}
            told = {key: value for key, value in theirs.items() if key != "asks"}
            row = {"requests": count, "alone": alone, "ours": ours, "theirs": told}
            self.result["karpenter"].append(row)
            self.save()

    def of_bench(self, name: str) -> None:
        """Take what another measurement of this folder says, in a process of its own."""
        if self.quick:
            return self.lacks(name, "it takes minutes, and is left out of a quick run")
        print(f"bench: python -m bench {name}", file=sys.stderr)
        command = [sys.executable, "-m", "bench", name, "--json"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=OTHERS
            )
        except subprocess.TimeoutExpired:
            return self.lacks(name, f"it did not end within {OTHERS} s")
        if done.returncode:
            return self.lacks(name, done.stderr.strip()[-300:])
        told = json.loads(done.stdout)
        self.result["others"][name] = told["figures"] | told["ratios"]
        # Its chroot may have been made only now.
        self.result["versions"]["debusine-server"] = _debusine()
        return self.save()

    def lacks(self, name: str, reason: str) -> None:
        """Note why something cannot be measured here."""
        self.result["absent"][name] = reason
        self.save()

    def save(self) -> None:
        """Write what is known, and the page of it."""
        with self.saving:
            write(self.result, self.out)


def grown(great: Size) -> list[Size]:
    """Return the great world, and what is smaller in requests, in pools or in signatures."""
    return [
        *(replace(great, requests=great.requests * share // 100) for share in (100, 10, 50)),
        *(replace(great, pools=great.pools // part) for part in (8, 2)),
        *(replace(great, signatures=great.signatures // part) for part in (16, 4)),
    ]


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
