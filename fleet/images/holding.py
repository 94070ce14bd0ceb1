"""This module lets one process of this computer work on something at a time.

Whoever holds a file knows by the word in it what earlier holders, dead by now, left behind.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.errors import FileUnreadable


@contextmanager
def held(path: Path) -> Iterator[str]:
    """Wait for a file, hold it, and yield its word; the kernel lets it go with the process."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FileUnreadable(f"{path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        word = os.read(descriptor, 64).decode(errors="replace").strip()
        if not word.isalnum():
            word = secrets.token_hex(8)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{word}\n".encode(), 0)
        yield word
    finally:
        os.close(descriptor)
