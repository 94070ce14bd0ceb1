"""Time and money side by side, unasked: Chromium's 26-hour build, which no rule allow-lists."""

import re
from decimal import Decimal
from typing import Any

import pytest

from tests.rigs.process import ROOT
from tests.walks.walking import Walk

CHROMIUM, LIBREOFFICE = "debian/101", "debian/103"
RULE = 'debian/builds/amd64/(chromium|libreoffice)"'


@pytest.fixture
def rich(walk: Walk) -> Walk:
    """Return the fleet of a distribution; its rule is about libreoffice alone."""
    text = (ROOT / "fleet.yaml").read_text(encoding="utf-8")
    assert RULE in text
    text = text.replace(RULE, 'debian/builds/amd64/libreoffice"')
    text = text.replace("takes: 24h, machine: ccx63", "takes: 26h, machine: ccx33")
    (walk.project / "fleet.yaml").write_text(text, encoding="utf-8")
    (walk.project / "world.json").write_bytes((ROOT / "world.json").read_bytes())
    walk.run("fleet state init")
    return walk


def places(walk: Walk, request: str) -> dict[str, dict[str, Any]]:
    answer = walk.json(f"fleet explain request {request} --json")
    return {each["pool"]: each for each in answer["places"]}


def test_build_shows_where_an_allow_list_rule_would_place_it(rich: Walk) -> None:
    found = places(rich, CHROMIUM)

    here, powerful = found["builders"], found["powerful"]
    assert (here["asks"], here["seconds"]) == ([], 26 * 3600)
    assert powerful["asks"] == ["extra_powerful"]
    assert powerful["seconds"] < here["seconds"]
    assert float(powerful["cost"]) > float(here["cost"])
    assert "debian/builds/amd64/chromium" in powerful["rule"]
    said = rich.run("fleet explain request 101")
    assert powerful["rule"] in re.sub(r"\s+", " ", said)


def test_named_rule_places_the_build_at_the_shown_cost(rich: Walk) -> None:
    before = places(rich, CHROMIUM)
    path = rich.project / "fleet.yaml"
    text = path.read_text(encoding="utf-8")
    (rich.project / "base.yaml").write_text(text, encoding="utf-8")
    text = text.replace("  - match:", f"  - {before['powerful']['rule']}\n  - match:", 1)
    path.write_text(text, encoding="utf-8")

    after = places(rich, CHROMIUM)
    plan = rich.json("fleet plan --base base.yaml --json")

    assert set(after) == {"powerful"}
    assert after["powerful"]["cost"] == before["powerful"]["cost"]
    (made,) = [each for each in plan["actions"] if CHROMIUM in each.get("serves", ())]
    assert (made["pool"], made["until_idle"]) == ("powerful", after["powerful"]["cost"])
    (chromium,) = [each for each in plan["change"]["builds"] if each["is_moved"]]
    costs = [{p["pool"]: p["cost"] for p in chromium[when]} for when in ("before", "after")]
    assert [each["powerful"] for each in costs] == [made["until_idle"]] * 2
    assert costs[0]["builders"] == before["builders"]["cost"]
    (reach,) = plan["change"]["allow_list"]
    both = Decimal(made["until_idle"]), Decimal(before["builders"]["cost"])
    assert (Decimal(reach["cost"]), Decimal(reach["cost_before"])) == tuple(2 * n for n in both)
    moved = plan["change"]["verdict"]["builds"]
    assert (moved["count"], Decimal(moved["after"]["cost"])) == (2, 2 * both[0])
    assert plan["change"]["rest_before"] == plan["change"]["rest_after"]


def test_every_page_of_a_waiting_build_shows_the_same_places(rich: Walk) -> None:
    found = places(rich, CHROMIUM)
    rich.run("fleet status --site public")

    (page,) = (rich.project / "public").glob("-/status/requests/**/*101*/index.html")
    text = page.read_text(encoding="utf-8")
    for each in found.values():
        assert f"{float(each['cost']):.2f} EUR" in text
    assert "debian/builds/amd64/chromium" in text


def test_all_waiting_builds_show_their_places_and_rules_in_text(rich: Walk) -> None:
    found = places(rich, CHROMIUM)

    said = " ".join(rich.run("fleet explain request --all").split())

    (powerful,) = [each for each in found.values() if each["asks"]]
    assert f"about {float(powerful['cost']):.2f} EUR" in said
    assert f"add {powerful['rule']} to `powerful`" in said
