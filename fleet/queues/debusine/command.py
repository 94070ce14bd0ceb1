"""This module runs an operator's own command to its end, bounded in time and in what it prints.

What the command says of errors goes to the person; nothing that it started outlives it.
"""

import shlex
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress

from fleet.errors import SourceUnreachable
from fleet.store.secrets import end_group

_MOST_BYTES = 64 * 1024 * 1024


def ask_command(
    command: Sequence[str], text: bytes = b"", *, seconds: float = 60, limit: int = _MOST_BYTES
) -> bytes:
    """Return what a command prints that reads this; raises SourceUnreachable where it fails."""
    said = shlex.join(command)
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's own command
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a command"
        raise SourceUnreachable(
            f"{said} cannot be started ({reason}); is {command[0]} installed and on PATH?"
        ) from error
    late = threading.Event()

    def give_up() -> None:
        late.set()
        end_group(process)

    timer = threading.Timer(seconds, give_up)
    timer.start()
    with process:
        try:
            printed = _answer(process, text, limit)
        finally:
            timer.cancel()
            end_group(process)
    if late.is_set():
        done = "? What it was told may have been done" if text else "?"
        raise SourceUnreachable(
            f"{said} did not end within {seconds:g} s; does it wait for an answer{done}"
        )
    if len(printed) > limit:
        raise SourceUnreachable(f"{said} printed more than {limit} bytes; is it the right one?")
    if process.returncode != 0:
        raise SourceUnreachable(f"{said} ended with status {process.returncode}")
    return printed


def _answer(process: "subprocess.Popen[bytes]", text: bytes, limit: int) -> bytes:
    """Return what it prints, one byte more than the limit at most, once it has read the text."""
    asked, told = process.stdin, process.stdout
    if asked is None or told is None:
        raise TypeError(process)
    with suppress(BrokenPipeError):  # it need not read what it is told
        asked.write(text)
    with suppress(BrokenPipeError):
        asked.close()
    printed = told.read(limit + 1)
    if len(printed) <= limit:
        process.wait()
    return printed
