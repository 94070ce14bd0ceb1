"""Run Karpenter's own scheduler on the pods and machine types of its benchmark.

Its module is fetched by Go, and its test program built into the user's cache folder once; none of
its code is here. `karpenter_test.go` is laid into a copy of its package when that is built.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.one import Answer, run_alone

MODULE, VERSION = "sigs.k8s.io/karpenter", "v1.13.0"
PACKAGE = "pkg/controllers/provisioning/scheduling"
_OURS = Path(__file__).parent / "karpenter_test.go"


class NotHere(Exception):
    """It cannot be measured on this machine; the text says why."""


def built() -> Path:
    """Return the test program, built where it is not there yet; takes minutes, and the network."""
    key = hashlib.sha256(VERSION.encode() + _OURS.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache / "fleet" / f"karpenter-{key}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise NotHere("there is no go")
    told = _go(["mod", "download", "-json", f"{MODULE}@{VERSION}"], Path.home())
    module = Path(json.loads(told)["Dir"])
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "karpenter"
        shutil.copytree(module, copy, copy_function=shutil.copyfile)
        for each in (copy, copy / PACKAGE):
            each.chmod(0o755)
        shutil.copyfile(_OURS, copy / PACKAGE / "beside_fleet_test.go")
        made = Path(folder) / program.name
        _go(["test", "-c", "-tags=test_performance", "-o", str(made), f"./{PACKAGE}"], copy)
        shutil.copy(made, f"{program}.new")
    Path(f"{program}.new").rename(program)
    return program


def solve(pods: int, limit: float, *, alone: bool) -> Answer:
    """Return what its scheduler takes for so many pods; `alone`: each on a node of its own."""
    command = [str(built()), "-test.run=^TestBesideFleet$", "-test.timeout=0"]
    asked = {"FLEET_BENCH_PODS": str(pods), "FLEET_BENCH_ALONE": "yes" if alone else ""}
    return run_alone(command, limit, environment=asked)


def _go(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        ["go", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotHere(f"go {arguments[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout
