"""A key that is added to a saved format leaves what older versions saved as it was."""

import json
import subprocess
import sys

from tests.rigs.process import ROOT

SAVED = sorted((ROOT / "tests/fixtures/fleet-of-013a4bd2").glob("plan-of-*.json"))
# Each of these values gets one more key before pydantic builds it, which it does at the first use.
ADD = """
import sys, typing
from pathlib import Path
from fleet.model.digests import world_digest
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.apply.saved_plan import read_plan
from fleet.model.values import Value, later

def values_in(kind):
    if isinstance(kind, type) and issubclass(kind, Value):
        yield kind
    for part in typing.get_args(kind):
        yield from values_in(part)

found = {Plan, World}
while more := {
    part
    for value in found
    for field in value.model_fields.values()
    for part in values_in(field.annotation)
} - found:
    found |= more
for value in found if sys.argv[1] == "later" else ():
    field = later(None, "A key of a later version.")
    field.annotation = str | None
    value.__pydantic_fields__["added_later"] = field
    value.__annotations__["added_later"] = str | None
    value.model_rebuild(force=True)
for name in sys.argv[3:]:
    plan = read_plan(name, Path(name).read_bytes())
    assert not hasattr(plan, "added_later") or plan.added_later is None
    print(plan.digests.plan)
print(world_digest(World.model_validate_json(Path(sys.argv[2]).read_bytes())))
print(len(found), sum("added_later" in each.model_fields for each in found))
"""


def digests(when: str) -> list[str]:
    world = ROOT / "world.json"
    command = [sys.executable, "-c", ADD, when, str(world), *map(str, SAVED)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_additional_key_at_any_level_changes_no_digest() -> None:
    *now, _ = digests("now")
    *then, counted = digests("later")

    values, with_key = map(int, counted.split())
    assert then == now
    assert with_key == values > 40
    saved = [json.loads(path.read_text(encoding="utf-8"))["digests"]["plan"] for path in SAVED]
    assert now[: len(SAVED)] == saved
