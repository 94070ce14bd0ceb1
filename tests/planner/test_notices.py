"""Notices: what expires within 30 and 7 days, and what is overdue."""

from datetime import date, timedelta

import pytest

from fleet.guard import guard
from fleet.model.facts import PriceList, World
from fleet.model.images import ImageVersion
from fleet.model.plan import Notice, Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_fleet, a_world, ago

TODAY = NOW.date()
RULE = {"match": "debian/.*/chromium", "ask": ["big"], "reason": "large"}
APPROVAL = {"guard": "delete", "pool": "builders", "count": 3, "reason": "move"}
RECIPE = {"suite": "trixie", "architecture": "amd64", "rebuild": {"every": "7d"}}


def in_days(days: int) -> str:
    return str(TODAY + timedelta(days=days))


def notices_of(fleet: Fleet, world: World | None = None) -> list[Notice]:
    plan = planned(fleet, world or a_world())
    return [each for each in plan.notices if each.kind != "prices"]


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


@pytest.mark.parametrize(
    ("days", "given"), [(-1, False), (0, True), (7, True), (8, True), (30, True), (31, False)]
)
def test_end_of_allow_list_rule_is_announced_a_month_before(days: int, *, given: bool) -> None:
    fleet = a_fleet(powerful=[RULE | {"expires": in_days(days)}])

    found = notices_of(fleet)

    assert [each.kind for each in found] == ["allow-list"] * given
    assert [each.path for each in found] == [("powerful", 0)] * given


@pytest.mark.parametrize(
    ("days", "used", "given"), [(7, 0, True), (8, 0, False), (7, 3, False), (-1, 0, False)]
)
def test_unused_approval_is_announced_a_week_before_expiry(
    days: int, used: int, *, given: bool
) -> None:
    fleet = a_fleet(approvals=[APPROVAL | {"expires": in_days(days)}])
    (verdict,) = planned(fleet, a_world()).approvals

    found = notices_of(fleet, a_world(approved={verdict.digest: used}))

    assert [each.kind for each in found] == ["approval"] * given


def price_notices(fleet: Fleet, world: World) -> list[tuple[date, str]]:
    found = [each for each in planned(fleet, world).notices if each.kind == "prices"]
    return [(each.until, each.key) for each in found]


def test_age_of_shipped_prices_is_announced_a_week_before_90_days() -> None:
    fleet = a_fleet()
    (source,) = planned(fleet, a_world()).prices
    shipped = date.fromisoformat(source.as_of)
    keys = set()
    first = None
    for day in range(120):
        moment = NOW + timedelta(days=day - (TODAY - shipped).days)
        for until, key in price_notices(fleet, a_world(time=moment)):
            first = first or moment.date()
            keys.add(key)
            assert until == shipped + timedelta(days=90)

    assert first == shipped + timedelta(days=83)
    assert len(keys) == 2  # in a week, over


@pytest.mark.parametrize(("age", "given"), [(1, False), (22, False), (23, True), (31, True)])
def test_old_price_list_of_provider_is_announced(age: int, *, given: bool) -> None:
    listed = PriceList(
        read_at=ago(days=age), location="fsn1", currency="EUR", quotes={}, address=None, disk=None
    )
    world = a_world(prices={"hetzner": listed})

    assert bool(price_notices(a_fleet(), world)) == given


def a_built(version: str, state: str = "current") -> ImageVersion:
    return ImageVersion.model_validate({"image": "trixie", "version": version, "state": state})


@pytest.mark.parametrize(
    ("versions", "given"),
    [
        ((), False),
        ((a_built("20261113T080000Z"),), True),
        ((a_built("20261113T080001Z"),), False),  # a day of grace is not over
        ((a_built("20261101T080000Z"), a_built("20261120T080000Z", "tested")), False),
        ((a_built("20261101T080000Z"), a_built("20261120T080000Z", "failed")), True),
        ((a_built("by-hand"),), False),  # nothing says when
    ],
)
def test_overdue_image_build_is_announced_once(
    versions: tuple[ImageVersion, ...], *, given: bool
) -> None:
    fleet = a_fleet(images={"trixie": RECIPE})

    found = notices_of(fleet, a_world(images=versions))
    later = notices_of(fleet, a_world(images=versions, time=NOW + timedelta(hours=1)))

    assert [each.kind for each in found] == ["image"] * given
    if given:
        assert found[0].key == later[0].key
