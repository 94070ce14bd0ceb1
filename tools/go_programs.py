"""Install programs that a package registry may refuse: download, or build from Go modules.

Each step has a time limit. A program is stored outside of the checkout, only when it is complete.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

ABSENT = 3
"""Exit code of a tool that cannot get its program."""

_BUILD_SECONDS = 30 * 60
_SELDOM_RUN = (
    "cloud.google.com/go",
    "github.com/Azure",
    "github.com/alecthomas/chroma",
    "github.com/aws/aws-sdk-go-v2/service",
    "github.com/envoyproxy",
    "github.com/pb33f/libopenapi",
)
"""Large modules compiled without inlining, in a third less time: little of them runs."""
_COMPILER = (
    # What the linker drops is not made.
    "-gcflags=all=-dwarf=false",
    *(f"-gcflags={module}/...=-dwarf=false -l" for module in _SELDOM_RUN),
)
Way = Callable[[Path], None]


class NotThisWayError(Exception):
    """One way to get a program failed; the message has the reason."""


def key_of(sources: Iterable[Path]) -> str:
    """Return a digest of source files, which identifies a build."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def obtain(what: str, target: Path, *ways: Way) -> bool:
    """Create `target` in the first way that succeeds; after failures, print all reasons.

    One process at a time, so that two sessions do not build the same program.
    """
    reasons = []
    cache = target.parent.parent.parent
    cache.mkdir(parents=True, exist_ok=True)
    lock = os.open(cache, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return True
        for way in ways:
            say(f"{what}: trying to {way.__name__} it")
            try:
                way(target)
            except NotThisWayError as reason:
                reasons.append(f"{way.__name__}: {reason}")
                say(f"{what}: {reasons[-1]}")
            else:
                return True
    finally:
        os.close(lock)
    say(f"{what} is ABSENT: {'; '.join(reasons)}")
    return False


def install(module: Path, *arguments: str, into: Path) -> None:
    """Compile packages of a Go module into a folder; every module is verified against go.sum."""
    go = shutil.which("go")
    if go is None:
        raise NotThisWayError("there is no `go` on PATH")
    say("compiling from Go modules; the first time takes five to fifteen minutes")
    run(
        # A build is named by its sources, not by the checkout that they lie in.
        [go, "install", "-trimpath", "-buildvcs=false", "-mod=readonly", *_COMPILER, *arguments],
        seconds=_BUILD_SECONDS,
        folder=module,
        # The compiler looks for garbage less often: a tenth of its time, for a third more memory.
        environment={"GOGC": "400", "GOBIN": str(into)},
    )


def run(
    command: list[str],
    *,
    seconds: int,
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
) -> None:
    """Run a command and print the elapsed time regularly; raises NotThisWayError on failure."""
    done = threading.Event()
    threading.Thread(target=_tell_time, args=(done, seconds), daemon=True).start()
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


def keep(folder: Path, target: Path) -> None:
    """Move complete programs to the folder of `target`, so that no partial program is found."""
    home = target.parent.parent
    home.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=home.parent, prefix=f".{home.name}-"))
    shutil.copytree(folder, staged / target.parent.name)
    shutil.rmtree(home, ignore_errors=True)
    staged.replace(home)


def say(text: str) -> None:
    """Print a message to standard error, because standard output is for the path."""
    print(text, file=sys.stderr, flush=True)


def _tell_time(done: threading.Event, seconds: int) -> None:
    step = 30
    for passed in range(step, seconds, step):
        if done.wait(step):
            return
        say(f"{passed} s of at most {seconds} s")
