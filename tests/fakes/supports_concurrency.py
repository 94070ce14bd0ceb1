"""A written provider that does two things at once."""

import threading


class FakeSupportsConcurrency:
    """Does two things at once; what it does may look whether it is `cut`."""

    at_once = 2

    def __init__(self) -> None:
        self.cut = threading.Event()

    def cut_short(self) -> None:
        """Have what is done look up."""
        self.cut.set()

    def go_on(self) -> None:
        """Begin anew."""
        self.cut.clear()
