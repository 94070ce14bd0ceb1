"""`fleet import copr`: the allow-list as literals, prefixes become full matches."""

import time
from itertools import pairwise

import pytest

from fleet.errors import FileUnreadable
from fleet.migrate.from_copr import import_copr, read_list
from fleet.migrate.reading import Imported
from fleet.schema.model import TicketQueue
from fleet.tagrules.names import RecordedNames
from tests.builders.sentences import tells
from tests.migrate.reading import fleet_of, said, wrong

ASAHI = "@asahi/kernel/.*(x86_64|aarch64)/kernel"
SEED = """\
EXTRA_BUILDER_TAGS = {
    "extra_powerful": [
        "praiskup/ping/fedora-.*-.*/chromium",
        "@copr/copr-pull-requests/.*/copr-cli",
    ],
}
"""


def tickets_of(found: Imported) -> TicketQueue:
    queue = fleet_of(found).queues["tickets"]
    assert isinstance(queue, TicketQueue)
    return queue


def imported(text: str, recorded: RecordedNames | None = None) -> Imported:
    return import_copr("copr.conf", text.encode(), "demo", recorded)


def a_list(*patterns: str, tags: str = '["t"]') -> str:
    rules = "".join(f'    {{"pattern": {text!r}, "tags": {tags}}},\n' for text in patterns)
    return f"EXTRA_BUILDCHROOT_TAGS = [\n{rules}]\n"


def matches_of(text: str) -> list[str]:
    return [rule.match for rule in fleet_of(imported(text)).powerful]


def test_later_assignment_replaces_rules_of_earlier_ones() -> None:
    assert matches_of(a_list("old/.*") + a_list("new/.*")) == ["new/.*"]
    added = a_list("more/.*").replace(" = ", " += ")
    assert matches_of(a_list("old/.*") + a_list("new/.*") + added) == ["new/.*", "more/.*"]


@pytest.mark.parametrize(
    "change", ['.append({"pattern": "a/b", "tags": ["t"]})', '[0]["tags"] = ["u"]']
)
def test_list_is_refused_when_a_later_line_changes_it(change: str) -> None:
    text = a_list("a/.*") + f"EXTRA_BUILDCHROOT_TAGS{change}\n"

    assert wrong(imported(text)) == ["copr.conf:4:1: not-a-literal"]
    with pytest.raises(FileUnreadable, match=r"copr\.conf:4:1"):
        read_list("copr.conf", text.encode())


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        (ASAHI, ASAHI + ".*"),
        ("praiskup/.*", "praiskup/.*"),
        (r"a/b/c\.*", r"a/b/c\.*.*"),
        ("a/b|c/d", "(?:a/b|c/d).*"),
        ("a/(b|c)", "a/(b|c).*"),
        ("a/b$", "a/b"),
        (r"a/b\$", r"a/b\$.*"),
        (r"a/b\Z", "a/b"),
        (r"a\Z|b$", r"(?:a\z|b$).*"),
        ("^a/b", "^a/b.*"),
        ("a{,3}/b", "a{0,3}/b.*"),
        ("(?i)a/b", "(?i)a/b.*"),
        ("", ".*"),
        ("a/b[$]", "a/b[$].*"),
    ],
)
def test_prefix_match_becomes_equivalent_full_match(pattern: str, match: str) -> None:
    assert matches_of(a_list(pattern)) == [match]


def test_documented_form_is_imported() -> None:
    fleet = fleet_of(imported(SEED))

    assert [(rule.match, rule.ask) for rule in fleet.powerful] == [
        ("praiskup/ping/fedora-.*-.*/chromium.*", ["extra_powerful"]),
        ("@copr/copr-pull-requests/.*/copr-cli.*", ["extra_powerful"]),
    ]
    assert fleet.tags["extra_powerful"].asked_by == ["rules", "system", "tickets"]


def test_names_matched_only_by_prefix_are_listed() -> None:
    names = [f"@asahi/kernel/fedora-42-aarch64/{name}" for name in ("kernel", "kernel-headers")]

    recorded = RecordedNames(dict.fromkeys((*names, "other/x/y/z"), ("build",)))
    found = imported(a_list(ASAHI, "other/.*"), recorded)

    (change,) = [change for change in found.changes if change.names]
    assert change.names == ("@asahi/kernel/fedora-42-aarch64/kernel-headers",)


def test_reasons_in_comments_are_kept() -> None:
    rule = '{"pattern": "a", "tags": ["t"]}'
    text = f'EXTRA_BUILDCHROOT_TAGS = [\n  # 24 h builds,\n  # see "1234"\n  {rule}]'

    assert [rule.reason for rule in fleet_of(imported(text)).powerful] == [
        '24 h builds, see "1234"'
    ]


INSIDE = """\
# Everything here was asked for in tickets.
EXTRA_BUILDCHROOT_TAGS = [{
    # https://tracker.example/1
    "pattern": "a/#b",
    "tags": ["t"],  # until 2027
}, {
    "pattern": "b",  # https://tracker.example/2
    "tags": ["t"],
},
    {"pattern": "c", "tags": ["t"]},  # https://tracker.example/3
    {"pattern": "d", "tags": ["t"]}, {"pattern": "e", "tags": ["t"]},  # of e
    # {"pattern": "never", "tags": ["t"]},
    {"pattern": "f", "tags": ["t"]},
]
"""


def test_comments_inside_and_after_a_rule_are_its_reason() -> None:
    assert [rule.reason for rule in fleet_of(imported(INSIDE)).powerful] == [
        "https://tracker.example/1 until 2027",
        "https://tracker.example/2",
        "https://tracker.example/3",
        None,
        "of e",
        None,
    ]


def test_comment_in_a_table_of_patterns_is_kept_with_its_pattern() -> None:
    text = 'EXTRA_BUILDER_TAGS = {"t": [\n  "a",  # ticket 1\n  # ticket 2\n  "b",\n]}\n'

    reasons = [rule.reason for rule in fleet_of(imported(text)).powerful]

    assert reasons == ["ticket 1", "ticket 2"]


def test_reason_of_rule_is_last_paragraph_of_its_comment() -> None:
    long = "  # how this list works, and why\n" * 40
    rule = '  {"pattern": "a", "tags": ["t"]},\n'

    text = f"EXTRA_BUILDCHROOT_TAGS = [\n{long}{rule}{long}  #\n  # ticket 2\n{rule}]\n"

    found = imported(text)

    assert [rule.reason for rule in fleet_of(found).powerful] == [None, "ticket 2"]
    assert [each.split(":")[0] for each in said(found, "no-equivalent")] == ["2"]


@pytest.mark.parametrize("pattern", ["a(", "a**", r"a\pL", "a/(?<n>b)", "a(?U:b)"])
def test_pattern_invalid_in_python_never_acts(pattern: str) -> None:
    found = imported(a_list(pattern))

    assert fleet_of(found).powerful == []
    (change,) = said(found, "never-acts")
    assert f"pattern {pattern}" in change


@pytest.mark.parametrize(
    "pattern", ["a(?!b)", r"(a)\1", "a[[:alpha:]]b", "a*+b", r"\u0041", "a" * 999]
)
def test_pattern_unsupported_by_re2_has_no_equivalent(pattern: str) -> None:
    found = imported(a_list(pattern, "a/b"))

    assert len(fleet_of(found).powerful) == 1
    assert len(said(found, "no-equivalent")) == 1
    assert "# no equivalent:" in str(found.text)


def test_pattern_with_unicode_class_is_reported_as_changed() -> None:
    assert any("ASCII" in each for each in said(imported(a_list(r"\d+")), "changed"))


def test_appended_rules_are_imported() -> None:
    text = a_list("a") + a_list("b").replace("=", "+=", 1)

    assert matches_of(text) == ["a.*", "b.*"]


def test_imported_file_is_never_executed(tmp_path: object) -> None:
    marker = f"{tmp_path}/was-run"

    fleet_of(imported(f"open({marker!r}, 'w')\n{a_list('a')}"))

    assert not __import__("pathlib").Path(marker).exists()


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("x = 1\n", "copr.conf:1:1: missing-key"),
        ("EXTRA_BUILDCHROOT_TAGS = [", "copr.conf:1:26: invalid-python"),
        ("EXTRA_BUILDCHROOT_TAGS = x()", "copr.conf:1:26: not-a-literal"),
        ("EXTRA_BUILDCHROOT_TAGS = [x]", "copr.conf:1:27: not-a-literal"),
        ("EXTRA_BUILDCHROOT_TAGS = [{}]", "copr.conf:1:27: missing-key"),
        (a_list("a", tags="[]"), "copr.conf:2:30: wrong-value"),
        (a_list("a", tags="['a b']"), "copr.conf:2:31: wrong-value"),
        (a_list("ä", tags="[1]"), "copr.conf:2:31: wrong-type"),
        (a_list("a", tags="['t' + x]"), "copr.conf:2:31: not-a-literal"),
        (a_list("a", tags='["t"], "x": 1'), "copr.conf:2:37: unknown-key"),
        ("if x:\n  EXTRA_BUILDCHROOT_TAGS = []", "copr.conf:2:3: not-a-literal"),
        ("EXTRA_BUILDER_TAGS = {'t': 1}", "copr.conf:1:28: wrong-type"),
        ("EXTRA_BUILDER_TAGS = {**x}", "copr.conf:1:25: not-a-literal"),
        ("EXTRA_BUILDER_TAGS: dict", "copr.conf:1:1: not-a-literal"),
        ("x = " + "-" * 100_000 + "1", "copr.conf:1:1: too-complex"),
        ("x = '\0'", "copr.conf:1:"),
        ("x = " + "(" * 5000 + ")" * 5000, "copr.conf:1:"),
    ],
)
def test_non_literal_is_refused_with_place(text: str, finding: str) -> None:
    began = time.process_time()

    (found, *_) = wrong(imported(text))

    assert found.startswith(finding)
    assert time.process_time() - began < 1


BACKEND = """\
[backend]
builds_max_workers=60
builds_max_workers_arch=x86_64=20,i386=5, ppc64le=10
builds_max_workers_tag=extra_powerful=10
builds_max_workers_arch_per_owner=s390x=4
"""


def test_backend_limits_become_limits_of_tags() -> None:
    found = imported(BACKEND)
    tags = fleet_of(found).tags

    assert {name: rule.limits.total for name, rule in tags.items()} == {
        "arch_ppc64le": 10,
        "arch_s390x": None,
        "arch_x86_64": 20,
        "extra_powerful": 10,
    }
    assert tags["arch_s390x"].limits.per.owner == 4
    (change,) = said(found, "never-acts")
    assert tells(change, "3", "builds_max_workers_arch", "i386=5", "x86_64")
    assert tickets_of(found).limits.total == 60


def test_backend_values_continue_in_indented_lines() -> None:
    arches = ("x86_64=90", "aarch64=70", "ppc64le=16", "s390x=8")
    value = "".join(f"    {each},\n" for each in arches)

    found = imported(f"[backend]\nbuilds_max_workers_arch=\n{value}    # later\n\n    i386=5\n")

    totals = {name: rule.limits.total for name, rule in fleet_of(found).tags.items()}
    assert totals == {"arch_x86_64": 90, "arch_aarch64": 70, "arch_ppc64le": 16, "arch_s390x": 8}
    assert [each.split(":")[0] for each in said(found, "never-acts")] == ["9"]


def test_limits_of_all_builds_become_limits_of_the_tickets() -> None:
    found = imported(
        "[backend]\nbuilds_max_workers = 405\nbuilds_max_workers_owner: 90\n"
        "builds_max_workers_sandbox=35\nblocked_owners=mallory, eve\n"
    )

    queue = tickets_of(found)
    assert (queue.limits.total, queue.limits.per.owner, queue.limits.per.sandbox) == (405, 90, 35)
    assert queue.blocked == ["mallory", "eve"]
    assert found.changes == ()


def test_other_backend_options_are_reported_without_value() -> None:
    found = imported("[backend]\nfrontend_auth=hunter2\nbuilds_max_userssh=2\n[x]\ny=1\n")

    lines = [(change.kind, change.place.line) for change in found.changes]
    assert lines == [("no-equivalent", 2), ("no-equivalent", 3), ("never-acts", 5)]
    assert "hunter2" not in f"{found.changes}{found.text}"


@pytest.mark.parametrize(
    "option", ["timeout=108000", "consecutive_failure_threshold=0", "builder_config=/x"]
)
@pytest.mark.parametrize("section", ["builder", "ssh"])
def test_options_of_other_sections_have_no_equivalent(section: str, option: str) -> None:
    found = imported(f"[backend]\nbuilds_max_workers=9\n[{section}]\n{option}\n")

    assert [(change.kind, change.place.line) for change in found.changes] == [("no-equivalent", 4)]


@pytest.mark.parametrize("option", ["EXTRA_BUILDCHROOT_TAGS", "EXTRA_BUILDER_TAGS"])
@pytest.mark.parametrize("begin", ["{% if devel %}", "{%- for x in y -%}", "{% macro a() %}"])
def test_option_inside_jinja_is_found_with_its_line(option: str, begin: str) -> None:
    (found,) = wrong(imported(f"a = 1\n{begin}\n{option} = []\n"))

    assert found.startswith("copr.conf:3:1: missing-key")


@pytest.mark.parametrize(
    "text",
    [
        "EXTRA_BUILDER_TAGS = {{ tags(['a', 'b']) }}",
        "EXTRA_BUILDCHROOT_TAGS = {{ rules }}",
        "EXTRA_BUILDCHROOT_TAGS = [{'pattern': {{ p }}, 'tags': ['a']}]",
    ],
)
def test_hint_names_jinja_when_it_writes_an_option(text: str) -> None:
    found = imported(f"{text}\n").findings

    assert found
    assert all("Jinja" in each.hint for each in found)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[backend]\nbuilds_max_workers\n", 2),
        ("[backend]\nsleeptime=1\nsleeptime=2\n", 3),
        ("[backend]\n[backend]\n", 2),
        ("[backend]\nbuilds_max_workers_owner=many\n", 2),
    ],
)
def test_invalid_backend_file_is_refused_with_line(text: str, line: int) -> None:
    (found,) = wrong(imported(text))

    assert found.startswith(f"copr.conf:{line}:1: ")


@pytest.mark.parametrize("pair", ["x86_64", "x86_64=0", "x86_64=many", "a b=1", f"x={'9' * 5000}"])
def test_unreadable_limit_is_refused(pair: str) -> None:
    (found,) = wrong(imported(f"[backend]\nbuilds_max_workers_arch=s390x=4,{pair}\n"))

    assert found.startswith("copr.conf:2:33: wrong-value")


BLOCKED = """\
[backend]
# the list of the abuse team
blocked_owners=
    # miners, issue 17
    mallory, eve
    trent # asked for it
    oscar
"""


def test_blocked_owners_keep_their_line_and_why() -> None:
    found = imported(BLOCKED)

    assert tickets_of(found).blocked == ["mallory", "eve", "trent", "oscar"]
    above = dict(pairwise(map(str.strip, str(found.text).splitlines())))
    assert above["# the list of the abuse team"] == "blocked:"
    assert above["# copr.conf:5: miners, issue 17"] in ("- mallory", "- eve")
    assert above["# copr.conf:6: asked for it"] == "- trent"
    assert above["# copr.conf:7"] == "- oscar"
    (changed,) = said(found, "changed")
    assert tells(changed, "6", "blocked_owners", "trent", "asked for it")


def test_jinja_blocks_of_backend_are_reported_with_line() -> None:
    found = imported(
        "[backend]\n{% if env == 'production' %}\nbuilds_max_workers=405\n{% else %}\n"
        "builds_max_workers=5\n{% endif %}\nbuilds_max_workers_owner={{ most }}\n"
        "blocked_owners=\n    mallory\n    {{ more }}\nbuilds_max_workers_arch=\n    x86_64=9\n"
        "    aarch64={{ few }}\n{% set secret = 'hunter2' %}\n"
    )

    queue = tickets_of(found)
    assert (queue.limits.total, queue.limits.per.owner, queue.blocked) == (None, None, ["mallory"])
    assert list(fleet_of(found).tags) == ["arch_x86_64"]
    lines = [each.split(":")[0] for each in said(found, "no-equivalent")]
    assert lines == ["2", "7", "10", "13", "14"]
    assert "hunter2" not in f"{found.changes}{found.text}"


def test_jinja_blocks_of_allow_list_are_reported_with_line() -> None:
    found = imported(
        "{# ansible #}\nDEBUG = {{ debug }}\nEXTRA_BUILDCHROOT_TAGS = [\n"
        '    {"pattern": "a/b", "tags": ["t"]},\n{% if staging %}\n'
        '{% for user in users %}\n    {"pattern": "{{ user }}/d", "tags": ["t"]},\n{% endfor %}\n'
        '    {"pattern": "c/d", "tags": ["t"]},\n{% endif %}\n'
        '    {"pattern": "{{ user }}/e", "tags": ["t"]},\n'
        '    {"pattern": "g/h", "tags": ["{{ tag }}"]},\n]\n'
    )

    fleet = fleet_of(found)
    assert [rule.match for rule in fleet.powerful] == ["a/b.*"]
    assert list(fleet.tags) == ["t"]
    told = said(found, "no-equivalent")
    assert [each.split(":")[0] for each in told] == ["5", "11", "12"]
    assert "to line 10" in told[0]


def test_unterminated_jinja_block_is_reported() -> None:
    found = imported("[backend]\nbuilds_max_workers=4\n{% if x %}\nbuilds_max_workers_owner=2\n")

    assert tickets_of(found).limits.per.owner is None
    assert len(said(found, "no-equivalent")) == 1


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        ("{% if x %}\nbuilds_max_workers=5\n{% endif %}\n", "builds_max_workers", 3),
        ("{% if x %}\n#\nblocked_owners = a\n{% endif %}\n", "blocked_owners", 4),
        (
            "{% for a in b %}\nbuilds_max_workers_arch=\n    {{ a }}=2\n{% endfor %}\n",
            "builds_max_workers_arch",
            3,
        ),
        ("builds_max_workers={% if x %}5{% else %}9{% endif %}\n", "builds_max_workers", 2),
        ("builds_max_workers=\n{% if x %}\n    5\n{% endif %}\n", "builds_max_workers", 2),
        ("builds_max_workers=1{% if x %}0{% endif %}\n", "builds_max_workers", 2),
        ("blocked_owners={% if x %}a{% endif %}\n", "blocked_owners", 2),
        (
            "builds_max_workers_arch=x86_64={% if x %}5{% endif %}\n",
            "builds_max_workers_arch",
            2,
        ),
    ],
)
def test_limit_computed_by_jinja_is_not_read(text: str, name: str, line: int) -> None:
    found = imported(f"[backend]\n{text}builds_max_workers_owner=3\n")

    (told,) = said(found, "no-equivalent")
    assert found.findings == ()
    assert name in told
    assert str(line) in told
    queue, tags = tickets_of(found), fleet_of(found).tags
    assert (queue.limits.total, queue.limits.per.owner) == (None, 3)
    assert (queue.blocked, list(tags)) == ([], [])


@pytest.mark.parametrize(
    "value",
    [
        "{{ tags }}",
        "{% if x %}{'a': ['b']}{% else %}{}{% endif %}",
        "{% if x %}\n{'a': ['b']}\n{% endif %}",
    ],
)
def test_list_is_read_when_only_the_other_is_computed_by_jinja(value: str) -> None:
    known = 'EXTRA_BUILDCHROOT_TAGS = [{"pattern": "a/b", "tags": ["t"]}]\n'

    found = imported(f"{known}EXTRA_BUILDER_TAGS = {value}\n")

    (told,) = said(found, "no-equivalent")
    assert tells(told, "2", "EXTRA_BUILDER_TAGS", "line 2", "not read")
    assert [rule.match for rule in fleet_of(found).powerful] == ["a/b.*"]


@pytest.mark.parametrize(
    "text",
    [
        "EXTRA_BUILDER_TAGS = {{ tags }}",
        "EXTRA_BUILDER_TAGS = {% if x %}{}{% endif %}",
        "EXTRA_BUILDCHROOT_TAGS = [{'pattern': 'a', 'tags': {% if x %}['b']{% endif %}}]",
        "EXTRA_BUILDCHROOT_TAGS = [{'pattern': {{ p }}, 'tags': ['b']}]",
    ],
)
def test_value_is_refused_once_when_jinja_computes_all(text: str) -> None:
    (finding,) = imported(f"{text}\n").findings

    assert "expected" not in finding.message
    assert "not read" in finding.message
    assert "Jinja" in finding.hint


def test_hint_names_jinja_when_remainder_is_not_python() -> None:
    (finding,) = imported("EXTRA_BUILDER_TAGS = (\n{% if x %}\n)\n{% endif %}\n").findings

    assert "Jinja" in finding.hint


@pytest.mark.parametrize("value", ["{{ rules }}", "[{'pattern': {{ p }}, 'tags': ['b']}]"])
def test_live_list_is_unknown_when_it_is_a_template(value: str) -> None:
    with pytest.raises(FileUnreadable, match=r"not read|expected"):
        read_list("copr.conf", f"EXTRA_BUILDCHROOT_TAGS = {value}\n".encode())
