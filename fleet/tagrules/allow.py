"""Match requests with the allow-list, which is the list of rules under `powerful`.

Patterns are RE2, so that matching always takes linear time, and they match whole names. All rules
that match apply to the requests of their task, in the order of the file, until their last day is
over.

For exports and checks, a pattern is split into pieces. A piece that is neither a word nor a
wildcard is `other`; a pattern that cannot be split has no pieces.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fleet.schema.model import Fleet, PowerfulRule
from fleet.tagrules.names import names_of, without_directory

if TYPE_CHECKING:
    from fleet.model.facts import Request

PATTERN_MEMORY = 256 << 10
"""Maximum bytes of a compiled pattern. A larger pattern is refused."""
_SET_MEMORY = 64 << 20
_CACHED = 8192


@dataclass(frozen=True)
class RuleMatch:
    """A rule of the allow-list that matches a name, with the rule's index in `powerful`."""

    index: int
    rule: PowerfulRule
    name: str


class Pattern:
    """A compiled RE2 pattern."""

    def __init__(self, compiled: Any) -> None:  # noqa: ANN401 - RE2 has no types
        self._compiled = compiled

    def takes(self, name: str) -> bool:
        """Return whether the pattern matches the whole name."""
        return self._compiled.fullmatch(_encode(name)) is not None

    def takes_beginning(self, name: str) -> str:
        """Return the start of a name that the pattern matches; empty if there is no match."""
        found = self._compiled.match(_encode(name))
        return "" if found is None else str(found.group(), "utf-8", "replace")


class BadPattern(Exception):
    """A text is not a valid RE2 pattern. The error has RE2's message and the invalid part."""

    def __init__(self, reason: str, part: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.part = part


@lru_cache(maxsize=_CACHED)
def compile_pattern(text: str) -> Pattern:
    """Return the compiled pattern from a cache; raises BadPattern if the text is invalid."""
    import re2

    try:
        return Pattern(re2.compile(_encode(text), _options(PATTERN_MEMORY)))
    except re2.error as error:
        message = error.args[0] if error.args else b""
        text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        reason, _, part = text.partition(": ")
        raise BadPattern(reason, part) from None


def is_valid(rule: PowerfulRule) -> bool:
    """Return whether the pattern of a rule is valid in RE2."""
    try:
        compile_pattern(rule.match)
    except BadPattern:
        return False
    return True


def matches_name(rule: PowerfulRule, name: str) -> bool:
    """Return whether a rule, even an expired one, matches a name; raises BadPattern."""
    pattern = compile_pattern(rule.match)
    plain = without_directory(name) if rule.dirs else name
    return pattern.takes(name) or (plain != name and pattern.takes(plain))


def is_for_task(rule: PowerfulRule, task: str | None) -> bool:
    """Return whether a rule applies to requests of a task; True if the task is None."""
    return task is None or rule.task in (None, task)


def is_expired(rule: PowerfulRule, today: date) -> bool:
    """Return whether the last day of a rule is over."""
    return rule.expires is not None and rule.expires < today


def rules_for_name(
    fleet: Fleet, name: str, today: date, task: str | None = None
) -> tuple[RuleMatch, ...]:
    """Return all rules that apply to a name today. AllowList is faster for many names."""
    return tuple(
        RuleMatch(index, rule, name)
        for index, rule in enumerate(fleet.powerful)
        if not is_expired(rule, today)
        and is_for_task(rule, task)
        and is_valid(rule)
        and matches_name(rule, name)
    )


class PatternSet:
    """Valid patterns that one automaton matches together.

    If the automaton needs too much memory, each pattern is matched alone; the result is equal.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._together = _compile_set(patterns)

    def takers(self, name: str) -> list[int]:
        """Return the sorted indices of the patterns that match a name."""
        found = self._together.Match(_encode(name)) if self._together else None
        if found and len(self._patterns) in found:
            return sorted(found)[:-1]
        tried = enumerate(self._patterns)
        return [number for number, text in tried if compile_pattern(text).takes(name)]


class AllowList:
    """The rules that are active on a day, compiled once to match many names."""

    def __init__(self, fleet: Fleet, today: date) -> None:
        self._rules = [
            (index, rule)
            for index, rule in enumerate(fleet.powerful)
            if not is_expired(rule, today) and is_valid(rule)
        ]
        self._patterns = PatternSet([rule.match for _, rule in self._rules])

    def rules_for(self, request: "Request") -> tuple[RuleMatch, ...]:
        """Return all rules that apply to a request, in the order of the file."""
        named = [(name, request.task) for name in names_of(request)]
        found = [match for each in named for match in self.rules_for_name(*each)]
        return tuple(sorted(found, key=lambda match: match.index))

    def rules_for_name(self, name: str, task: str | None = None) -> tuple[RuleMatch, ...]:
        """Return all rules that apply to a name, in the order of the file."""
        return tuple(RuleMatch(*self._rules[place], name) for place in self._places(name, task))

    def count_names(self, tasks: Mapping[str, Collection[str]]) -> dict[int, list[str]]:
        """Map the index of each rule in `powerful` to the names that the rule applies to.

        `tasks` maps each name to the tasks of its requests.
        """
        found: dict[int, list[str]] = {index: [] for index, _ in self._rules}
        for name, of_name in tasks.items():
            for place in self._places(name):
                index, rule = self._rules[place]
                if rule.task is None or rule.task in of_name:
                    found[index].append(name)
        return found

    def _places(self, name: str, task: str | None = None) -> Sequence[int]:
        places = self._patterns.takers(name)
        if ":" in name and (plain := without_directory(name)) != name:
            more = [n for n in self._patterns.takers(plain) if self._rules[n][1].dirs]
            places = sorted({*places, *more})
        return [place for place in places if is_for_task(self._rules[place][1], task)]


def _compile_set(patterns: Sequence[str]) -> Any | None:  # noqa: ANN401 - RE2 has no types
    """Return all patterns as one set, followed by a pattern that matches all names.

    If RE2 runs out of memory in a match, it reports no error, but the last pattern does not match.
    None: the set cannot be compiled.
    """
    import re2

    together = re2.Set.FullMatchSet(_options(_SET_MEMORY))
    try:
        for pattern in (*patterns, "(?s).*"):
            together.Add(_encode(pattern))
        together.Compile()
    except re2.error:
        return None
    return together


def _options(memory: int) -> Any:  # noqa: ANN401 - RE2 has no types
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    return options


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


ANYTHING = (".*", ".+", "[^/]*", "[^/]+")
"""Patterns that match any text as one part of a name."""

_UP_TO = re.compile(r"\{,[0-9]*\}")
_MAX_ALTERNATIVES = 100
_DEEPEST = 10
_SPECIAL = frozenset("\\.[]()*+?{}|^$")


class NotFinite(Exception):
    """A pattern matches more than a short list of words."""


def split_top(pattern: str, separator: str) -> list[str]:
    """Split a pattern at each separator outside of groups and character classes."""
    parts = [""]
    depth = 0
    for piece in pieces(pattern):
        if piece == separator and depth == 0:
            parts.append("")
            continue
        depth += (piece == "(") - (piece == ")")
        parts[-1] += piece
    return parts


def pieces(pattern: str) -> Iterator[str]:
    """Yield the pieces of a pattern: escapes, character classes, and single characters."""
    at = 0
    while at < len(pattern):
        end = end_of_piece(pattern, at)
        yield pattern[at:end]
        at = end


def end_of_piece(pattern: str, at: int) -> int:
    """Return the index after the piece that starts at the index `at`."""
    if pattern[at] == "\\":
        return min(len(pattern), at + 2)
    if pattern[at] != "[":
        return at + 1
    end = at + 1
    while end < len(pattern) and (pattern[end] != "]" or pattern[at + 1 : end] in ("", "^")):
        named = pattern.find(":]", end + 2) if pattern.startswith("[:", end) else -1
        end = named + 2 if named >= 0 else end + (2 if pattern[end] == "\\" else 1)
    return min(len(pattern), end + 1)


def with_brace(pattern: str, brace: str) -> str:
    """Replace each `{` in `{,9}`, which RE2 reads as text and Python as a repetition."""
    found, at = "", 0
    for piece in pieces(pattern):
        found += brace if _UP_TO.match(pattern, at) and piece == "{" else piece
        at += len(piece)
    return found


def alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a pattern. Ignore a group around the whole pattern."""
    if pattern.startswith("(?:") and _end_of_atom(pattern, 0) == len(pattern):
        return alternatives(pattern[3:-1])
    return split_top(pattern, "|")


def words(pattern: str) -> list[str]:
    """Return the words that a pattern matches, sorted; raises NotFinite for other patterns."""
    return sorted(set(_words(pattern, 0)))


def never_takes(pattern: str, characters: str) -> bool:
    """Return whether a pattern certainly matches no text with any of these characters."""
    for piece in pieces(pattern):
        if piece == "." or piece.startswith("[^") or "[:" in piece or piece.isspace():
            return False
        if piece.startswith("\\") and (piece[1:].isalnum() or piece[1:] in characters):
            return False
        if piece.startswith("[") and ("\\" in piece or _is_in_class(piece, characters)):
            return False
        if piece in characters:
            return False
    return "(?" not in pattern.replace("(?:", "")


def _is_in_class(piece: str, characters: str) -> bool:
    ranges = [(low, high) for low, high in re.findall("(.)-(.)", piece[1:-1])]
    return any(
        each in piece or any(low <= each <= high for low, high in ranges) for each in characters
    )


def _words(pattern: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise NotFinite(pattern)
    for alternative in split_top(pattern, "|"):
        found = [""]
        for start, end, quantifier in _atoms(alternative):
            ends = [*_words_of_atom(alternative[start:end], depth), *([""] * bool(quantifier))]
            found = [word + end for word in found for end in ends]
            is_finite = quantifier in ("", "?") and end <= len(alternative)
            if len(found) > _MAX_ALTERNATIVES or not is_finite:
                raise NotFinite(pattern)
        yield from found


def _words_of_atom(atom: str, depth: int) -> list[str]:
    if atom.startswith("("):
        return list(_words(atom[1:-1].removeprefix("?:"), depth + 1))
    if atom.startswith("\\") and atom[1:] and not atom[1].isalnum():
        return [atom[1:]]
    if atom.startswith("[") and atom[1:-1].replace("_", "").isalnum():
        return list(atom[1:-1])
    if atom[0] in _SPECIAL:
        raise NotFinite(atom)
    return [atom]


Kind = Literal["word", "any", "part", "other"]

_QUANTIFIED = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")
_ESCAPE = re.compile(r"\\(?:[pP]\{[^}]*\}|[pP].|x\{[^}]*\}|x..|[0-7]{1,3}|.)")
_ANYTHING = "\ue000"
_NO_SLASH = "\ue001"
"""Sample characters for the wildcards `any` and `part`. No name or pattern contains them."""
_MOST_CHOICES = 6
_STRANGE = re.compile("[\ue000\ue001]")
_FLAG = re.compile(r"\(\?[a-zA-Z-]+\)")
_PUNCTUATION = re.compile(r"[!-.:-@\[-`{-~]")


class Piece(NamedTuple):
    """A piece of a pattern, with its position. A word also has its text.

    `any` is `.*` or `.+`, `part` is `[^/]*` or `[^/]+`, `other` is any other piece. `least` is 1
    if the piece matches no empty text.
    """

    kind: Kind
    start: int
    end: int
    text: str = ""
    least: int = 0


def read_pattern(pattern: str) -> tuple[Piece, ...] | None:
    """Split a valid pattern into pieces; None if the pattern cannot be split."""
    if _STRANGE.search(pattern) or r"\Q" in pattern:
        return None
    pieces = tuple(_pieces(pattern))
    # An alternative or a flag such as (?i) changes other pieces.
    strange = (piece.text for piece in pieces if piece.kind == "other")
    return None if any(each == "|" or _FLAG.match(each) for each in strange) else pieces


def is_word(pieces: Sequence[Piece]) -> bool:
    """Return whether a pattern consists of words, so that it matches only one text."""
    return all(piece.kind == "word" for piece in pieces)


def word_of(pieces: Sequence[Piece]) -> str:
    """Return the only text that a pattern without wildcards matches."""
    return "".join(piece.text for piece in pieces)


def takes_all_of(wide: Sequence[Piece], narrow: Sequence[Piece]) -> bool:
    """Return whether `wide` certainly matches every text that `narrow` matches."""
    simple, samples = simplified(wide), samples_of(narrow)
    if simple is None or not samples:
        return False
    taker = compile_pattern(simple)
    return all(taker.takes(sample) for sample in samples)


def simplified(wide: Sequence[Piece] | None) -> str | None:
    """Return a pattern that matches texts of `samples_of`; None if it has `other` pieces."""
    if wide is None or any(piece.kind == "other" for piece in wide):
        return None
    return "(?s)" + "".join(map(_sample_pattern, wide))


def samples_of(narrow: Sequence[Piece] | None) -> tuple[str, ...]:
    """Return sample texts of a pattern: a pattern that matches all samples matches all its texts.

    A sample replaces each wildcard by one character that only a wildcard matches, or by no
    character if the wildcard may be empty. Empty if there are too many samples or no pieces.
    """
    if narrow is None:
        return ()
    choices = [_samples(piece) for piece in narrow]
    if sum(len(choice) > 1 for choice in choices) > _MOST_CHOICES:
        return ()
    return tuple("".join(sample) for sample in product(*choices))


def segments(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Split the pieces of a pattern into one list per part of the name, at slashes."""
    found: list[list[Piece]] = [[]]
    for piece in pieces:
        if piece.kind == "word" and piece.text == "/":
            found.append([])
        else:
            found[-1].append(piece)
    return found


def _samples(piece: Piece) -> tuple[str, ...]:
    if piece.kind == "word":
        return (piece.text,)
    sample = _NO_SLASH if piece.kind == "part" else _ANYTHING
    return (sample,) if piece.least else (sample, "")


def _sample_pattern(piece: Piece) -> str:
    if piece.kind == "word":
        return _PUNCTUATION.sub(r"\\\g<0>", piece.text)
    sign = "+" if piece.least else "*"
    return f".{sign}" if piece.kind == "any" else f"[^/{_ANYTHING}]{sign}"


def _pieces(pattern: str) -> Iterator[Piece]:
    for start, end, quantifier in _atoms(pattern):
        written, stop = pattern[start:end], end + len(quantifier)
        is_escaped = written[0] == "\\" and written[1:] and not re.match("[0-9A-Za-z]", written[1])
        word = written[1:] if is_escaped else written
        sign = quantifier.removesuffix("?")
        if (start == 0 and written == "^" and not quantifier) or (
            0 < start == len(pattern) - 1 and written == "$"
        ):
            continue  # patterns match whole names, so anchors have no effect
        if written in (".", "[^/]") and sign in ("*", "+"):
            # `.*?` equals `.*`, since patterns match whole names.
            kind: Kind = "any" if written == "." else "part"
            yield Piece(kind, start, stop, least=int(sign == "+"))
        elif quantifier or len(word) > 1 or (not is_escaped and written in ".|)^$[("):
            yield Piece("other", start, stop, text=written + quantifier)
        else:
            yield Piece("word", start, stop, text=word)


def _atoms(pattern: str) -> Iterator[tuple[int, int, str]]:
    """Yield start and end of each escape, class, group and other character; and its quantifier."""
    at = 0
    while at < len(pattern):
        end = _end_of_atom(pattern, at)
        found = _QUANTIFIED.match(pattern, end)
        yield at, end, found[0] if found else ""
        at = found.end() if found else end


def _end_of_atom(pattern: str, at: int) -> int:
    """Return the index after an atom; more than the length if a group is not closed."""
    escape = _ESCAPE.match(pattern, at)
    if pattern[at] != "(":
        return escape.end() if escape else end_of_piece(pattern, at)
    depth, end = 1, at + 1
    while depth and end < len(pattern):
        depth += {"(": 1, ")": -1}.get(pattern[end], 0)
        end = end_of_piece(pattern, end)
    return end + depth
