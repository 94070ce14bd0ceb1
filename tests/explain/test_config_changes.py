"""Which keys of fleet.yaml a change edits, beside what a plan says of pools."""

import pytest

from fleet.explain.edits import FleetEdits, find_config_changes
from tests.builders import a_pool, a_sim_fleet
from tests.builders.deciding import fleet_with


def edits(base: dict[str, object], head: dict[str, object]) -> list[tuple[str, str, str]]:
    """Return where two files differ, before and after, as fleet.yaml writes it."""
    found = find_config_changes(FleetEdits(a_sim_fleet(**base), a_sim_fleet(**head)))
    return [(".".join(map(str, each.path)), each.before, each.after) for each in found]


def test_equal_files_have_no_edits() -> None:
    assert edits({}, {}) == []


@pytest.mark.parametrize(
    ("base", "head", "edit"),
    [
        ({"cadence": "10m"}, {"cadence": "5m"}, ("cadence", "10m", "5m")),
        (
            {"budgets": {"x": {"per_day": "4 EUR"}}},
            {"budgets": {"x": {"per_day": "5 EUR"}}},
            ("budgets.x.per_day", "4 EUR", "5 EUR"),
        ),
        ({}, {"durations": {"sbuild": "40m"}}, ("durations.sbuild", "", "40m")),
        ({"durations": {"any": "40m"}}, {}, ("durations.any", "40m", "")),
        (
            {"tags": {"big": {"limits": {"total": 2}}}},
            {"tags": {"big": {"limits": {"total": 3}}}},
            ("tags.big.limits.total", "2", "3"),
        ),
        ({}, {"tags": {"big": {"exclusive": True}}}, ("tags.big", "", "{exclusive: true}")),
        (
            {},
            {"guards": {"refuse": {"delete": {"share": "40%"}}}},
            ("guards.refuse.delete.share", "30%", "40%"),
        ),
    ],
)
def test_edited_key_has_values_before_and_after(
    base: dict[str, object], head: dict[str, object], edit: tuple[str, str, str]
) -> None:
    assert edits(base, head) == [edit]


def test_edited_list_has_added_and_removed_entries() -> None:
    old, kept, new = ({"match": name, "ask": ["big"]} for name in ("old", "kept", "new"))

    assert edits({"powerful": [old, kept]}, {"powerful": [kept, new]}) == [
        ("powerful.0", "{match: old, ask: [big]}", ""),
        ("powerful.1", "", "{match: new, ask: [big]}"),
    ]


def test_long_entry_is_truncated_between_keys() -> None:
    rule = {"match": "a" * 360, "ask": ["big"], "at_most": 4, "reason": "24 h " * 9}

    ((_, _, after),) = edits({}, {"powerful": [rule]})

    assert after == "{match: " + "a" * 360 + ", ask: [big], at_most: 4, …"


def test_long_key_is_truncated_after_its_beginning() -> None:
    ((_, _, after),) = edits({}, {"powerful": [{"match": "a" * 500, "ask": ["big"]}]})

    assert after == "{match:…"


def test_config_changes_omit_keys_shown_by_pool_plans() -> None:
    base = fleet_with(max=3, mode="apply")
    head = base.model_copy(
        update={"pools": fleet_with(max=4, mode="pause").pools | {"new": a_pool(provider="desk")}}
    )

    assert find_config_changes(FleetEdits(base, head)) == ()


def test_other_keys_of_a_pool_are_named() -> None:
    (edit,) = find_config_changes(FleetEdits(fleet_with(spare=1), fleet_with(spare=2)))

    assert (edit.path, edit.before, edit.after) == (
        ("pools", "builders", "workers", "spare"),
        "1",
        "2",
    )
