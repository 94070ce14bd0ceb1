r"""This module turns a pattern for Python's `re.match` into one that takes whole names.

`re.match` looks at the beginning only: `kernel` takes kernel-headers too. A full match with `.*`
behind the pattern takes the same names. Where RE2 does not know what Python knows, there is no
such pattern, and it says so.
"""

import re
import warnings

from fleet.tagrules.allow import BadPattern, compile_pattern
from fleet.tagrules.parts import pieces, split_top, with_brace

LONGEST = 1000
"""Characters of a pattern in fleet.yaml."""

_OTHER_MEANING = re.compile(r"\[[^\]]*\[:|\\[UuN]")
_ASCII = re.compile(r"\\[dDwWsSbB]|\(\?[a-z]*i")


class NeverMatches(Exception):
    """Python itself does not take the pattern, so Copr skips its rule."""


class NotTakenOver(Exception):
    """RE2 knows no such pattern."""


def whole(pattern: str) -> str:
    """Return what takes, of whole names, those that Python's pattern takes whole."""
    translated = _in_re2(pattern)
    return f"(?:{translated})" if len(split_top(translated, "|")) > 1 else translated


def widened(pattern: str) -> str:
    """Return what takes, of whole names, those that `re.match` takes; raises both exceptions."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise NeverMatches(str(error)) from None
    strange = _OTHER_MEANING.search(pattern)
    if strange:
        raise NotTakenOver(f"'{strange[0]}' means something else in RE2")
    wide = _open_end(whole(pattern))
    if len(wide) > LONGEST:
        raise NotTakenOver(f"it is longer than {LONGEST} characters")
    try:
        compile_pattern(wide)
    except BadPattern as error:
        raise NotTakenOver(f"RE2: {error.reason}") from None
    return wide


def is_ascii_only(pattern: str) -> bool:
    """Say whether a pattern has classes that Python reads for all letters, and RE2 for ASCII."""
    return _ASCII.search(pattern) is not None


def _in_re2(pattern: str) -> str:
    r"""Return a pattern with the few signs of Python's that RE2 writes in another way."""
    text = "".join(r"\z" if piece == r"\Z" else piece for piece in pieces(pattern))
    return with_brace(text, "{0")


def _open_end(pattern: str) -> str:
    *_, last = ["", *pieces(pattern)]
    if last in ("$", r"\z"):
        return pattern.removesuffix(last) or pattern
    return pattern if [*pieces(pattern)][-2:] == [".", "*"] else pattern + ".*"
