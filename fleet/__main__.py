"""The program: `fleet` and `python -m fleet`."""

import gc
import os
import resource
import signal
import sys

from fleet.program import main as run

COLLECTION = (50_000_000, 20, 20)
"""How seldom cycles are searched for: a command makes few and ends, a loop collects by itself."""


def main() -> None:
    """Run the command line and exit with its code."""
    gc.set_threshold(*COLLECTION)
    # A CI system cancels a job with SIGTERM: to leave as after Ctrl-C is to release the lock.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _leave_no_core()
    # A plugin of pydantic, of whatever else is installed, would be shown every token that is read.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    # numpy would start a thread for each core to multiply matrices, of which there are none here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = run()
    gc.freeze()  # the process ends: what it holds need not be searched for cycles first
    sys.exit(code)


def _leave_no_core() -> None:
    """Have a crash, of this process or of an engine that it starts, leave no image of its memory.

    Tokens are in it. One byte, not none: with that Linux does not even start a program that
    `core_pattern` names, which is asked whatever the limit is.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (1, hard))


if __name__ == "__main__":
    main()
