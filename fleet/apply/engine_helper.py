"""This module is a helper: a process that does an engine's operations for an apply.

Run by fleet itself: python -m fleet.apply.engine_helper DESCRIPTOR.
"""

import importlib
import sys

if __name__ == "__main__":
    importlib.import_module("fleet.apply.helping").run(int(sys.argv[1]))
