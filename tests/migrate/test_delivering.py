"""What a delivery of rules adds and deletes: the place of a rule in fleet.yaml does not count."""

import re
from datetime import date
from typing import Any

import pytest

from fleet.migrate.export import Delivery
from fleet.schema.model import RefuseDelete
from fleet.tagrules.export import entries_of, entries_path
from tests.builders import a_fleet
from tests.builders.sentences import tells

PLACE = "debian/builds"
LIMIT = RefuseDelete.model_validate({"count": 1, "share": "100%"})


def a_delivery(before: list[str], after: list[str]) -> Delivery:
    """Return the delivery that follows when fleet.yaml allows other packages than before."""
    held, entries = ([*_entries(packages)] for packages in (before, after))
    path = entries_path(a_fleet())
    stored = [{**each, "path": path, "position": n} for n, each in enumerate(held)]
    return Delivery(PLACE, path, stored, entries)


def _entries(packages: list[str]) -> list[dict[str, Any]]:
    rules = [
        {"match": f"debian/builds/amd64/{each}", "ask": ["worker:class:big"]} for each in packages
    ]
    made, _ = entries_of(a_fleet(powerful=rules), date(2026, 11, 21), ("sbuild",))
    return [entry for _, entry in made]


@pytest.mark.parametrize(
    ("after", "counts"),
    [
        (["gcc", "llvm", "webkit"], ("1 added", "0 deleted", "2 comments")),
        (["webkit", "llvm"], ("0 added", "0 deleted", "2 comments")),
        (["webkit"], ("0 added", "1 deleted", "1 comment")),
        (["llvm", "gcc"], ("1 added", "1 deleted")),
        (["llvm", "webkit"], ("0 added", "0 deleted")),
    ],
)
def test_only_the_effects_of_entries_count(after: list[str], counts: tuple[str, ...]) -> None:
    delivery = a_delivery(["llvm", "webkit"], after)

    assert tells(delivery.summary, *counts)
    assert len(re.findall(r"\d+", delivery.summary)) == len(counts)
    assert delivery.refusal(LIMIT, let_pass=0) == ""
    assert delivery.is_empty is (after == ["llvm", "webkit"])


def test_duplicate_entry_is_deleted_once() -> None:
    assert a_delivery(["llvm", "llvm"], ["llvm"]).summary == "0 added, 1 deleted"
