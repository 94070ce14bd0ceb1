"""How a pattern is taken apart for systems that know no patterns: pieces, parts, words."""

import pytest

from fleet.tagrules.allow import (
    NotFinite,
    alternatives,
    compile_pattern,
    never_takes,
    with_brace,
    words,
)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a|b", ["a", "b"]),
        ("(?:a|b)", ["a", "b"]),
        ("(?:(?:a|b)|c)", ["(?:a|b)", "c"]),
        ("(?:(?:a|b))", ["a", "b"]),
        ("(?:a|b)|(?:c)", ["(?:a|b)", "(?:c)"]),
        ("(?:a|b)c", ["(?:a|b)c"]),
        ("(?:a|b", ["(?:a|b"]),
        ("(a|b)", ["(a|b)"]),
    ],
)
def test_outer_group_does_not_hide_alternatives(pattern: str, found: list[str]) -> None:
    assert alternatives(pattern) == found


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("a{,9}", r"a\{,9}"),
        ("a{,}b{,12}", r"a\{,}b\{,12}"),
        ("a{1,9}{2}", "a{1,9}{2}"),
        (r"[{,9}]\{,9}", r"[{,9}]\{,9}"),
        (r"\.[ab]a{,9}", r"\.[ab]a\{,9}"),
        ("a{,b}", "a{,b}"),
    ],
)
def test_only_repeat_up_to_n_is_rewritten(pattern: str, written: str) -> None:
    assert with_brace(pattern, r"\{") == written


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("", [""]),
        ("b|a|b", ["a", "b"]),
        ("ab?c", ["abc", "ac"]),
        ("(a|b)c", ["ac", "bc"]),
        ("(?:a|b)?", ["", "a", "b"]),
        ("((a|b)c|d)e", ["ace", "bce", "de"]),
        ("[ab_]", ["_", "a", "b"]),
        (r"a\.\?b", ["a.?b"]),
        (r"\??", ["", "?"]),
        ("[ab][cd]?", ["a", "ac", "ad", "b", "bc", "bd"]),
        ("[0123456789][0123456789]", [f"{number:02}" for number in range(100)]),
        ("a(|b)", ["a", "ab"]),
        ("é-/", ["é-/"]),
    ],
)
def test_short_pattern_is_expanded_to_its_words(pattern: str, found: list[str]) -> None:
    compile_pattern(pattern)

    assert words(pattern) == found


def groups(depth: int) -> str:
    """Return the word `a` in so many groups."""
    return "(" * depth + "a" + ")" * depth


def test_words_are_expanded_in_at_most_ten_groups() -> None:
    assert words(groups(10)) == ["a"]
    with pytest.raises(NotFinite):
        words(groups(11))


@pytest.mark.parametrize(
    "pattern",
    [
        "a.",
        "a*",
        "a+b",
        "a{2}",
        "^a",
        "a$",
        "[^a]",
        "[a-c]",
        "[[:alpha:]]",
        r"\d",
        r"[\d]",
        "(?i:a)",
        "(?P<name>a)",
        "(a",
        "a)",
        "a??",
        "\\",
        "[ab][abc][abcdefgh][abc]",
    ],
)
def test_pattern_with_many_matches_has_no_words(pattern: str) -> None:
    with pytest.raises(NotFinite):
        words(pattern)


@pytest.mark.parametrize(
    "pattern", ["ab", "a*b+", "[ab]", "[a-z]", r"a\.b", "(a|b)?c", "", "[0-9]x"]
)
def test_letters_and_their_classes_never_match_a_slash(pattern: str) -> None:
    assert never_takes(pattern, "/:")


@pytest.mark.parametrize(
    "pattern",
    [
        ".",
        "a/b",
        "a:",
        "[^a]",
        "[[:alpha:]]",
        r"\d",
        r"\S",
        r"\/",
        "[a:]",
        "[.-0]",
        "[/-0]",
        "[.-/]",
        r"[\d]",
        "a b",
        "(?i)a",
        "(?:a)(?i:b)",
    ],
)
def test_pattern_that_can_match_is_not_empty(pattern: str) -> None:
    assert not never_takes(pattern, "/:")
