"""Print the path of a suitable Pulumi CLI; download or build it if necessary.

In this order: the CLI that is named in FLEET_PULUMI, on PATH or in the cache; the official
release, if the network permits; the Go module of tools/pulumi/go.mod. Exit code 3: there is no
CLI.
"""

import sys
import tempfile
from pathlib import Path

from fleet.engines.pulumi_cli import VERSION, find_cli, why_unfit
from fleet.errors import EngineAbsent
from fleet.state.storage import cache_folder
from tools.go_programs import ABSENT, NotThisWayError, install, keep, key_of, obtain, run

MODULE = Path(__file__).parent / "pulumi"
VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
DOWNLOAD_SECONDS = 120


def main() -> int:
    """Print the path to standard output, and all messages to standard error."""
    try:
        print(find_cli())
    except EngineAbsent:
        pass
    else:
        return 0
    key = key_of([MODULE / "go.sum"])
    target = cache_folder() / f"pulumi-{VERSION}-{key}" / "bin" / "pulumi"
    if not obtain(f"pulumi {VERSION}", target, download, build):
        return ABSENT
    print(target)
    return 0


def download(target: Path) -> None:
    """Download the official release with the installer of Pulumi's SDK, with a time limit."""
    # A process of its own: the installer has no time limit, and may wait on a silent network.
    program = (
        "from pulumi.automation import PulumiCommand as c; import sys; c.install(sys.argv[1])"
    )
    with tempfile.TemporaryDirectory(prefix="fleet-pulumi-") as folder:
        run([sys.executable, "-c", program, folder], seconds=DOWNLOAD_SECONDS)
        keep_fit(Path(folder) / "bin", target)


def build(target: Path) -> None:
    """Compile the Go module; the first time, this takes minutes."""
    with tempfile.TemporaryDirectory(prefix="fleet-pulumi-") as folder:
        # Without its version the CLI prints none, and the SDK refuses it.
        flags = f"-s -w -X {VERSION_VARIABLE}=v{VERSION}"
        install(MODULE, "-ldflags", flags, "tool", into=Path(folder))
        keep_fit(Path(folder), target)


def keep_fit(folder: Path, target: Path) -> None:
    """Store a CLI if it works."""
    problem = why_unfit(folder / target.name)
    if problem:
        raise NotThisWayError(problem)
    keep(folder, target)


if __name__ == "__main__":
    sys.exit(main())
