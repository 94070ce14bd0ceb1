"""Whether images can be baked and booted here, and from which archive.

Run as a program it prints the newest worker there is, or what stands against baking; exit code 3:
it cannot be done here. A test runs it so, for no test may reach the archive itself.
"""

import lzma
import re
import sys
from urllib.error import URLError
from urllib.request import urlopen

from fleet.errors import FleetError
from fleet.images.boot import find_firmware
from fleet.images.programs import missing
from tests.live.chroot import ABSENT, Impossible, archive, why_not

_PROGRAMS = (
    *("mmdebstrap", "tar", "mke2fs", "mkfs.vfat", "mcopy", "mdir", "sfdisk", "syslinux"),
    *("qemu-img", "debugfs", "qemu-system-x86_64", "setpriv", "unshare"),
)
_NEWEST = re.compile(r"^Package: debusine-worker\n(?:.+\n)*?Version: (\S+)$", re.MULTILINE)
_SECONDS = 60


def main() -> int:
    """Print the newest worker, or what stands against it."""
    told = missing(_PROGRAMS) or why_not()
    code = ABSENT if told else 0
    if not told:
        try:
            find_firmware()
            told = newest_worker()
        except (FleetError, Impossible) as error:
            told, code = str(error), ABSENT
    sys.stdout.write(f"{told}\n")
    return code


def newest_worker() -> str:
    """Return the version of debusine-worker in trixie-backports; Impossible where none is had."""
    url = f"{archive().rstrip('/')}/dists/trixie-backports/main/binary-amd64/Packages.xz"
    try:
        with urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 - what apt here is told
            listed = lzma.decompress(answer.read()).decode()
    except (URLError, OSError, lzma.LZMAError) as error:
        raise Impossible(f"the mirror of this machine's apt does not answer: {error}") from error
    found = _NEWEST.search(listed)
    if found is None:
        raise Impossible("trixie-backports holds no debusine-worker")
    return found[1]


if __name__ == "__main__":
    sys.exit(main())
