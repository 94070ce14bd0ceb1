"""`fleet export copr`: the allow-list as EXTRA_BUILDCHROOT_TAGS, the same names matched there."""

import ast
import re
from datetime import date

import pytest

from fleet.migrate.export import patch_of
from fleet.schema.model import Fleet, PowerfulRule
from fleet.tagrules.allow import matches_name
from fleet.tagrules.export import CannotWrite, export_copr, pattern_for_copr
from tests.builders import a_fleet
from tests.builders.sentences import tells

TODAY = date(2026, 11, 21)
PROJECT = "@copr/copr-pull-requests"


def a_rule(match: str, **overrides: object) -> PowerfulRule:
    return PowerfulRule.model_validate({"match": match, "ask": ["powerful"]} | overrides)


def a_fleet_with(*rules: PowerfulRule) -> Fleet:
    return a_fleet(powerful=[rule.model_dump(mode="json", exclude_none=True) for rule in rules])


def option_in(text: str) -> object:
    assignment = ast.parse(text).body[-1]
    assert isinstance(assignment, ast.Assign)
    assert ast.unparse(assignment.targets[0]) == "EXTRA_BUILDCHROOT_TAGS"
    return ast.literal_eval(assignment.value)


def told(fleet: Fleet) -> list[str]:
    return [f"{f.path} {f.message}" for f in export_copr(fleet, "0" * 64, TODAY).findings]


def test_exported_option_is_a_python_literal_with_reasons() -> None:
    rule = a_rule("a/b/.*/chromium", reason='24 h\n "builds"', contact="@chromium")

    exported = export_copr(a_fleet_with(rule), "0123456789abcdef", TODAY)

    header, _, option = exported.text.partition("EXTRA_BUILDCHROOT_TAGS = [\n")
    assert tells(header, "# ", "`fleet export copr`", "fleet debian-ci", "0123456789ab")
    assert option == (
        '    # powerful[0]: 24 h "builds"; @chromium\n'
        '    {"pattern": r"a/b/.*/chromium\\Z", "tags": ["powerful"]},\n'
        "]\n"
    )
    assert exported.findings == ()
    assert option_in(exported.text) == [{"pattern": "a/b/.*/chromium\\Z", "tags": ["powerful"]}]


def test_expired_rule_is_omitted_and_any_text_a_literal() -> None:
    expired = a_rule("a/b/.*/c", expires="2026-11-20")
    odd = a_rule('a"b/Ü.*\\.x', ask=['t"ag', "t\\ag"], reason="\u2028x = 1\r\ny = 2")

    exported = export_copr(a_fleet_with(expired, odd), "0" * 64, TODAY)

    assert option_in(exported.text) == [{"pattern": 'a"b/Ü.*\\.x\\Z', "tags": ['t"ag', "t\\ag"]}]
    assert tells(exported.text, "powerful[0]", "2026-11-20", "expired")


NAMES = [
    "praiskup/ping/fedora-42-x86_64/chromium",
    "praiskup/ping/fedora-42-x86_64/chromium-headers",
    "praiskup/ping:pr:7/fedora-42-x86_64/chromium",
    "praiskup/pinging/fedora-42-x86_64/chromium",
    f"{PROJECT}/epel-9-ppc64le/copr-cli",
    f"{PROJECT}:pr:7/epel-9-ppc64le/copr-cli",
    f"{PROJECT}:pr:7:x/epel-9-ppc64le/copr-cli",
    f"{PROJECT}s:pr:7/epel-9-ppc64le/copr-cli",
    "@asahi/kernel/fedora-42-aarch64/kernel",
    "@asahi/kernel/fedora-42-aarch64/kernel-headers",
    "@asahi/kernel/fedora-42-riscv64/kernel",
]


@pytest.mark.parametrize("dirs", [False, True])
@pytest.mark.parametrize(
    "match",
    [
        "praiskup/ping/fedora-.*-.*/chromium",
        "@copr/copr-pull-requests/.*/copr-cli",
        "@asahi/kernel/.*(x86_64|aarch64)/kernel",
        "@asahi/kernel/.*/kernel|praiskup/ping/.*/chromium",
        "(?:praiskup/ping|@asahi/kernel)/.*/.*",
        "praiskup/.*/.*/chromium",
        "praiskup/[^/]*/.*/chromium",
        "[a-z]+/ping(ing)?/.*/chrom[i]um",
        "[^/]*/ping/.*",
        r"praiskup/ping/fedora-\d+-.*/chromium",
        "(?i)PRAISKUP/ping/.*/chromium",
    ],
)
def test_copr_matches_the_names_that_fleet_matches(match: str, *, dirs: bool) -> None:
    rule = a_rule(match, dirs=dirs)
    if dirs and match.startswith("(?"):
        with pytest.raises(CannotWrite, match="written out"):
            pattern_for_copr(rule)
        return
    pattern = re.compile(pattern_for_copr(rule))

    assert [n for n in NAMES if pattern.match(n)] == [n for n in NAMES if matches_name(rule, n)]


@pytest.mark.parametrize(
    ("match", "because"),
    [
        (r"a/\pL/.*/c", r"'\p'"),
        ("a/[[:alpha:]]+/.*/c", "'[[:'"),
        (r"a/\Qb.c\E/.*/c", r"'\Q'"),
        ("a/(?U:b*)/.*/c", "'(?U'"),
        ("a/b(?i)c/.*/d", "global flags not at the start"),
        ("a/b**/.*/d", "multiple repeat"),
    ],
)
def test_export_refuses_a_pattern_that_python_reads_differently(match: str, because: str) -> None:
    (finding,) = told(a_fleet_with(a_rule(match)))

    assert finding.startswith("('powerful', 0, 'match') ")
    assert because in finding


@pytest.mark.parametrize(
    "match", [".*/b/.*/c", "a/.b/.*/c", "a/b:pr:.*/.*/c", r"a/\S+/.*/c", "a.*"]
)
def test_export_refuses_indistinguishable_directories(match: str) -> None:
    (finding,) = told(a_fleet_with(a_rule(match, dirs=True)))

    assert finding.startswith("('powerful', 0, 'match') ")
    assert "`dirs`" in finding


def test_export_refuses_tags_that_are_too_long_for_the_column() -> None:
    fits, over = ["x" * 24, "y" * 25], ["x" * 25, "y" * 25]

    assert told(a_fleet_with(a_rule("a/b/.*/c", ask=fits))) == []
    (finding,) = told(a_fleet_with(a_rule("a/b/.*/c", ask=over)))
    assert finding.startswith("('powerful', 0, 'ask') ")
    assert re.findall(r"\d\d", finding) == ["51", "50"]


def test_export_refuses_too_long_tags_of_overlapping_rules() -> None:
    wide = a_rule("a/b/.*/.*", ask=["x" * 30])
    narrow = a_rule("a/b/.*/c", ask=["y" * 30], matches=["a/b/z/c"])

    (finding,) = told(a_fleet_with(wide, narrow))
    assert finding.startswith("('powerful', 1, 'ask') powerful[0], powerful[1] ")
    assert "a/b/z/c" in finding
    assert re.findall(r"\d\d", finding) == ["61", "50"]


def test_patch_replaces_the_assignment_that_counts() -> None:
    earlier, last = (f"EXTRA_BUILDCHROOT_TAGS = [{number}]" for number in (1, 2))

    lines = patch_of("copr.conf", f"{earlier}\n{last}\n".encode(), "NEW\n").splitlines()

    assert lines[-3:] == [f" {earlier}", f"-{last}", "+NEW"]
