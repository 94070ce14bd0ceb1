"""This module holds how a comparison of two plans reads, and that its JSON loses nothing."""

from decimal import Decimal

from fleet.explain.changes import (
    ActionsChange,
    Changes,
    ComparedPlan,
    ConfigChange,
    Difference,
    GuardChange,
    OutdatedChange,
    PoolChange,
    RequestsChange,
    Rest,
)
from fleet.model.facts import Unknown
from fleet.model.plan import Plan, Reason
from fleet.report.json import plan_to_json, value_to_json
from fleet.report.plan_markdown import plan_to_markdown
from fleet.report.plan_text import plan_to_text
from tests.builders import a_plan

TEXT = """\
Because of this change, while replacing: +0.1554 EUR/h (0.2331 without it, 0.3885 with it)
  at rest: +0.0777 EUR/h, about +57 EUR per month (170 without it, 227 with it)
  pool builders
    * max 3 -> 8; machine type ccx23 -> ccx33
    * workers.spare 1 -> 2
    ~ 2 machines outdated, replaced in turn: debian-ci-builders-0001, debian-ci-builders-0002
    + 2 more to create, 5 instead of 3, ccx33, +0.1554 EUR/h
        request debian/16 waits and no free worker fits it [requests-wait]
  pool old
    * is removed
    ~ 2 more to drain, kept back by a guard, debian-ci-old-0001, debian-ci-old-0002
        its pool is no longer in fleet.yaml [pool-removed]
  queue debian
    + 2 requests served: debian/16, debian/17
        pool builders makes machines for them
    ! 1 request not served any more: debian/3
        no pool fits; see pools.builders.provides in fleet.yaml
  guard of pool old
    ! newly refuses
        2 of 2 would go; limit: guards.refuse.delete in fleet.yaml; way out: raise it [delete]
  needs a person
    ! debian-ci-builders-0009: it costs money
  ? queue old is only in the base and was not read
Below is the whole plan: also what is due without this change.
"""
MARKDOWN = """\
#### Because of this change, while replacing: +0.1554 EUR/h (0.2331 without it, 0.3885 with it)

**at rest: +0.0777 EUR/h, about +57 EUR per month (170 without it, 227 with it)**

| Where | What this change does | Why |
| --- | --- | --- |
| pool `builders` | max 3 → 8; machine type ccx23 → ccx33 |  |
| pool `builders` | workers.spare 1 → 2 |  |
| pool `builders` | 2 machines outdated, replaced in turn: debian-ci-builders-0001, \
debian-ci-builders-0002 |  |
| pool `builders` | 2 more to create, 5 instead of 3, ccx33, `+0.1554` EUR/h | request debian/16 \
waits and no free worker fits it (`requests-wait`) |
| pool `old` | is removed |  |
| pool `old` | 2 more to drain, kept back by a guard, debian-ci-old-0001, debian-ci-old-0002 | \
its pool is no longer in fleet.yaml (`pool-removed`) |
| queue `debian` | 2 requests served: debian/16, debian/17 | pool builders makes machines for \
them |
| queue `debian` | 1 request not served any more: debian/3 | no pool fits; see \
pools.builders.provides in fleet.yaml |
| guard of pool `old` | newly refuses | 2 of 2 would go; limit: guards.refuse.delete in \
fleet.yaml; way out: raise it (`delete`) |
| needs a person | debian-ci-builders-0009: it costs money |  |

- queue old is only in the base and was not read

Below is the whole plan: also what is due without this change.
"""
QUIET = "The change makes no difference to machines now"


AFTER = Rest(hour=Decimal("0.3108"), month=Decimal("226.884"))


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


POOLS = (
    PoolChange(
        pool="builders",
        change="changed",
        differences=(
            Difference(key="max", before="3", after="8"),
            Difference(key="type", before="ccx23", after="ccx33"),
        ),
    ),
    PoolChange(pool="old", change="removed"),
)
CREATES = ActionsChange(
    pool="builders",
    action="create",
    reason=Reason.REQUESTS_WAIT,
    withheld=False,
    type="ccx33",
    image="trixie",
    before=3,
    after=5,
    cost=Decimal("0.1554"),
    because="request debian/16 waits and no free worker fits it",
)
OUTDATES = OutdatedChange(
    pool="builders", outdated=True, workers=("debian-ci-builders-0001", "debian-ci-builders-0002")
)
SPARE = ConfigChange(path=("pools", "builders", "workers", "spare"), before="1", after="2")
DRAINS = ActionsChange(
    pool="old",
    action="drain",
    reason=Reason.POOL_REMOVED,
    withheld=True,
    before=0,
    after=2,
    cost=Decimal(0),
    workers=("debian-ci-old-0001", "debian-ci-old-0002"),
    because="its pool is no longer in fleet.yaml",
)
REQUESTS = (
    RequestsChange(
        served=True,
        queue="debian",
        requests=("debian/16", "debian/17"),
        because="pool builders makes machines for them",
    ),
    RequestsChange(
        served=False,
        queue="debian",
        requests=("debian/3",),
        because="no pool fits",
        path=("pools", "builders", "provides"),
    ),
)
REFUSES = GuardChange(
    guard="delete",
    pool="old",
    before="passed",
    after="refused",
    because="2 of 2 would go",
    path=("guards", "refuse", "delete"),
    way_out="raise it",
)


def a_telling_change() -> Changes:
    """Return a change that has something to say of everything."""
    return a_change(
        cost_after=Decimal("0.3885"),
        rest_after=AFTER,
        pools=POOLS,
        actions=(CREATES, DRAINS),
        outdated=(OUTDATES,),
        config=(SPARE,),
        requests=REQUESTS,
        guards=(REFUSES,),
        attention=("debian-ci-builders-0009: it costs money",),
        unknown=("queue old is only in the base and was not read",),
    )


def in_text(change: Changes | Unknown) -> str:
    """Return the section of the text that is about the change."""
    return plan_to_text(a_plan(), colour=False, change=change).split("\n\n")[1] + "\n"


def headline(**overrides: object) -> str:
    return in_text(a_change(**overrides)).splitlines()[0]


def test_a_change_reads_well_in_a_terminal() -> None:
    assert in_text(a_telling_change()) == TEXT


def test_a_change_reads_well_in_a_merge_request_between_headline_and_plan() -> None:
    plan = plan_to_markdown(a_plan())

    compared = plan_to_markdown(a_plan(), a_telling_change())

    head, section, rest = compared.partition(MARKDOWN)
    assert section
    assert head + rest.removeprefix("\n") == plan


def test_without_a_base_nothing_is_said_of_a_change() -> None:
    assert "change:" not in plan_to_text(a_plan(), colour=False)
    assert "#### " not in plan_to_markdown(a_plan())


def test_a_change_without_effect_says_so() -> None:
    assert headline() == QUIET


def test_a_change_without_effect_has_no_table() -> None:
    at_rest = "**at rest: no difference (0.2331 EUR/h)**"
    assert f"#### {QUIET}\n\n{at_rest}\n\nBelow is" in plan_to_markdown(a_plan(), a_change())


def test_a_change_of_comments_says_so() -> None:
    assert headline(same_config=True) == f"{QUIET}: only comments or order differ"


def test_a_change_without_effect_says_when_not_all_is_known() -> None:
    assert headline(unknown=("queue old was not read",)) == f"{QUIET}, as far as is known"


def test_a_change_that_saves_money_says_how_much() -> None:
    first = headline(cost_after=Decimal("0.1554"))

    assert first == "Because of this change: -0.0777 EUR/h (0.2331 without it, 0.1554 with it)"


def test_a_change_that_costs_nothing_says_so() -> None:
    first = headline(attention=("look",))

    assert first == "Because of this change: 0.2331 EUR/h with it and without it"


def test_money_in_two_currencies_is_shown_side_by_side() -> None:
    first = headline(currency="USD")

    assert first == "Because of this change: 0.2331 EUR/h -> 0.2331 USD/h"


def test_fewer_actions_are_counted_from_both_sides() -> None:
    fewer = CREATES.model_copy(update={"before": 5, "after": 3, "cost": Decimal("-0.1554")})

    assert "    * 2 fewer to create, 3 instead of 5, ccx33, -0.1554 EUR/h\n" in in_text(
        a_change(actions=(fewer,))
    )


def test_machines_that_are_no_longer_outdated_are_said() -> None:
    back = OUTDATES.model_copy(update={"outdated": False})

    assert (
        "  pool builders\n"
        "    * 2 machines no longer outdated: debian-ci-builders-0001, debian-ci-builders-0002\n"
    ) in in_text(a_change(outdated=(back,)))


def test_a_guard_that_falls_silent_is_said() -> None:
    guard = GuardChange(
        guard="delete", pool=None, before="refused", after="passed", because="2 of 2 would go"
    )

    assert "  guard of the whole fleet\n    ! no longer refuses\n" in in_text(
        a_change(guards=(guard,))
    )


def test_a_long_comparison_is_cut_with_its_count() -> None:
    pools = tuple(PoolChange(pool=f"p{n:03}", change="added") for n in range(45))

    text = in_text(a_change(pools=pools))
    markdown = plan_to_markdown(a_plan(), a_change(pools=pools))

    assert "  … and 5 more, all in the JSON\n" in text
    assert "| … and 5 more, all in the JSON |  |  |" in markdown


def test_what_could_not_be_compared_is_said_in_every_form() -> None:
    reason = Unknown(unknown="base.yaml: cannot be read: there is no such file or directory")

    assert in_text(reason).splitlines()[:2] == [
        "What this change does is not known",
        f"  ? {reason.unknown}",
    ]
    assert "#### What this change does is not known\n\n- base.yaml: cannot" in plan_to_markdown(
        a_plan(), reason
    )


def test_a_compared_plan_survives_json() -> None:
    text = plan_to_json(a_plan(), a_telling_change())

    back = ComparedPlan.model_validate_json(text)

    assert back.change == a_telling_change()
    assert value_to_json(back) == text


def test_without_a_base_the_json_is_the_plan_alone() -> None:
    assert Plan.model_validate_json(plan_to_json(a_plan())) == a_plan()


def test_no_name_in_a_comparison_acts_in_a_merge_request() -> None:
    hostile = "@all #1 | <b>"

    markdown = plan_to_markdown(
        a_plan(), a_change(pools=(PoolChange(pool=hostile, change="added"),))
    )

    assert "| pool `@all #1 \N{DIVIDES} <b>` | is added |  |" in markdown


def test_other_keys_that_a_change_edits_are_named_in_both_surfaces() -> None:
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
    assert "    * durations.any: 40m is new\n" in text
    assert "    * powerful[0]: `{match: a}` is gone\n" in text
    assert "| fleet.yaml | `budgets.x.per_day`: 4 EUR → 5 EUR |  |" in markdown
    assert "| fleet.yaml | `powerful[0]`: `{match: a}` is gone |  |" in markdown


def test_what_a_change_costs_at_rest_is_not_known_where_a_price_is_not() -> None:
    text = in_text(a_change(rest_after=None))

    assert "  at rest: not known: a price is not known, or the currency changes\n" in text


def test_lists_and_maps_of_a_rule_are_one_piece_of_code_in_a_merge_request() -> None:
    rule = '{match: "a/.*", ask: ["x", "y"], reason: "24 h builds"}'
    edit = ConfigChange(path=("powerful", 0), before="", after=rule)
    allowed = ConfigChange(path=("guards", "x"), before='["a", "b c"]', after='["a"]')

    markdown = plan_to_markdown(a_plan(), a_change(config=(edit, allowed)))

    assert f"| fleet.yaml | `powerful[0]`: `{rule}` is new |  |" in markdown
    assert '| fleet.yaml | guards.x: `["a", "b c"]` → `["a"]` |  |' in markdown
