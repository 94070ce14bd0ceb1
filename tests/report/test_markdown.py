"""How a plan reads in a merge request, and that no value acts there."""

import re

import pytest

from fleet.model.plan import Release
from fleet.report.document import (
    Column,
    ColumnKind,
    Items,
    Section,
    Style,
    StyledText,
    Table,
    line,
    row,
)
from fleet.report.markdown import code, document_to_markdown, sentence
from fleet.report.plan import plan_to_markdown
from tests.builders import a_create, a_delete, a_plan
from tests.builders.sentences import tells
from tests.builders.telling import a_telling_plan
from tests.report.conftest import Golden


def test_plan_has_a_table_per_kind(golden: Golden) -> None:
    golden("plan.md", plan_to_markdown(a_telling_plan()))


def test_quiet_plan_is_only_a_headline(golden: Golden) -> None:
    golden("plan-quiet.md", plan_to_markdown(a_plan()))


def test_workers_without_machine_have_a_separate_table() -> None:
    gone = Release(
        pool="builders",
        worker="debian-ci-builders-0001",
        registry="debian",
        because="its machine is gone: request 90 goes back to the queue",
    )

    text = plan_to_markdown(a_plan(releases=(gone,)))

    assert "1 to release" in text.splitlines()[0]
    assert "| release debian-ci-builders-0001 | `builders` | its machine is gone: request" in text


def test_very_long_table_has_rows_of_each_pool_and_kind() -> None:
    creates = [a_create(worker=f"w{number}") for number in range(800)]
    deletes = [a_delete(pool="big", worker=f"x{number}") for number in range(8)]

    text = plan_to_markdown(a_plan(actions=[*creates, *deletes]))

    assert [name for name in ("w0", "w496", "w497", "x0", "x2", "x3") if f"`{name}`" in text] == [
        *("w0", "w496", "x0", "x2")
    ]
    assert tells(text, "| … ", "308", "JSON")


def test_long_list_of_notices_is_folded_and_complete() -> None:
    text = plan_to_markdown(
        a_plan(unknown=[f"queue q{number}: no reply" for number in range(400)])
    )

    assert re.findall(r"- queue (q\d+):", text) == [f"q{number}" for number in range(400)]
    assert "<details><summary>Unknown" in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain-1", "`plain-1`"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        ("a|b", "`a\u2223b`"),
        ("a\\|b", "`a\\\u2223b`"),
        ("a\n\n# b", "`a\\n\\n# b`"),
        ("<img src=x>", "`<img src=x>`"),
        ("@all #1 !2", "`@all #1 !2`"),
        ("", ""),
        ("  ", ""),
    ],
)
def test_name_is_an_escaped_code_span(name: str, shown: str) -> None:
    assert code(name) == shown


@pytest.mark.parametrize(
    "word",
    [
        "@root",
        "!12",
        "#12",
        "group/project#7",
        "group/project!7",
        "&3",
        "$9",
        "~bug",
        "%1.0",
        "^alert",
        "<b>",
        "[a](b)",
        "![a](b)",
        "*a*",
        "_a_",
        "$`x`$",
        "a|b",
        "\\|",
        "https://example.org/",
        "www.example.org",
        "a@example.org",
        "[[a]]",
        "{+a+}",
        "0123abcdef",
        "KEY-17",
        "--",
        "#",
        "```",
    ],
)
def test_word_with_markdown_meaning_becomes_code(word: str) -> None:
    assert sentence(f"say {word} now") == f"say {code(word)} now"


@pytest.mark.parametrize(
    "text",
    [
        "3 requests wait, and no idle worker fits them",
        "idle for 20 min; 15 min are allowed (30% at most).",
        "the first 5 now - the rest next run",
        "it's paused in fleet.yaml: see pools.builders.workers.max",
        "about +816 EUR per month, -0.1554 EUR/h",
    ],
)
def test_ordinary_sentences_are_unchanged(text: str) -> None:
    assert sentence(text) == text


def test_tag_at_end_of_sentence_is_code_without_full_stop() -> None:
    assert sentence("no pool provides worker:class:big.") == "no pool provides `worker:class:big`."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "the token {env: DEBUSINE_TOKEN} is not set; say so",
            "the token `{env: DEBUSINE_TOKEN}` is not set; say so",
        ),
        (
            "for instance state: {passphrase: {env: FLEET_PASSPHRASE}}.",
            "for instance state: `{passphrase: {env: FLEET_PASSPHRASE}}`.",
        ),
        ("see ({file: a|b})", "see (`{file: a\u2223b}`)"),
        ("run `fleet explain worker w-1`.", "run `fleet explain worker w-1`."),
        ("say `mode: drain`; then", "say `mode: drain`; then"),
        ("a word like `pause` too", "a word like `pause` too"),
        ("no pool (worker:class:big) fits", "no pool (`worker:class:big`) fits"),
        ("it lacks m>=500 (it has m=32)", "it lacks `m>=500` (it has `m=32`)"),
    ],
)
def test_unit_of_text_is_one_code_span(text: str, shown: str) -> None:
    assert sentence(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a {env: b", "a `{env`: b"),
        ("a } b { c", "a `}` b `{` c"),
        ("a `b c", "a `` `b `` c"),
        ("say {a `b} @all", "say ``{a `b}`` `@all`"),
        ("say `a @all", "say `` `a `` `@all`"),
        ("say ``a b``", "say ``` ``a ``` ``` b`` ```"),
        ("(<b>)", "(`<b>`)"),
    ],
)
def test_unclosed_brace_or_mark_affects_no_other_word(text: str, shown: str) -> None:
    assert sentence(text) == shown


@pytest.mark.parametrize(("word", "shown"), [(":smile:", "`:smile`:"), ("&lt;", "`&lt`;")])
def test_punctuation_after_code_is_escaped(word: str, shown: str) -> None:
    assert sentence(word) == shown


def test_sentence_is_one_line() -> None:
    assert sentence("one\n\n# two") == r"`one\n\n#` two"


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("Budgets", "Budgets"),
        ("Tags dropped (`otherwise`)", "Tags dropped (<code>otherwise</code>)"),
        ("pool <b>@all", "pool <code>&lt;b&gt;@all</code>"),
        ("pool </summary>`x", "pool <code>&lt;/summary&gt;`x</code>"),
        ("pool a\n\n/merge", "pool <code>a\\n\\n/merge</code>"),
    ],
)
def test_title_of_folded_section_is_escaped(title: str, shown: str) -> None:
    text = document_to_markdown([Section(title, [Items(["x"] * 16)])])

    assert text.startswith(f"<details><summary>{shown}</summary>\n\n- x\n")


def test_adjacent_code_spans_are_separate() -> None:
    cell = line(StyledText("a", Style.BOLD), "`b|")
    table = Table([Column("Name", ColumnKind.NAME)], [row(cell)])

    assert document_to_markdown([table]).splitlines()[-1] == "| `a` `` `b\u2223 `` |"
