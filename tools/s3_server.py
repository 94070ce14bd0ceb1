"""Print the path of a real S3 server for tests; build it if necessary.

In this order: the server that is named in FLEET_S3_SERVER, or in the cache; the Go module of
tools/versitygw/go.mod. Exit code 3: there is no server.
"""

import os
import sys
import tempfile
from pathlib import Path

from fleet.state.storage import cache_folder
from tools.go_programs import ABSENT, install, keep, key_of, obtain, run

NAME = "versitygw"
MODULE = Path(__file__).parent / NAME
START_SECONDS = 30


def main() -> int:
    """Print the path to standard output, and all messages to standard error."""
    kept = cache_folder() / f"{NAME}-{key_of([MODULE / 'go.sum'])}" / "bin" / NAME
    named = Path(os.environ.get("FLEET_S3_SERVER") or kept)
    target = named if named.exists() else kept
    if not target.exists() and not obtain(NAME, target, build):
        return ABSENT
    print(target)
    return 0


def build(target: Path) -> None:
    """Compile the Go module; the first time, this takes minutes."""
    with tempfile.TemporaryDirectory(prefix=f"fleet-{NAME}-") as folder:
        install(MODULE, "-ldflags", "-s -w", "tool", into=Path(folder))
        run([str(Path(folder) / NAME), "--version"], seconds=START_SECONDS)
        keep(Path(folder), target)


if __name__ == "__main__":
    sys.exit(main())
