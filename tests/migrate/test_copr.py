"""`fleet import copr`: the allow-list as literals, prefixes become full matches."""

import time

import pytest

from fleet.errors import FileUnreadable
from fleet.migrate.from_copr import import_copr, read_list
from fleet.migrate.reading import Imported
from fleet.tagrules.names import RecordedNames
from tests.migrate.reading import fleet_of, said, wrong

ASAHI = "@asahi/kernel/.*(x86_64|aarch64)/kernel"


def imported(text: str, recorded: RecordedNames | None = None) -> Imported:
    return import_copr("copr.conf", text.encode(), "demo", recorded)


def a_list(*patterns: str, tags: str = '["t"]') -> str:
    rules = "".join(f'    {{"pattern": {text!r}, "tags": {tags}}},\n' for text in patterns)
    return f"EXTRA_BUILDCHROOT_TAGS = [\n{rules}]\n"


@pytest.mark.parametrize(
    "change", ['.append({"pattern": "a/b", "tags": ["t"]})', '[0]["tags"] = ["u"]']
)
def test_list_is_refused_when_a_later_line_changes_it(change: str) -> None:
    text = a_list("a/.*") + f"EXTRA_BUILDCHROOT_TAGS{change}\n"

    assert wrong(imported(text)) == ["copr.conf:4:1: not-a-literal"]
    with pytest.raises(FileUnreadable, match=r"copr\.conf:4:1"):
        read_list("copr.conf", text.encode())


def test_names_matched_only_by_prefix_are_listed() -> None:
    names = [f"@asahi/kernel/fedora-42-aarch64/{name}" for name in ("kernel", "kernel-headers")]

    recorded = RecordedNames(dict.fromkeys((*names, "other/x/y/z"), ("build",)))
    found = imported(a_list(ASAHI, "other/.*"), recorded)

    (change,) = [change for change in found.changes if change.names]
    assert change.names == ("@asahi/kernel/fedora-42-aarch64/kernel-headers",)


def test_reason_of_rule_is_last_paragraph_of_its_comment() -> None:
    long = "  # how this list works, and why\n" * 40
    rule = '  {"pattern": "a", "tags": ["t"]},\n'

    text = f"EXTRA_BUILDCHROOT_TAGS = [\n{long}{rule}{long}  #\n  # ticket 2\n{rule}]\n"

    found = imported(text)

    assert [rule.reason for rule in fleet_of(found).powerful] == [None, "ticket 2"]
    assert [each.split(":")[0] for each in said(found, "no-equivalent")] == ["2"]


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


@pytest.mark.parametrize("option", ["EXTRA_BUILDCHROOT_TAGS", "EXTRA_BUILDER_TAGS"])
@pytest.mark.parametrize("begin", ["{% if devel %}", "{%- for x in y -%}", "{% macro a() %}"])
def test_option_inside_jinja_is_found_with_its_line(option: str, begin: str) -> None:
    (found,) = wrong(imported(f"a = 1\n{begin}\n{option} = []\n"))

    assert found.startswith("copr.conf:3:1: missing-key")


@pytest.mark.parametrize("pair", ["x86_64", "x86_64=0", "x86_64=many", "a b=1", f"x={'9' * 5000}"])
def test_unreadable_limit_is_refused(pair: str) -> None:
    (found,) = wrong(imported(f"[backend]\nbuilds_max_workers_arch=s390x=4,{pair}\n"))

    assert found.startswith("copr.conf:2:33: wrong-value")


@pytest.mark.parametrize("value", ["{{ rules }}", "[{'pattern': {{ p }}, 'tags': ['b']}]"])
def test_live_list_is_unknown_when_it_is_a_template(value: str) -> None:
    with pytest.raises(FileUnreadable, match=r"not read|expected"):
        read_list("copr.conf", f"EXTRA_BUILDCHROOT_TAGS = {value}\n".encode())
