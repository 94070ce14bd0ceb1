"""Moving keeps meaning: what Copr's prefix match takes is taken after import, and after export."""

import ast
import re
import warnings
from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from fleet.migrate.from_copr import import_copr
from fleet.schema.model import PowerfulRule
from fleet.tagrules.allow import BadPattern, matches_name
from fleet.tagrules.export import CannotWrite, export_copr, pattern_for_copr
from tests.migrate.reading import fleet_of

OWNERS = ("praiskup", "@copr", "@asahi")
PROJECTS = ("ping", "kernel", "ping:pr:7", "copr-pull-requests:pr:12")
CHROOTS = ("fedora-42-x86_64", "epel-9-aarch64", "srpm-builds")
PACKAGES = ("chromium", "chromium-headers", "kernel", "texlive", "libstdc++", "")

words = st.sampled_from([*OWNERS, *PROJECTS, *CHROOTS, *PACKAGES, "fedora-.*", "chrom"])
atoms = st.one_of(
    words.map(re.escape),
    words,
    st.sampled_from(
        [
            ".*",
            ".+",
            "[^/]*",
            "[a-z]+",
            r"\d+",
            "x{,2}",
            "x{,}",
            "[x{,1}]",
            "(a|b)?",
            "$",
            "^",
            r"\Z",
        ]
    ),
    st.tuples(words, words).map(lambda pair: f"({pair[0]}|{pair[1]})"),
)
parts = st.lists(atoms, min_size=1, max_size=2).map("".join)
paths = st.lists(parts, min_size=1, max_size=4).map("/".join)
patterns = st.one_of(paths, st.tuples(paths, paths).map("|".join))
names = st.tuples(*map(st.sampled_from, (OWNERS, PROJECTS, CHROOTS, PACKAGES))).map("/".join)


def copr_takes(pattern: str, name: str) -> bool:
    """Do what Copr does with a pattern of its option."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.match(pattern, name) is not None
        except re.error:
            return False


@given(
    rules=st.lists(patterns, min_size=1, max_size=3),
    seen=st.lists(names, min_size=1, max_size=8),
)
def test_import_and_export_keep_matched_names(rules: list[str], seen: list[str]) -> None:
    written = [{"pattern": pattern, "tags": ["t"]} for pattern in rules]
    imported = import_copr("c", f"EXTRA_BUILDCHROOT_TAGS = {written!r}".encode(), "demo")

    fleet = fleet_of(imported)
    exported = export_copr(fleet, "0" * 64, date(2026, 11, 21))

    lost = [
        change for change in imported.changes if change.kind in ("no-equivalent", "never-acts")
    ]
    assert len(fleet.powerful) == len(rules) - len(lost)
    assert exported.findings == ()
    option = ast.literal_eval(exported.text.partition(" = ")[2])
    kept = [each for each in rules if f"pattern {each}" not in {change.what for change in lost}]
    for before, rule, after in zip(kept, fleet.powerful, option, strict=True):
        for name in seen:
            takes = copr_takes(before, name)
            assert matches_name(rule, name) == takes, (before, rule.match, name)
            assert copr_takes(after["pattern"], name) == takes, (before, after, name)


@given(
    match=patterns.filter(bool), dirs=st.booleans(), seen=st.lists(names, min_size=1, max_size=8)
)
def test_exported_rule_matches_same_names_as_fleet(
    match: str, seen: list[str], *, dirs: bool
) -> None:
    rule = PowerfulRule.model_validate({"match": match, "ask": ["t"], "dirs": dirs})
    try:
        pattern = pattern_for_copr(rule)
        expected = [name for name in seen if matches_name(rule, name)]
    except (CannotWrite, BadPattern):
        return

    assert [name for name in seen if copr_takes(pattern, name)] == expected, pattern
