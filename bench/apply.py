"""Measure `fleet apply` beside `pulumi up --yes` on the same stacks, with the engine.

Both start from copies of one state and make the same change, one after the other, in wall-clock
time of whole processes. `pulumi up` shows its own preview and goes from stack to stack, as a
person or a script runs it; apply observes, plans, guards, previews, applies and records.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.report import Report
from fleet.engines.pulumi_cli import find_cli
from fleet.errors import EngineAbsent

POOLS, WORKERS, MORE, MANY = 20, 25, 2, 100
WORLD = """\
{"format": "fleet-world-1", "fleet": "bench", "time": "2026-01-01T00:00:00Z", "queues": {"trial":
{"demand": {"read_at": "2026-01-01T00:00:00Z"}}}}
"""
HEAD = """\
fleet: bench
state: {passphrase: {env: BENCH_PASSPHRASE}}
providers: {desk: {kind: sim, engine: pulumi, boot: 1s}}
queues: {trial: {kind: world, path: world.json}}
images: {trixie: {suite: trixie, architecture: amd64}}
guards: {throttle: {create: {share: 100%, count: 1000, free_below: 1000}}}
pools:
"""
POOL = """\
  {name}:
    {{provider: desk, machine: ccx33, image: trixie, workers: {{min: {min}, max: 200}}}}
"""


def measure() -> Report:
    """Return seconds of each operation, and ratios of ours to theirs."""
    os.environ.setdefault("BENCH_PASSPHRASE", "of a measurement")
    try:
        find_cli()
    except EngineAbsent as error:
        raise SystemExit(f"bench: {error}") from error
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        many = Pair(Path(name) / "many", [f"pool-{number:02}" for number in range(POOLS)])
        many.apply(WORKERS)
        figures |= many.compare("no_change", WORKERS)
        figures["plan_seconds"] = many.plan()
        figures |= many.compare("apply_20_pools", WORKERS + MORE)
        one = Pair(Path(name) / "one", ["builders"])
        one.apply(1)
        figures |= one.compare("apply_100_workers", 1 + MANY)
    ratios = {
        f"{what}_over_pulumi_up": figures[f"{what}_seconds"] / figures[f"{what}_pulumi_seconds"]
        for what in ("apply_20_pools", "apply_100_workers", "no_change")
    }
    targets = {
        "apply_20_pools_over_pulumi_up": 1.0,
        "apply_100_workers_over_pulumi_up": 1.1,
        "no_change_over_pulumi_up": 1.1,
    }
    return Report(name="apply", figures=figures, ratios=ratios, targets=targets)


class Pair:
    """A fleet, and a copy of its state that only `pulumi` changes."""

    def __init__(self, folder: Path, pools: list[str]) -> None:
        self._ours = folder / "ours"
        self._theirs = folder / "theirs"
        self._pools = pools
        self._ours.mkdir(parents=True)
        (self._ours / "world.json").write_text(WORLD, encoding="utf-8")
        self._declare(0)
        self._fleet("state", "init")

    def apply(self, workers: int) -> float:
        """Have this many workers in each pool; return the seconds that takes."""
        self._declare(workers)
        return self._fleet("apply")

    def plan(self) -> float:
        """Return the seconds of a plan; it starts no engine, for there is none to be found."""
        nowhere = {"FLEET_PULUMI": "/bin/false", "PATH": "/bin", "XDG_CACHE_HOME": "/nowhere"}
        return self._fleet("plan", environment=nowhere)

    def compare(self, what: str, workers: int) -> Mapping[str, float]:
        """Make a change in both copies and return the seconds of each."""
        shutil.rmtree(self._theirs, ignore_errors=True)
        shutil.copytree(self._ours / ".fleet", self._theirs)
        ours = self.apply(workers)
        self._take_over_settings()
        cli = str(find_cli())
        theirs = sum(
            seconds([sys.executable, "-m", "bench.pulumi_up", cli, self._theirs, f"bench-{pool}"])
            for pool in self._pools
        )
        return {f"{what}_seconds": ours, f"{what}_pulumi_seconds": theirs}

    def _declare(self, workers: int) -> None:
        pools = (POOL.format(name=name, min=workers) for name in self._pools)
        (self._ours / "fleet.yaml").write_text(HEAD + "".join(pools), encoding="utf-8")

    def _take_over_settings(self) -> None:
        """Give the copy the workers of today, and its own cloud: what a commit would have done."""
        ours, theirs = str(self._ours / ".fleet"), str(self._theirs)
        work = Path("pulumi/work/fleet-sim")
        for path in (self._ours / ".fleet" / work).glob("Pulumi.*.yaml"):
            shutil.copy2(path, self._theirs / work)
        for path in (
            *(self._theirs / work).glob("*.yaml"),
            *(self._theirs / ".pulumi/stacks").rglob("*.json"),
        ):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(ours, theirs), encoding="utf-8")

    def _fleet(self, *words: str, environment: Mapping[str, str] | None = None) -> float:
        command = [str(Path(sys.executable).with_name("fleet")), *words]
        return seconds(command, folder=self._ours, environment=environment)


def seconds(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> float:
    """Run a command to its end and return how long that took; a failing one is an error."""
    began = time.perf_counter()
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"bench: {command} ended with {done.returncode}: {done.stdout}")
    return took
