"""What a rule of the allow-list matches of what was recorded, and what that costs."""

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from fleet.explain.builds import RuleReach, find_reach
from fleet.explain.costs import BuildCosts
from fleet.explain.edits import FleetEdits
from fleet.guard import guard
from fleet.model.facts import Request, World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet, Pool, PowerfulRule
from tests.builders import NOW, a_pool, a_request, a_sim_fleet, a_sim_world
from tests.builders.cases import Block, read_blocks

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
    return find_reach(FleetEdits(base, head), worlds, *costs)


CASES = [*read_blocks(Path(__file__).parent / "reaches")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_changed_rule_matches_the_builds_of_its_case(case: Block) -> None:
    assert reach_of(*case.parts) == case.result


def reach_of(before: str, after: str, moments: str) -> str:
    """Return the builds, the packages and the cost of the only changed rule, as text."""
    fleets = []
    for match, *options in (text.split() or [""] for text in (before, after)):
        more = dict(word.partition("=")[::2] for word in options)
        fleets.append(with_rules(*([match.replace("C", CHROMIUM)] if match else []), **more))
    worlds = []
    for text in moments.split(";"):
        ago_, _, listed = text.rpartition("days:")
        builds = [
            build(number, words[0].replace("C", CHROMIUM), **_pairs(words[1:]))
            for number, words in enumerate((each.split() for each in listed.split(",")), start=1)
        ]
        worlds.append(moment(*builds, days_ago=float(ago_ or 0)))
    base, head = fleets
    found = reach(base, head, *worlds)
    if not found:
        return "no report"
    (rule,) = found
    parts = [f"{rule.builds} of {rule.of}", f"added {rule.added}"]
    parts += [f"before {rule.before}"] if rule.before else []
    parts += ["wider"] if rule.is_wider else []
    parts.append(", ".join(f"{name} {count}" for name, count in rule.packages.items()) or "none")
    parts += [f"{who} {count}" for who, count in sorted((rule.owners | rule.requesters).items())]
    parts += [f"examples {' '.join(rule.examples)}"] if rule.examples else []
    parts += [f"cost {rule.cost:.4f}" if rule.cost is not None else "cost unknown"]
    parts += [f"per month {rule.month:.4f}"] if rule.month is not None else []
    parts += [f"in {rule.moments} moments of {rule.seconds} s"] if rule.moments > 1 else []
    return "; ".join((*parts, *(["not known"] if rule.not_known else [])))


def _pairs(words: list[str]) -> dict[str, object]:
    return {
        key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in words)
    }


def test_rule_cost_is_unknown_when_no_pool_provides_its_tag() -> None:
    head = with_rules(CHROMIUM)
    head = head.model_copy(update={"pools": {"builders": a_pool(provider="desk")}})

    (rule,) = reach(with_rules(), head, moment(build(1)))

    assert rule.cost is None


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


def test_rule_cost_is_absent_when_builds_miss_the_deadline() -> None:
    queue = {"kind": "world", "path": "world.json", "deadline": "1h"}

    rule = rule_cost(two_pools(), queues={"debian": queue})

    assert (rule.cost, rule.cost_before) == (None, None)
    assert rule.not_known
