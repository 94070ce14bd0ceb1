"""Golden plans: a folder each under tests/plans, named by the sentence it shows."""

from pathlib import Path
from typing import Any

from fleet.apply.config import check_file
from fleet.guard import guard
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.queues.recorded import read_world
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.state.files import LocalFiles
from tests.builders import NOW

PLANS = Path(__file__).parents[1] / "plans"
FOLDERS = sorted(path.parent for path in PLANS.glob("*/world.json"))
_WORDS = {"because", "currency", "fleet", "format", "time"}
_REPEATED = {
    *("cost_known", "decisions", "digests", "labels", "provides", "serial", "since", "stack"),
    "withheld",
}
"""What follows from the facts, from fleet.yaml or from the rest of the plan."""
_OF_POOLS = {
    "pool",
    "mode",
    "served",
    "unwanted",
    "draining",
    "price",
    "provider",
    "type",
    "image",
}
"""What plan.txt does not show of a pool. A new figure of pools changes no plan.json."""


def load_fleet(folder: Path) -> Fleet:
    """Return the fleet.yaml of a golden plan."""
    checked = check_file(str(folder / "fleet.yaml"), NOW.date())
    assert checked.fleet is not None, checked.findings
    return checked.fleet


def load_world(folder: Path) -> World:
    """Return the facts of a golden plan."""
    return read_world(str(folder / "world.json"), LocalFiles())


def plan_of(folder: Path) -> Plan:
    """Return what is planned for the fleet.yaml and the facts of a folder."""
    fleet = load_fleet(folder)
    return guard(fleet, reconcile(fleet, load_world(folder)))


def reviewed(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return what a reviewer compares of a plan: ids and figures that are not empty."""
    if isinstance(value, list):
        return [reviewed(item) for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("pools"), list):
        pools = [each for each in value["pools"] if isinstance(each, dict)]
        own = [{key: item for key, item in p.items() if key in _OF_POOLS} for p in pools]
        value = value | {"pools": own or value["pools"]}
    kept = {key: reviewed(item) for key, item in value.items() if key not in _WORDS | _REPEATED}
    return {key: item for key, item in kept.items() if item not in (None, False, "", 0, [], {})}
