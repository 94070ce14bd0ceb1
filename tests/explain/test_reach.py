"""What a rule of the allow-list matches of what was recorded, and what that costs."""

from datetime import timedelta
from decimal import Decimal

from fleet.explain.config_changes import Edits
from fleet.explain.costs import BuildCosts
from fleet.explain.reach import RuleReach, find_reach
from fleet.guard import guard
from fleet.model.facts import Request, World
from fleet.model.prices import Tariff, bill
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet, Pool, PowerfulRule
from tests.builders import NOW, a_pool, a_request, a_sim_fleet, a_sim_world

HOUR = bill(Tariff(Decimal("0.0777")), 3600 + 90 + 15 * 60 + 2 * 600)
"""An hour of work, the boot, the idle time-out, and two runs that delete the machine."""
CHROMIUM, HEADERS = "praiskup/ping/f43/chromium", "praiskup/ping/f43/chromium-headers"


def with_rules(*matches: str, **more: object) -> Fleet:
    rules = [{"match": match, "ask": ["big"], **more} for match in matches]
    return a_sim_fleet(
        pools={"builders": a_pool(provider="desk", provides=["big"])}, powerful=rules
    )


def build(number: int, name: str = CHROMIUM, **more: object) -> Request:
    owner, project, chroot, package = name.split("/")
    said = {"owner": owner, "project": project, "chroot": chroot, "package": package}
    return a_request(**{"id": str(number), "expected_seconds": 3600, **said, **more})


def moment(*builds: Request, days_ago: float = 0) -> World:
    world = a_sim_world(requests=builds)
    return world.altered(time=NOW - timedelta(days=days_ago))


def reach(base: Fleet, head: Fleet, *worlds: World) -> tuple[RuleReach, ...]:
    last = worlds[-1]
    costs = (
        BuildCosts(fleet, last, guard(fleet, reconcile(fleet, last))) for fleet in (base, head)
    )
    return find_reach(Edits(base, head), worlds, *costs)


def test_unchanged_allow_list_has_no_report() -> None:
    assert reach(with_rules(CHROMIUM), with_rules(CHROMIUM), moment(build(1))) == ()


def test_new_rule_has_matched_builds_examples_and_cost() -> None:
    world = moment(build(1), build(2, HEADERS, requester="bob"), build(3, "a/b/c/d"))

    (rule,) = reach(with_rules(), with_rules("praiskup/.*"), world)

    assert (rule.builds, rule.of, rule.added, rule.before) == (2, 3, 2, "")
    assert (rule.owners["praiskup"], rule.requesters["bob"]) == (2, 1)
    assert rule.examples == (CHROMIUM, HEADERS)
    assert (rule.cost, rule.month, bool(rule.not_known)) == (2 * HOUR, None, True)


def test_widened_rule_has_old_pattern_and_added_builds() -> None:
    world = moment(build(1), build(2, HEADERS))

    (rule,) = reach(with_rules(CHROMIUM), with_rules(f"{CHROMIUM}.*"), world)

    assert (rule.before, rule.builds, rule.added, rule.is_wider) == (CHROMIUM, 2, 1, True)
    assert rule.examples[0] == HEADERS


def test_narrowed_rule_has_no_new_builds() -> None:
    (rule,) = reach(with_rules(f"{CHROMIUM}.*"), with_rules(CHROMIUM), moment(build(1)))

    assert (rule.builds, rule.added, rule.is_wider) == (1, 0, False)


def test_expired_rule_matches_no_build() -> None:
    yesterday = NOW.date() - timedelta(days=1)

    (rule,) = reach(with_rules(), with_rules(".*", expires=yesterday), moment(build(1)))

    assert (rule.builds, rule.of) == (0, 1)


def test_grouped_builds_count_each() -> None:
    (rule,) = reach(with_rules(), with_rules(CHROMIUM), moment(build(1, count=7)))

    assert (rule.builds, rule.cost) == (7, 7 * HOUR)


def test_rule_cost_is_unknown_when_a_duration_is_unknown() -> None:
    world = moment(build(1), build(2, expected_seconds=None))

    (rule,) = reach(with_rules(), with_rules(CHROMIUM), world)

    assert (rule.builds, rule.cost, rule.month) == (2, None, None)
    assert rule.not_known


def test_rule_cost_is_unknown_when_no_pool_provides_its_tag() -> None:
    head = with_rules(CHROMIUM)
    head = head.model_copy(update={"pools": {"builders": a_pool(provider="desk")}})

    (rule,) = reach(with_rules(), head, moment(build(1)))

    assert rule.cost is None


def test_build_in_several_moments_counts_once() -> None:
    worlds = (
        moment(build(1), build(2), days_ago=10),
        moment(build(2), build(3), days_ago=5),
        moment(build(4)),
    )

    (rule,) = reach(with_rules(), with_rules(CHROMIUM), *worlds)

    assert (rule.builds, rule.moments, rule.seconds) == (4, 3, 864_000)
    assert (rule.cost, rule.month) == (4 * HOUR, round(2 * HOUR * Decimal("3.0416667"), 4))


def test_cost_per_month_is_unknown_for_history_under_a_day() -> None:
    worlds = (moment(build(1), days_ago=0.9), moment(build(2)))

    (rule,) = reach(with_rules(), with_rules(CHROMIUM), *worlds)

    assert (rule.builds, rule.month) == (2, None)


def test_builds_of_one_name_are_one_package() -> None:
    world = moment(build(1), build(2), build(3, count=4), build(5, HEADERS))

    (rule,) = reach(with_rules(), with_rules("praiskup/.*"), world)

    assert (rule.builds, rule.packages) == (7, {CHROMIUM: 6, HEADERS: 1})
    assert rule.added_packages == rule.packages


def test_chroots_of_a_package_are_one_package() -> None:
    names = [f"praiskup/ping/f{number}/chromium" for number in range(40, 60)]
    world = moment(*(build(n, name) for n, name in enumerate([*names, "praiskup/pong/f43/x"])))

    (rule,) = reach(with_rules(names[0]), with_rules("praiskup/.*"), world)

    assert rule.packages == {"praiskup/ping/*/chromium": 20, "praiskup/pong/f43/x": 1}
    assert rule.added_packages["praiskup/ping/*/chromium"] == 19


def test_pull_requests_of_a_project_are_one_package() -> None:
    names = [f"@copr/cli:pr:{number}/f43/cli" for number in (7, 8)]
    world = moment(build(1, names[0]), build(2, names[1]), build(3, "@copr/cli/f43/cli"))

    (rule,) = reach(with_rules(), with_rules("@copr/cli", dirs=True), world)
    assert rule.packages == {}

    (rule,) = reach(with_rules(), with_rules("@copr/cli/.*", dirs=True), world)
    assert rule.packages == {"@copr/cli:*/f43/cli": 3}


def test_packages_of_two_owners_are_two_packages() -> None:
    world = moment(build(1), build(2, "mallory/ping/f43/chromium"))

    (rule,) = reach(with_rules(), with_rules(".*/chromium"), world)

    assert sorted(rule.packages.values()) == [1, 1]


def test_build_in_two_moments_counts_once_for_its_package() -> None:
    worlds = (moment(build(1), days_ago=2), moment(build(1), build(2)))

    (rule,) = reach(with_rules(), with_rules(CHROMIUM), *worlds)

    assert rule.packages == {CHROMIUM: 2}


def two_pools(**more: object) -> dict[str, Pool]:
    powerful = {"provider": "desk", "provides": ["big"], "machine": "ccx63"}
    return {"builders": a_pool(provider="desk"), "powerful": a_pool(**powerful | more)}


DURATIONS = {"any": [{"takes": "26h", "machine": "ccx33"}]}


def rule_cost(pools: dict[str, Pool], **more: object) -> RuleReach:
    """Return the rule that sends Chromium's 26 hours to these pools."""
    tags = {"big": {"on_demand": True, "exclusive": True}}
    base = a_sim_fleet(pools=pools, tags=tags, durations=DURATIONS, **more)
    rule = PowerfulRule(match=CHROMIUM, ask=["big"])
    head = base.model_copy(update={"powerful": [rule]})
    build_of = build(1, expected_seconds=None, required=("worker:build-arch:amd64",))
    (found,) = reach(base, head, moment(build_of))
    return found


def test_rule_cost_uses_speed_of_each_type() -> None:
    one = rule_cost(two_pools())
    two = rule_cost(two_pools(machine={"type": ["ccx63", "ccx53"]}))
    other = rule_cost(two_pools(machine={"type": ["ccx53", "ccx63"]}))

    assert one.cost is not None
    assert two.cost == other.cost
    assert two.cost is not None
    assert two.cost <= one.cost


def test_rule_cost_ignores_pools_that_do_not_fit() -> None:
    alone = rule_cost(two_pools())
    for more in (
        {"machine": {"type": "cax41", "price": "0.01 EUR/h"}, "image": "arm"},
        {"machine": {"type": "ccx63", "price": "0.01 EUR/h"}, "serves": ["other"]},
        {"machine": {"type": "ccx63", "price": "0.01 EUR/h"}, "requires": ["task:x"]},
    ):
        cheap = a_pool(**{"provider": "desk", "provides": ["big"]} | more)
        images = a_sim_fleet().images | {"arm": {"suite": "trixie", "architecture": "arm64"}}
        queues = a_sim_fleet().queues | {"other": {"kind": "world", "path": "world.json"}}

        rule = rule_cost(two_pools() | {"cheap": cheap}, images=images, queues=queues)

        assert rule.cost == alone.cost


def test_rule_has_cost_of_its_builds_without_it() -> None:
    rule = rule_cost(two_pools())

    assert rule.cost is not None
    assert rule.cost_before is not None
    tail = 90 + 15 * 60 + 2 * 600
    assert rule.cost_before == bill(Tariff(Decimal("0.0777")), 26 * 3600 + tail)
    assert rule.cost > rule.cost_before


def test_rule_cost_has_complete_billed_hours() -> None:
    provider = {"desk": {"kind": "sim", "billing": {"increment": "1h"}}}

    rule = rule_cost(two_pools(), providers=provider)

    assert rule.cost_before == 27 * Decimal("0.0777")


def test_rule_cost_is_absent_when_builds_miss_the_deadline() -> None:
    queue = {"kind": "world", "path": "world.json", "deadline": "1h"}

    rule = rule_cost(two_pools(), queues={"debian": queue})

    assert (rule.cost, rule.cost_before) == (None, None)
    assert rule.not_known
