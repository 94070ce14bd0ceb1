"""Interrupts that wait for the end of a step that they must not break off in the middle."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def later_interrupts() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM only after what is done in here.

    In a database's own code, or while a process starts, an interrupt would leave a connection or
    a process behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    waiting: list[int] = []
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        for each, handler in handlers.items():
            if callable(handler):
                signal.signal(each, lambda number, _: waiting.append(number))
        yield
    finally:
        for each, handler in handlers.items():
            if callable(handler):
                signal.signal(each, handler)
        for number in waiting:
            signal.raise_signal(number)
