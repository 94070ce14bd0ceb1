"""How a pattern is read, and when it is plain that one takes all that another takes."""

import pytest

from fleet.tagrules.allow import read_pattern, takes_all_of


def kinds(pattern: str) -> list[tuple[str, str]]:
    pieces = read_pattern(pattern)
    assert pieces is not None
    return [(piece.kind, pattern[piece.start : piece.end]) for piece in pieces]


@pytest.mark.parametrize(
    ("pattern", "read"),
    [
        ("a.*", [("word", "a"), ("any", ".*")]),
        (".+?/", [("any", ".+?"), ("word", "/")]),
        ("[^/]*[^/]+", [("part", "[^/]*"), ("part", "[^/]+")]),
        (r"a\.\*", [("word", "a"), ("word", r"\."), ("word", r"\*")]),
        ("^ab$", [("word", "a"), ("word", "b")]),
        ("a^b", [("word", "a"), ("other", "^"), ("word", "b")]),
        ("^*a", [("other", "^*"), ("word", "a")]),
        ("a{2}b{x}", [("other", "a{2}"), *(("word", c) for c in "b{x}")]),
        (r"\d+\pL\PL\p{Lu}\x41\x{41}\123", [
            ("other", r"\d+"), ("other", r"\pL"), ("other", r"\PL"), ("other", r"\p{Lu}"),
            ("other", r"\x41"), ("other", r"\x{41}"), ("other", r"\123"),
        ]),
        (r"[]a][^]a][\]][[:alpha:]]b", [
            ("other", "[]a]"), ("other", "[^]a]"), ("other", r"[\]]"),
            ("other", "[[:alpha:]]"), ("word", "b"),
        ]),
        (r"(a[)](\)b))*c", [("other", r"(a[)](\)b))*"), ("word", "c")]),
        (r"(\))b", [("other", r"(\))"), ("word", "b")]),
        ("[[:a]b", [("other", "[[:a]"), ("word", "b")]),
        ("[[:]b", [("other", "[[:]"), ("word", "b")]),
        ("(?:a|b)?", [("other", "(?:a|b)?")]),
        ("é.", [("word", "é"), ("other", ".")]),
    ],
)  # fmt: skip
def test_pattern_is_split_into_words_wildcards_and_others(
    pattern: str, read: list[tuple[str, str]]
) -> None:
    assert kinds(pattern) == read


@pytest.mark.parametrize("pattern", ["a|b", "(?i)a", r"a\Q.\E", "\ue000", "(?s-i)a"])
def test_ambiguous_pattern_has_no_pieces(pattern: str) -> None:
    assert read_pattern(pattern) is None


@pytest.mark.parametrize("broken", ["a\\", "[a", "(a", "(a\\", r"\p{"])
def test_parse_of_invalid_pattern_terminates(broken: str) -> None:
    assert kinds(broken)[-1][1].endswith(broken[-1])


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("a.+", "a.*"),
        ("a[^/]*", "a.*"),
        ("x[^/]*/[^/]*y", "x.*y"),
        ("x.+.+y", "x.+y"),
        ("a.c", "abc"),
        ("[a-z]*", "a"),
        ("a", "a.*"),
        ("ab", "a"),
        (".*a", ".*.*.*.*.*.*.*a"),
    ],
)
def test_uncertain_patterns_are_not_called_wider(wide: str, narrow: str) -> None:
    assert not takes_all_of(read_pattern(wide) or (), read_pattern(narrow) or ())
