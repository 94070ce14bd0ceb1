"""This module bounds how many of a person's own commands run at once at each provider."""

import threading


class Slots:
    """Counts what is done at once at each provider, whoever does it."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, int], threading.Semaphore] = {}

    def of(self, provider: str, most: int) -> threading.Semaphore:
        """Return what lets so many go on at a provider."""
        return self._slots.setdefault((provider, most), threading.Semaphore(most))
