"""This module is the program at the time of a story, which $WALK_CLOCK holds in seconds.

The clock of a forked process (`tests.rigs.warm`) is moved, so no other process sees that time.
Each run takes two seconds of the story, however busy the computer is.
"""

import os
from pathlib import Path

import time_machine

import fleet.__main__

A_RUN = 2.0


def main() -> None:
    """Run the program at its time."""
    clock = Path(os.environ["WALK_CLOCK"])
    now = float(clock.read_text(encoding="utf-8"))
    clock.write_text(str(now + A_RUN), encoding="utf-8")
    time_machine.travel(now, tick=True).start()
    fleet.__main__.main()
