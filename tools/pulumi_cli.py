"""This module prints the path of a Pulumi CLI that fits, fetched or built where none is here.

In this order: the one named in FLEET_PULUMI, on PATH or in the cache; the official release,
where the network allows; the Go module that tools/pulumi/go.mod pins. Exit code 3: there is none.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from fleet.engines.pulumi_cli import VERSION, cache_folder, find_cli, why_unfit
from fleet.errors import EngineAbsent

MODULE = Path(__file__).parent / "pulumi"
VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
DOWNLOAD_SECONDS = 120
BUILD_SECONDS = 30 * 60
ABSENT = 3


class NotThisWayError(Exception):
    """One way to a CLI is closed; its text says why."""


def main() -> int:
    """Print the path on standard output, everything else on standard error."""
    try:
        print(find_cli())
    except EngineAbsent:
        pass
    else:
        return 0
    # Keyed by go.sum: what is built from other sources is another program.
    key = hashlib.sha256((MODULE / "go.sum").read_bytes()).hexdigest()[:16]
    target = cache_folder() / f"pulumi-{VERSION}-{key}" / "bin" / "pulumi"
    reasons = []
    ways: tuple[Callable[[Path], None], ...] = (download, build)
    for way in ways:
        say(f"pulumi {VERSION}: trying to {way.__name__} it")
        try:
            way(target)
        except NotThisWayError as reason:
            reasons.append(f"{way.__name__}: {reason}")
            say(f"pulumi {VERSION}: {reasons[-1]}")
        else:
            print(target)
            return 0
    say(f"pulumi {VERSION} is ABSENT: {'; '.join(reasons)}; the real engine cannot be used here")
    return ABSENT


def download(target: Path) -> None:
    """Fetch the official release with the SDK's own installer, in bounded time."""
    # A process of its own: the installer has no time limit, and may wait on a silent network.
    program = (
        "from pulumi.automation import PulumiCommand as c; import sys; c.install(sys.argv[1])"
    )
    with tempfile.TemporaryDirectory(prefix="fleet-pulumi-") as folder:
        run([sys.executable, "-c", program, folder], seconds=DOWNLOAD_SECONDS)
        keep(Path(folder) / "bin", target)


def build(target: Path) -> None:
    """Compile the Go module, which takes minutes the first time."""
    go = shutil.which("go")
    if go is None:
        raise NotThisWayError("there is no `go` on PATH")
    with tempfile.TemporaryDirectory(prefix="fleet-pulumi-") as folder:
        say("pulumi: compiling from Go modules; the first time takes five to fifteen minutes")
        run(
            [
                *(go, "install", "-trimpath", "-mod=readonly"),
                # Without its version the CLI prints none, and the SDK refuses it.
                *("-ldflags", f"-s -w -X {VERSION_VARIABLE}=v{VERSION}"),
                "tool",
            ],
            seconds=BUILD_SECONDS,
            folder=MODULE,
            environment={"GOBIN": folder},
        )
        keep(Path(folder), target)


def run(
    command: list[str],
    *,
    seconds: int,
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
) -> None:
    """Run a command, telling now and then that it still runs; raises NotThisWayError."""
    done = threading.Event()
    threading.Thread(target=tell_time, args=(done, seconds), daemon=True).start()
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotThisWayError(f"no end after {seconds} s") from None
    except OSError as error:
        raise NotThisWayError(str(error)) from error
    finally:
        done.set()
    if answer.returncode != 0:
        lines = [line for line in answer.stderr.splitlines() if line.strip()]
        raise NotThisWayError(lines[-1].strip() if lines else f"exit code {answer.returncode}")


def tell_time(done: threading.Event, seconds: int) -> None:
    """Say every half minute how long it has taken."""
    step = 30
    for passed in range(step, seconds, step):
        if done.wait(step):
            return
        say(f"pulumi: {passed} s of at most {seconds} s")


def keep(folder: Path, target: Path) -> None:
    """Move finished programs into the cache as a whole, so that no half one is ever found."""
    problem = why_unfit(folder / "pulumi")
    if problem:
        raise NotThisWayError(problem)
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=target.parent.parent.parent, prefix=".pulumi-"))
    shutil.copytree(folder, staged / "bin")
    shutil.rmtree(target.parent.parent, ignore_errors=True)
    staged.replace(target.parent.parent)


def say(text: str) -> None:
    """Tell a person; standard output is for the path."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
