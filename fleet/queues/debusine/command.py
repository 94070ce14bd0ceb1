"""This module runs an operator's own command to its end, bounded in time and in what it prints."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from fleet.errors import SourceUnreachable
from fleet.state.command import Call, CommandFailed, run

_MOST_BYTES = 64 * 1024 * 1024


def ask_command(
    command: Sequence[str], text: bytes = b"", *, seconds: float = 60, limit: int = _MOST_BYTES
) -> bytes:
    """Return what a command prints that reads this; raises SourceUnreachable where it fails."""
    call = Call(
        what=shlex.join(command),
        command=command,
        folder=Path(),
        environment=os.environ,
        timeout=seconds,
        stdin=text.decode(),
        most=limit,
    )
    try:
        return run(call).encode()
    except CommandFailed as error:
        if text and not error.in_time:
            raise SourceUnreachable(f"{error}; what it was told may have been done") from error
        raise
