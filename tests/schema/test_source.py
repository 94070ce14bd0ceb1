"""Reading: what a person wrote becomes data with positions, whatever the text does."""

from itertools import pairwise

import pytest

from fleet.errors import FileUnreadable
from fleet.schema.findings import Finding
from fleet.schema.source import Document, read_document
from tests.fakes.files import FakeFiles


def read(text: str | bytes, **others: str) -> Document:
    files = {name.replace("__", "/") + ".yaml": content for name, content in others.items()}
    return read_document("fleet.yaml", FakeFiles({"fleet.yaml": text, **files}))


def told(document: Document) -> list[str]:
    return [f"{found.span}: {found.rule}" for found in map(document.locate, document.findings)]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("null", None),
        ("~", None),
        ("", None),
        ("true", True),
        ("false", False),
        ("12", 12),
        ("-3", -3),
        ("0.92", 0.92),
        ("20.0", 20),
        ("yes", "yes"),
        ("off", "off"),
        ("2026-11-21", "2026-11-21"),
        ("10:30", "10:30"),
        ("010", "010"),
        ("0o17", "0o17"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("1e3", "1e3"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("12345678901234567890", 12345678901234567890),
    ],
)
def test_unquoted_values_are_text_except_numbers_and_booleans(written: str, value: object) -> None:
    document = read(f"key: {written}\n")

    assert document.value == {"key": value}
    assert type(document.value["key"]) is type(value)


@pytest.mark.parametrize("written", [".nan", ".inf", "-.INF", "1.0e999"])
def test_infinite_number_is_refused(written: str) -> None:
    document = read(f"key: {written}\n")

    assert told(document) == ["fleet.yaml:1:6: invalid-yaml"]


def test_every_value_and_key_has_its_position() -> None:
    document = read("pools:\n  a: {workers: {max: 3}}\n")

    assert document.place(("pools", "a", "workers", "max")) == "fleet.yaml:2:22"
    assert document.place(("pools", "a", "workers", "max"), "key") == "fleet.yaml:2:17"
    assert document.span(("pools", "a", "workers")).end_column == 24


def test_unwritten_key_has_place_of_its_parent() -> None:
    document = read("pools:\n  a: {image: x}\n")

    assert document.place(("pools", "a", "workers", "max")) == "fleet.yaml:2:6"
    assert document.place(("nowhere",)) == "fleet.yaml:1:1"


def test_block_is_marked_at_its_key() -> None:
    document = read("pools:\n  a:\n    image: x\n")

    assert document.place(("pools", "a")) == "fleet.yaml:2:3"


def test_alias_is_marked_at_its_anchor() -> None:
    document = read("one: &a [x]\ntwo: *a\n")

    assert document.value == {"one": ["x"], "two": ["x"]}
    assert document.place(("two", 0)) == "fleet.yaml:1:10"


def test_wide_characters_and_a_byte_order_mark_do_not_shift_columns() -> None:
    document = read("\ufeff日本: {a: 1}\n")

    assert document.place(("日本", "a")) == "fleet.yaml:1:9"


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_break_is_counted(line_break: str) -> None:
    document = read(f"a: 1{line_break}b: 2{line_break}")

    assert document.place(("b",)) == "fleet.yaml:2:4"
    assert document.line("fleet.yaml", 2) == "b: 2"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"a: caf\xe9\n", "fleet.yaml:1:7"),
        (b"fleet: x\n\x00", "fleet.yaml:2:1"),
        (b"\x7fELF\x02", "fleet.yaml:1:1"),
        ("a: \x1b[31m", "fleet.yaml:1:4"),
    ],
)
def test_binary_file_is_refused_with_place(text: str | bytes, place: str) -> None:
    document = read(text)

    assert document.value is None
    assert told(document) == [f"{place}: not-text"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\ufeff"])
def test_empty_file_is_reported(text: str) -> None:
    document = read(text)

    assert document.value is None
    assert {found.rule for found in document.findings} <= {"empty-file", "wrong-type"}
    assert document.findings != ()


@pytest.mark.parametrize("opener", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_before_construction(opener: str) -> None:
    document = read(opener * 100_000)

    assert [found.rule for found in document.findings] == ["too-complex"]


def test_deep_nesting_through_aliases_is_refused() -> None:
    levels = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60)]

    document = read("\n".join(levels))

    assert [found.rule for found in document.findings] == ["too-complex"]


def test_alias_bomb_is_refused() -> None:
    levels = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    names = "abcdefghij"
    levels += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in pairwise(names)]

    document = read("\n".join(levels))

    assert [found.rule for found in document.findings] == ["too-complex"]


def test_alias_cannot_contain_itself() -> None:
    document = read("a: &a [*a]\n")

    assert told(document) == ["fleet.yaml:1:8: invalid-yaml"]


def test_duplicate_key_is_reported_and_first_value_kept() -> None:
    document = read("a: 1\na: 2\n")

    assert document.value == {"a": 1}
    assert told(document) == ["fleet.yaml:2:1: duplicate-key"]


@pytest.mark.parametrize("key", ["1", "true", "~", "[a]", "{a: b}", "<<"])
def test_non_text_key_is_refused(key: str) -> None:
    document = read(f"? {key}\n: value\nother: 1\n")

    assert document.value == {"other": 1}
    assert told(document) == ["fleet.yaml:1:3: invalid-yaml"]


def test_top_level_list_is_refused() -> None:
    document = read("- a\n")

    assert document.value is None
    assert told(document) == ["fleet.yaml:1:1: wrong-type"]


def test_included_mappings_merge_and_lists_append() -> None:
    document = read(
        "include: [d/*.yaml]\npools: {a: 1}\npowerful: [x]\n",
        d__one="pools: {b: 2}\npowerful: [y]\n",
        d__two="budgets: {c: 3}\npowerful: [z]\n",
    )

    assert document.findings == ()
    assert document.value == {
        "include": ["d/*.yaml"],
        "pools": {"a": 1, "b": 2},
        "powerful": ["x", "y", "z"],
        "budgets": {"c": 3},
    }


def test_positions_name_the_included_file() -> None:
    document = read("include: [d/*.yaml]\npools: {a: 1}\n", d__one="\npools:\n  b: 2\n")

    assert document.place(("pools", "b")) == "d/one.yaml:3:6"
    assert document.place(("pools", "a")) == "fleet.yaml:2:12"
    assert document.line("d/one.yaml", 3) == "  b: 2"


def test_empty_section_is_merged_with_include() -> None:
    document = read("include: [d/*.yaml]\npools:\n", d__one="pools: {b: 2}\n", d__two="pools:\n")

    assert document.findings == ()
    assert document.value == {"include": ["d/*.yaml"], "pools": {"b": 2}}


def test_duplicate_key_across_files_names_both_places() -> None:
    document = read("include: [d/*.yaml]\npools: {a: 1}\n", d__one="pools: {a: 2}\n")

    (finding,) = document.findings
    assert (finding.rule, str(finding.span)) == ("duplicate-key", "d/one.yaml:1:9")
    assert "fleet.yaml:2:9" in finding.message


def test_sections_of_different_types_cannot_merge() -> None:
    document = read("include: [d/*.yaml]\ncadence: 10m\n", d__one="cadence: 5m\n")

    assert told(document) == ["d/one.yaml:1:1: duplicate-key"]


@pytest.mark.parametrize("key", ["include: [d/*.yaml]", "fleet: other", "state: {}"])
def test_included_file_cannot_set_fleet_or_include(key: str) -> None:
    document = read("include: [d/*.yaml]\n", d__one=f"{key}\n")

    assert told(document) == ["d/one.yaml:1:1: invalid-include"]


@pytest.mark.parametrize("pattern", ["/etc/*", "../*.yaml", "d/../../*", "*.yaml", "no/*"])
def test_include_pattern_outside_folder_or_without_file_is_refused(pattern: str) -> None:
    document = read(f'include: ["{pattern}"]\n')

    assert told(document) == ["fleet.yaml:1:11: invalid-include"]


def test_file_matched_by_two_patterns_is_read_once() -> None:
    document = read('include: ["d/*.yaml", "d/one.yaml"]\n', d__one="pools: {a: 1}\n")

    assert document.findings == ()
    assert document.files == ("fleet.yaml", "d/one.yaml")


def test_include_patterns_are_relative_to_main_file() -> None:
    files = FakeFiles({"conf/fleet.yaml": "include: [d/*]\n", "conf/d/a": "pools: {a: 1}\n"})

    document = read_document("conf/fleet.yaml", files)

    assert document.findings == ()
    assert document.files == ("conf/fleet.yaml", "conf/d/a")


def test_error_in_included_file_has_its_place() -> None:
    document = read("include: [d/*.yaml]\n", d__one="pools: [\n", d__two="- a\n")

    assert told(document) == ["d/one.yaml:1:9: invalid-yaml", "d/two.yaml:1:1: wrong-type"]


def test_size_limit_counts_all_files_together() -> None:
    document = read("include: [d/*.yaml]\n", d__one="#" * 4_000_000, d__two="#" * 1_500_000)

    assert told(document) == ["d/two.yaml:1:1: unreadable-file"]


def test_located_finding_keeps_other_fields() -> None:
    document = read("pools: {a: 1}\n")

    found = document.locate(Finding("some-rule", "text", ("pools", "a"), hint="hint"))

    assert str(found.span) == "fleet.yaml:1:12"
    assert (found.rule, found.message, found.hint) == ("some-rule", "text", "hint")


def test_included_file_may_be_empty() -> None:
    document = read("include: [d/*.yaml]\n", d__one="# nothing yet\n")

    assert document.findings == ()


def thousands(count: int) -> str:
    """Return a list with so many thousand values in it, quickly read by its aliases."""
    return "[&thousand [" + ", ".join("x" * 999) + "]" + ", *thousand" * (count - 1) + "]"


@pytest.mark.slow
def test_values_of_all_files_are_limited_together() -> None:
    many = thousands(150)

    document = read("include: [d/*.yaml]\n", d__one=f"a: {many}", d__two=f"b: {many}")

    assert told(document) == ["d/two.yaml:1:1: too-complex"]


def test_too_long_list_is_refused() -> None:
    assert told(read(f"a: {thousands(199)}")) == []
    assert told(read(f"a: {thousands(200)}")) == ["fleet.yaml:1:4: too-complex"]


def test_include_of_wrong_type_is_left_to_schema() -> None:
    document = read("include: [3, '', {a: b}]\n")

    assert document.findings == ()


def test_include_pattern_outside_project_is_reported() -> None:
    class Refusing(FakeFiles):
        def glob(self, pattern: str) -> tuple[str, ...]:
            raise FileUnreadable(f"{pattern}: leads out of the project")

    document = read_document("fleet.yaml", Refusing({"fleet.yaml": "include: [d/*]\n"}))

    (finding,) = document.findings
    assert finding.rule == "invalid-include"
    assert "d/*" in finding.message


def test_missing_line_is_not_shown() -> None:
    document = read("a: 1\n")

    assert document.line("fleet.yaml", 0) is None
    assert document.line("fleet.yaml", 3) is None
    assert document.line("other.yaml", 1) is None


@pytest.mark.parametrize("written", ["!!map {}", "!x [a]", "!!str a", "!y\n  b: 1"])
def test_yaml_tag_is_refused_in_every_position(written: str) -> None:
    document = read(f"a: {written}\n")

    assert told(document) == ["fleet.yaml:1:4: invalid-yaml"]
