"""This module is the program: `fleet` and `python -m fleet`."""

import sys

from fleet.cli import main as run


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run())


if __name__ == "__main__":
    main()
