"""This module recognises what looks like a secret in text, so that nothing ever repeats it."""

import re

# Compiled at their first use, which most runs never see.
_CREDENTIAL = r"""(?ix)
    [a-z][a-z0-9+.-]{0,30}://[^/\s:@]{0,200}:(?P<url>[^/\s@]{1,500})@
    | (?:password|passwd|passphrase|secret|token|api[_-]?key)=(?P<pair>[^\s&$"'{]{1,500})
    | (?P<shape>(?:gh[pousr]_|glpat-|xox[abp]-)[A-Za-z0-9_-]{10,200}|AKIA[0-9A-Z]{16})
    | (?P<block>-----BEGIN\ [A-Z\ ]{0,40}PRIVATE\ KEY)"""
_HALLMARKS = ("@", "=", "gh", "glpat-", "xox", "akia", "-----")
_KEY_WORDS = "pass(?:word|wd|phrase)|secret|token|api[_-]?key|private[_-]?key|credentials?|dsn"
_SECRET_KEY = rf"(?i)(^|[_-])({_KEY_WORDS})$"
_SECRET_LINE = rf"(?i)(?:{_KEY_WORDS}|read)[\"']?\s*:(?P<value>.*)$"
_REFERENCE = r"\s*(\{\s*(env|file|command)\s*:|$)"


def holds_secret(text: str) -> bool:
    """Say whether a text holds a credential: in a URL, a DSN, or by its known shape."""
    lower = text.lower()
    return any(mark in lower for mark in _HALLMARKS) and bool(re.search(_CREDENTIAL, text))


def names_secret(key: str) -> bool:
    """Say whether the value under a key of this name is a secret."""
    return re.search(_SECRET_KEY, key) is not None


def masked(text: str) -> str:
    """Return a line with every credential in it replaced, character by character."""
    return re.sub(_CREDENTIAL, _stars, text)


def masked_source(lines: list[str], number: int) -> str:
    """Return one line of a file that could not be parsed, whatever may be secret masked."""
    line = lines[number]
    if found := re.search(_SECRET_LINE, line):
        if not re.match(_REFERENCE, found["value"]):
            start = found.start("value")
            return line[:start] + re.sub(r"\S", "*", line[start:])
    elif line.strip() and _continues_secret(lines, number):
        return re.sub(r"\S", "*", line)
    return masked(line)


def _continues_secret(lines: list[str], number: int) -> bool:
    """Say whether a line belongs to a secret that began on an earlier one."""
    depth = _indent(lines[number])
    for earlier in reversed(lines[max(0, number - 200) : number]):
        if earlier.strip() and (_indent(earlier) < depth or depth == 0):
            found = re.search(_SECRET_LINE, earlier)
            reference = re.match(r"\s*(env|file|command)\s*:", lines[number])
            return found is not None and not reference
    return False


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _stars(found: re.Match[str]) -> str:
    whole, name = found[0], found.lastgroup or ""
    start, end = found.start(name) - found.start(), found.end(name) - found.start()
    return whole[:start] + "*" * (end - start) + whole[end:]
