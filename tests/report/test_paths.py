"""A name becomes one safe part of a path, and no two the same."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.site.pages import path_part, path_parts, quoted

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.sampled_from(
    [".", "..", "", "index.html", "INDEX.HTML", "~", "%2E", "a/b", "../../etc/passwd"]
)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("debian-ci-builders-0001", "debian-ci-builders-0001"),
        ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd"),
        (".", "%2E"),
        ("..", "%2E."),
        ("", "~"),
        ("index.html", "%69ndex.html"),
        ("a b?#", "a%20b%3F%23"),
        ("é", "%C3%A9"),
        ("a\\b\n", "a%5Cb%0A"),
    ],
)
def test_name_becomes_one_safe_path_part(name: str, part: str) -> None:
    assert path_part(name) == part


@given(_NAMES, _NAMES)
def test_two_names_have_different_path_parts(one: str, other: str) -> None:
    assert (path_part(one) == path_part(other)) == (one == other)


@given(_NAMES)
def test_path_part_has_no_slash_and_is_never_empty(name: str) -> None:
    part = path_part(name)

    assert part not in ("", ".", "..")
    assert "/" not in part


@given(_NAMES)
def test_link_leads_to_path_part(name: str) -> None:
    assert unquote(quoted(path_part(name))) == path_part(name)


def test_long_name_is_truncated_and_unique() -> None:
    one, other = "x" * 500, "x" * 501

    assert len(path_part(one)) < 140
    assert path_part(one) != path_part(other)


def test_equal_name_in_two_registries_has_two_path_parts() -> None:
    parts = path_parts([("w", "debian"), ("w", "copr"), ("v", "debian")])

    assert parts == {("w", "debian"): "w~~debian", ("w", "copr"): "w~~copr", ("v", "debian"): "v"}
