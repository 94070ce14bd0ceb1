"""This module says from which archive tests bake: that of this machine's own apt."""

import subprocess
from functools import cache


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
