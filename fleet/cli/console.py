"""Write to the streams of the process; without a terminal, omit colour and progress.

Only this module prints.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from typing import TextIO

_WIDTH = 80
"""Assumed columns of a terminal that does not report its width."""


class TerminalConsole:
    """Console on the streams of the process; colour and progress need a terminal."""

    def __init__(self) -> None:
        plain = "CI" in os.environ
        self.watched = sys.stderr.isatty() and not plain
        self._transient = False
        self.colour = sys.stdout.isatty() and not plain and not os.environ.get("NO_COLOR")

    def columns(self, piped: int | None) -> int | None:
        """Return the columns of the terminal, or `piped` in a pipe; None means unlimited.

        The environment variable COLUMNS overrides both numbers.
        """
        from shutil import get_terminal_size

        if piped is None and not sys.stdout.isatty():
            return None
        return get_terminal_size((piped or _WIDTH, 24)).columns

    def out(self, text: str) -> None:
        """Write a text to standard output; add a missing line break at its end."""
        from fleet.report.terminal import visible

        self._clear()
        try:
            ended = text if text.endswith("\n") else text + "\n"
            sys.stdout.write(visible(ended, colour=self.colour))
            sys.stdout.flush()
        except OSError as error:
            # Discard unwritten text: Python would try to write it again at exit.
            _discard(sys.stdout)
            error.filename = error.filename or "standard output"
            raise

    def note(self, text: str) -> None:
        """Write lines to standard error; escape control characters."""
        from fleet.report.terminal import clean

        self._clear()
        self._write_error("\n".join(map(clean, text.rstrip("\n").split("\n"))) + "\n")

    @property
    def can_ask(self) -> bool:
        """Whether a user is at the terminal; False in CI or in a pipe."""
        return self.watched and sys.stdin is not None and sys.stdin.isatty()

    def ask(self, question: str) -> str:
        """Return a user's answer at the terminal; empty if there is no terminal."""
        if not self.can_ask:
            return ""
        self._clear()
        self._write_error(question)
        return sys.stdin.readline().strip()

    def progress(self, text: str) -> None:
        """Show the current activity at a terminal; the next output replaces the text."""
        if self.watched:
            from shutil import get_terminal_size

            self._clear()
            # Cut the text, because a wrapped line could not be erased.
            self._write_error(text[: get_terminal_size().columns - 1])
            self._transient = True

    def _clear(self) -> None:
        if self._transient:
            self._write_error("\r\x1b[K")
            self._transient = False

    def _write_error(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            # A closed stream must not stop an apply halfway.
            _discard(sys.stderr)


def prepare_streams() -> None:
    """Replace missing streams by /dev/null; escape characters that a stream cannot encode."""
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    codecs.register_error("fleet", _escape_characters)
    for stream in (sys.stdout, sys.stderr):
        # A stream whose descriptor was replaced by another file cannot be reconfigured.
        if isinstance(stream, io.TextIOWrapper) and stream.errors != "fleet":
            with contextlib.suppress(OSError):
                stream.reconfigure(errors="fleet")


def _escape_characters(error: UnicodeError) -> tuple[str, int]:
    """Return JSON escapes for the characters that an encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    units = (lacking[at : at + 2].hex() for at in range(0, len(lacking), 2))
    return "".join(f"\\u{unit}" for unit in units), error.end


def _nowhere() -> TextIO:
    # Use a real descriptor, so that no other file gets the descriptor of a standard stream.
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
