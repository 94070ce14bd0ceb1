"""The program where no file may grow beyond a limit, as on a disk that is full.

`main` is run as a program with LIMIT and the program's own arguments (`Warm.started`).
"""

import resource
import sys

from fleet import __main__ as program


def main() -> None:
    """Run the program; whoever measures coverage writes a file after it, which may grow."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), hard))
    try:
        program.main()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
