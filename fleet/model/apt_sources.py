"""Read APT sources in deb822 form, find mistakes in the sources, and compare package versions.

Man 5 sources.list defines the form. The Ansible role debusine_worker refuses the same sources.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*:(.*)")
_TYPES = frozenset({"deb", "deb-src"})
_URI = re.compile(r"[a-z][a-z0-9.+-]*:[^\s@]+")
_BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
_END = "-----END PGP PUBLIC KEY BLOCK-----"
_KEYRING = re.compile(r"/\S+|[0-9A-Fa-f]{40}!?")
_ONE_LINE = re.compile(r"deb(-src)?\s")


class Problem(NamedTuple):
    """A mistake in an APT source. `part` is its (start, end) in the text, in characters."""

    message: str
    hint: str
    part: tuple[int, int]
    keyless: bool = False
    """True if the mistake is that no known key signs the source."""


@dataclass
class _Stanza:
    """An APT source as a map of lower-case field name to value."""

    part: tuple[int, int]
    fields: dict[str, str] = field(default_factory=dict)
    parts: dict[str, tuple[int, int]] = field(default_factory=dict)

    def words(self, name: str) -> list[str]:
        return self.fields.get(name, "").split()


def problems(text: str) -> Iterator[Problem]:
    """Yield the mistakes in the APT sources of a text, in the order of lines."""
    stanzas, misread = _stanzas(text)
    if misread is not None:
        yield misread
    elif not stanzas:
        yield Problem("the source is empty", "write Types, URIs, Suites …", (0, len(text)))
    else:
        for stanza in stanzas:
            yield from _wrong_fields(stanza)
            yield from _wrong_key(stanza)


def archives(text: str) -> tuple[tuple[str, str], ...]:
    """Return the (URI, suite) pairs of all APT sources in a text, in the order of the text."""
    return tuple(
        (uri, suite)
        for stanza in _stanzas(text)[0]
        for uri in stanza.words("uris")
        for suite in stanza.words("suites")
    )


def _stanzas(text: str) -> tuple[list[_Stanza], Problem | None]:
    stanzas: list[_Stanza] = []
    current: _Stanza | None = None
    name, at = "", 0
    for line in text.split("\n"):
        part = (at + len(line) - len(line.lstrip()), at + len(line.rstrip()))
        at += len(line) + 1
        found = _FIELD.fullmatch(line)
        if not line.strip():
            current = None
        elif line.startswith("#"):
            continue
        elif found and current and found[1].lower() in current.fields:
            return [], Problem(f"duplicate field '{found[1]}'", _APART, part)
        elif found:
            if current is None:
                stanzas.append(current := _Stanza(part))
            name = found[1].lower()
            current.fields[name], current.parts[name] = found[2].strip(), part
        elif current and line[0] in " \t":
            current.fields[name] += "\n" + line.strip()
        else:
            return [], _misread(line, part)
    return stanzas, None


_APART = "put an empty line between two sources"


def _misread(line: str, part: tuple[int, int]) -> Problem:
    if _ONE_LINE.match(line):
        hint = "write Types: deb, URIs: …, Suites: …, Components: …"
        return Problem("the source is in one-line style, not in deb822 form", hint, part)
    if line[0] in " \t":
        hint = "a line that begins with a space continues the field above; write ' .' for an empty"
        return Problem("this line belongs to no field", f"{hint} line of a key", part)
    return Problem("this is not a field of a source", "write it like Types: deb", part)


def _wrong_fields(stanza: _Stanza) -> Iterator[Problem]:
    for name in ("Types", "URIs", "Suites"):
        if not stanza.words(name.lower()):
            yield Problem(f"the source has no {name}", f"add a line {name}: …", stanza.part)
    exact = [suite.endswith("/") for suite in stanza.words("suites")]
    if not all(exact) and not stanza.words("components"):
        yield Problem("the source has no Components", "add a line Components: main", stanza.part)
    for kind in stanza.words("types"):
        if kind not in _TYPES:
            yield Problem(
                f"there is no type '{kind}'", "allowed: deb, deb-src", stanza.parts["types"]
            )
    for uri in stanza.words("uris"):
        if not _URI.fullmatch(uri):
            hint = "write it like https://deb.example.org/debian, without a password"
            yield Problem("this is not a URI of an archive", hint, stanza.parts["uris"])


def _wrong_key(stanza: _Stanza) -> Iterator[Problem]:
    for name in ("trusted", "allow-insecure"):
        if stanza.words(name) and stanza.fields[name].lower() != "no":
            yield Problem(
                "the source is trusted without a signature",
                "remove the line, and add its key in Signed-By",
                stanza.parts[name],
                keyless=True,
            )
    key = stanza.fields.get("signed-by", "").strip()
    if not key:
        yield Problem("the source has no key", _KEY_HINT, stanza.part, keyless=True)
    elif "PRIVATE KEY BLOCK-----" in key:
        hint = "create a new key, because this one is exposed, and write its public key here"
        yield Problem("this is a private key", hint, stanza.parts["signed-by"], keyless=True)
    elif not _is_key(key):
        yield Problem("this is not a key", _KEY_HINT, stanza.parts["signed-by"], keyless=True)


_KEY_HINT = (
    "add Signed-By: with the armoured public key below it, each line indented by a space, or with "
    "the path of a keyring in the image"
)


def _is_key(text: str) -> bool:
    if text.startswith(_BEGIN):
        return text.endswith(_END)
    return all(_KEYRING.fullmatch(word) for word in re.split(r"[\s,]+", text))


class Source(NamedTuple):
    """An APT source, expanded to one list of packages of an archive."""

    uri: str
    suite: str
    component: str
    architecture: str


_PARTS = re.compile(r"([^0-9]*)([0-9]*)")


def version_key(version: str) -> Any:  # noqa: ANN401 - nested tuples, good for comparing only
    """Return a sort key for a Debian version, as deb-version(7) defines the order."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return _number_key(epoch), _key(upstream if dash else rest), _key(revision if dash else "0")


def _key(part: str) -> Any:  # noqa: ANN401 - as above
    return tuple(
        # A tilde is before the end of a text, and letters are before other characters.
        ((*map(_order, text), 0), _number_key(digits))
        for text, digits in _PARTS.findall(part)
    )


def _order(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) + (0 if character.isalpha() else 256)


def _number_key(digits: str) -> tuple[int, str]:
    """Return a sort key for digits: their numeric order, at any length."""
    stripped = digits.lstrip("0")
    return len(stripped), stripped
