"""Entry point of `fleet` and `python -m fleet`."""

import gc
import os
import resource
import signal
import sys

from fleet.program import main as run

COLLECTION = (50_000_000, 20, 20)
"""Rare garbage collection, because commands create few cycles; the loop collects itself."""


def main() -> None:
    """Run the command line and exit with its exit code."""
    gc.set_threshold(*COLLECTION)
    # A CI system cancels a job with SIGTERM: exit as after Ctrl-C, which releases the lock.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _leave_no_core()
    # Without this, a pydantic plugin of another package would receive every token that is read.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    # numpy would start one thread per core for matrix products, which fleet does not compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = run()
    gc.freeze()  # the garbage collector has no work at the end of the process
    sys.exit(code)


def _leave_no_core() -> None:
    """Disable core dumps of this process and its child processes, because they contain tokens.

    The limit is 1 instead of 0: at 0, Linux still starts a program that `core_pattern` names.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (1, hard))


if __name__ == "__main__":
    main()
