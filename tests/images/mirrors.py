"""Say from which archive tests bake: that of this machine's own apt.

Run as a program it prints why nothing can be baked here, with exit code 3.
"""

import subprocess
import sys
from functools import cache

from fleet.errors import FleetError
from fleet.images import disk
from fleet.images.programs import explain_no_namespaces
from fleet.images.sources import archive_of
from tests.live.chroot import tell


def main() -> int:
    """Say why nothing can be baked here."""
    return tell(why_not())


def why_not() -> str:
    """Return why nothing can be baked here; empty: it can."""
    lacking = disk.explain_no_disk("amd64") or explain_no_namespaces()
    options = mirror_options()
    if lacking or "--mirror" not in options:
        return lacking or "apt is not told of any archive (apt-get indextargets)"
    try:
        archive_of("trixie", options[options.index("--mirror") + 1])
    except FleetError as error:
        return str(error)
    return ""


@cache
def mirror_options() -> tuple[str, ...]:
    """Return the options of `fleet image build` for this machine's archive."""
    sites = _ask("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages")
    archives = [site for site in dict.fromkeys(sites) if "debian" in site and "sec" not in site]
    config = " ".join(_ask("apt-config", "dump"))
    old = 'Acquire::Check-Valid-Until "false"' in config
    return (*(("--mirror", archives[0]) if archives else ()), *(("--snapshot",) if old else ()))


def _ask(*command: str) -> list[str]:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
