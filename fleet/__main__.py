"""The program: `fleet` and `python -m fleet`."""

import gc
import os
import resource
import signal
import sys

from fleet.program import main as run

COLLECTION = (50_000_000, 20, 20)
"""Thresholds of the garbage collector: a command creates few cycles; a loop collects by itself."""


def main() -> None:
    """Run the command line and exit with its code."""
    gc.set_threshold(*COLLECTION)
    # A CI system cancels a job with SIGTERM. The exit after Ctrl-C releases the lock.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _leave_no_core()
    # A pydantic plugin of any other installed package would receive every token that is read.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    # numpy would start a thread per core for matrix products, which fleet does not use.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = run()
    gc.freeze()  # no search for cycles at the end of the process
    sys.exit(code)


def _leave_no_core() -> None:
    """Disable core dumps of this process and of the engines that it starts: they contain tokens.

    The limit is 1, not 0: Linux starts a program in `core_pattern` at any limit except 1.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (1, hard))


if __name__ == "__main__":
    main()
