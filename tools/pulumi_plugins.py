"""Print the folder of Pulumi's Hetzner plugin; download or build it if necessary.

In this order: the folder in FLEET_PULUMI_PLUGINS or in the cache; the official release, if the
network permits; the Go module tools/pulumi-resource-hcloud. Exit code 3: there is no plugin.
"""

import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from fleet.engines.pulumi_cli import find_cli
from fleet.errors import EngineAbsent
from fleet.state.storage import cache_folder
from tools.go_programs import ABSENT, NotThisWayError, install, keep, key_of, obtain, run

NAME = "pulumi-resource-hcloud"
MODULE = Path(__file__).parent / NAME
SOURCES = ("*.go", "*.json", "go.mod", "go.sum", "cmd/*/*.go")
DOWNLOAD_SECONDS = 120
START_SECONDS = 30


def main() -> int:
    """Print the folder to standard output, and all messages to standard error."""
    key = key_of(path for pattern in SOURCES for path in MODULE.glob(pattern))
    target = cache_folder() / f"pulumi-plugins-{key}" / "bin" / NAME
    named = Path(os.environ.get("FLEET_PULUMI_PLUGINS") or target.parent)
    if (named / NAME).exists():
        target = named / NAME
    elif not obtain(NAME, target, download, build):
        return ABSENT
    print(target.parent)
    return 0


def download(target: Path) -> None:
    """Download the official release with the installer of the Pulumi CLI, with a time limit."""
    try:
        cli = find_cli()
    except EngineAbsent as error:
        raise NotThisWayError("there is no Pulumi CLI to fetch it with") from error
    with tempfile.TemporaryDirectory(prefix="fleet-plugins-") as home:
        run(
            [str(cli), "plugin", "install", "resource", "hcloud", version("pulumi-hcloud")],
            seconds=DOWNLOAD_SECONDS,
            environment={"PULUMI_HOME": home, "PULUMI_SKIP_UPDATE_CHECK": "true"},
        )
        for found in Path(home).glob(f"plugins/*/{NAME}"):
            keep_fit(found.parent, target)
            return
    raise NotThisWayError("the CLI installed nothing")


def build(target: Path) -> None:
    """Compile the Go module; the first time, this takes minutes."""
    with tempfile.TemporaryDirectory(prefix="fleet-plugins-") as folder:
        install(MODULE, "-ldflags", "-s -w", f"./cmd/{NAME}", into=Path(folder))
        keep_fit(Path(folder), target)


def keep_fit(folder: Path, target: Path) -> None:
    """Store a plugin if it starts."""
    run([str(folder / target.name), "-version"], seconds=START_SECONDS)
    keep(folder, target)


if __name__ == "__main__":
    sys.exit(main())
