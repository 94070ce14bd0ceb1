"""How a comparison of two plans reads, and that its JSON loses nothing."""

import re
from decimal import Decimal
from pathlib import Path
from typing import get_args

import yaml

from fleet.explain.changes import Changes, GuardChange, PoolChange, Rest
from fleet.explain.costs import MovedBuilds
from fleet.explain.edits import ConfigChange
from fleet.explain.sensitive import Kind
from fleet.model.facts import Unknown
from fleet.planner.forecast import ExpectedWaits
from fleet.report.plan import plan_to_markdown
from fleet.words import figures as words
from tests.builders import a_plan
from tests.builders.sentences import tells
from tests.report.conftest import Golden
from tests.rigs.shown import plan_to_text

TELLING = Changes.model_validate(
    yaml.safe_load((Path(__file__).parent / "telling_change.yaml").read_text("utf-8"))
)
CREATES, OUTDATES, VERDICT = TELLING.actions[0], TELLING.outdated[0], TELLING.verdict
SENSITIVE, BUILDS, ONE_MOMENT = TELLING.sensitive, TELLING.builds, TELLING.allow_list[0]


def a_change(**overrides: object) -> Changes:
    """Return a change that makes no difference."""
    defaults = {
        "base": "b" * 64,
        "same_config": False,
        "cost_before": Decimal("0.2331"),
        "currency_before": "EUR",
        "cost_after": Decimal("0.2331"),
        "currency": "EUR",
        "rest_before": Rest(hour=Decimal("0.2331"), month=Decimal("170.163")),
        "rest_after": Rest(hour=Decimal("0.2331"), month=Decimal("170.163")),
    }
    return Changes.model_validate(defaults | overrides)


def a_telling_change() -> Changes:
    """Return a change that has something to say of everything."""
    return TELLING


def in_text(change: Changes | Unknown) -> str:
    """Return the sections of the text that are about the change."""
    text = plan_to_text(a_plan(), colour=False, change=change)
    return text.partition("\n\n")[2].partition(f"\n\n{words.WHOLE}")[0] + "\n"


def headline(**overrides: object) -> str:
    return in_text(a_change(**overrides)).splitlines()[0]


def test_comparison_in_terminal_matches_golden_file(golden: Golden) -> None:
    golden("change.txt", in_text(a_telling_change()))


def test_comparison_in_merge_request_matches_golden_file(golden: Golden) -> None:
    golden("change.md", plan_to_markdown(a_plan(), a_telling_change()))


def test_every_kind_of_sensitive_edit_is_in_the_golden_files() -> None:
    assert {each.kind for each in SENSITIVE} == set(get_args(Kind))


def test_headline_reports_unknown_machines_and_requests() -> None:
    nothing = {
        "create": 0,
        "delete": 0,
        "gained": 0,
        "lost": 0,
        "builds": MovedBuilds(),
        "cost_known": False,
    }
    unread = {"machines_known": False, "requests_known": False, "waits_before": ExpectedWaits()}
    assert VERDICT is not None
    verdict = VERDICT.altered(**nothing | unread, waits_after=ExpectedWaits())

    first, *others = in_text(a_change(verdict=verdict)).splitlines()

    assert "unknown" in first
    assert " ".join(others[:3]).count("unknown") == 4


def test_change_without_effect_has_a_separate_headline(golden: Golden) -> None:
    headlines = [
        headline(),
        headline(same_config=True),
        headline(unknown=("queue old was not read",)),
    ]

    golden("change-without-effect.txt", "\n".join(headlines) + "\n")
    assert len(set(headlines)) == 3


def test_change_without_cost_is_reported() -> None:
    first = headline(attention=("look",))

    assert re.findall(r"[\d.]+ EUR/h", first) == ["0.2331 EUR/h"]


def test_money_in_two_currencies_is_shown_side_by_side() -> None:
    first = headline(currency="USD")

    assert first.endswith("0.2331 EUR/h -> 0.2331 USD/h")


def test_machines_no_longer_outdated_are_listed() -> None:
    back = OUTDATES.altered(outdated=False)

    before, pool, after = in_text(a_change(outdated=(back,))).partition("  pool builders\n")

    names = ("debian-ci-builders-0001", "debian-ci-builders-0002")
    assert pool
    assert tells(after.splitlines()[0], "    * ", "2", "no longer", *names)
    assert not tells(before, names[0])


def test_comparison_reports_guard_that_stops_refusing() -> None:
    guard = GuardChange(
        guard="delete", pool=None, before="refused", after="passed", because="2 of 2 would go"
    )

    lines = in_text(a_change(guards=(guard,))).splitlines()

    (place,) = [number for number, line in enumerate(lines) if line.startswith("    ! ")]
    assert tells(lines[place - 1], "guard", "whole fleet")
    assert tells(lines[place], "no longer")


def test_long_comparison_is_truncated_with_count() -> None:
    pools = tuple(PoolChange(pool=f"p{n:03}", change="added") for n in range(45))

    text = in_text(a_change(pools=pools))
    markdown = plan_to_markdown(a_plan(), a_change(pools=pools))

    assert tells(text, "…", "5", "JSON")
    assert markdown.index("<details>") < markdown.index("p044") < markdown.index("</details>")


def test_sensitive_edits_beyond_a_screen_are_counted_and_in_markdown() -> None:
    edits = [SENSITIVE[1].altered(path=("providers", f"p{n}", "new")) for n in range(45)]

    text = in_text(a_change(sensitive=edits))
    markdown = plan_to_markdown(a_plan(), a_change(sensitive=edits))

    assert "p39.new" in text
    assert "p40.new" not in text
    assert tells(text, "  … ", "5 more", "JSON")
    assert re.findall(r"providers\.p(\d+)\.new", markdown) == [str(n) for n in range(45)]


def test_builds_beyond_a_report_are_counted_in_every_form() -> None:
    builds = [BUILDS[0].altered(name=f"build{n}") for n in range(30)]

    assert tells(in_text(a_change(builds=builds)), "… and 20 more", "JSON")
    assert tells(plan_to_markdown(a_plan(), a_change(builds=builds)), "… and 20 more", "JSON")


def test_uncomparable_base_is_reported_in_each_form() -> None:
    reason = Unknown(unknown="base.yaml: cannot be read: there is no such file or directory")

    assert in_text(reason).splitlines()[1] == f"  ? {reason.unknown}"
    assert "\n\n- base.yaml: cannot" in plan_to_markdown(a_plan(), reason)


def test_names_in_comparison_are_escaped_in_merge_request() -> None:
    hostile = "@all #1 | <b>"

    edit = SENSITIVE[2].altered(after=hostile, packages={hostile: 1})
    people = {"match": hostile, "ask": (hostile,), "owners": {hostile: 1}}
    people |= {"packages": {hostile: 2}, "added_packages": {hostile: 2}}
    markdown = plan_to_markdown(
        a_plan(),
        a_change(
            pools=(PoolChange(pool=hostile, change="added"),),
            sensitive=(edit,),
            allow_list=(ONE_MOMENT.altered(**people),),
        ),
    )

    assert tells(markdown, "| pool `@all #1 \N{DIVIDES} <b>` |", "added |")
    outside = re.sub(r"`[^`]*`", "", markdown)
    assert [word for word in ("@all", "#1", "<b>") if word in outside] == []


def test_other_edited_keys_are_named_in_text_and_markdown() -> None:
    change = a_change(
        config=(
            ConfigChange(path=("budgets", "x", "per_day"), before="4 EUR", after="5 EUR"),
            ConfigChange(path=("durations", "any"), before="", after="40m"),
            ConfigChange(path=("powerful", 0), before="{match: a}", after=""),
        )
    )

    text = plan_to_text(a_plan(), colour=False, change=change)
    markdown = plan_to_markdown(a_plan(), change)

    assert "    * budgets.x.per_day: 4 EUR -> 5 EUR\n" in text
    assert "    * durations.any: 40m added\n" in text
    assert "    * powerful[0]: `{match: a}` removed\n" in text
    assert "| fleet.yaml | `budgets.x.per_day`: 4 EUR → 5 EUR |" in markdown
    assert "| fleet.yaml | `powerful[0]`: `{match: a}` removed |" in markdown


def test_lists_and_maps_of_a_rule_are_one_code_span() -> None:
    rule = '{match: "a/.*", ask: ["x", "y"], reason: "24 h builds"}'
    edit = ConfigChange(path=("powerful", 0), before="", after=rule)
    allowed = ConfigChange(path=("guards", "x"), before='["a", "b c"]', after='["a"]')

    markdown = plan_to_markdown(a_plan(), a_change(config=(edit, allowed)))

    assert f"| fleet.yaml | `powerful[0]`: `{rule}` added |" in markdown
    assert '| fleet.yaml | guards.x: `["a", "b c"]` → `["a"]` |' in markdown
