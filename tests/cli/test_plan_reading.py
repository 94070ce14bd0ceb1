"""`fleet plan` is read from its top: changes, unserved requests, pools; each fact once."""

import json
import re
from datetime import UTC, datetime

import pytest

from tests.rigs.process import RunFleet
from tests.rigs.trial import BIG, Trial, fleet_yaml


def wait_for_tags(trial: Trial, *required: tuple[str, ...]) -> None:
    """Have one request wait for each of these sets of tags."""
    moment = datetime.now(UTC).isoformat()
    waiting = [{"id": str(nth), "required": tags} for nth, tags in enumerate(required)]
    demand = {"demand": {"read_at": moment, "requests": waiting}}
    world = {"fleet": "trial", "time": moment, "queues": {"work": demand}}
    (trial.folder / "world.json").write_text(json.dumps(world), encoding="utf-8")


def test_changes_come_before_unserved_requests_and_pools(
    trial: Trial, run_fleet: RunFleet
) -> None:
    wait_for_tags(trial, (), ("big",), ("riscv",))

    shown = run_fleet("plan").stdout

    headings = ["Changes", "Not served in this run", "Pools"]
    found = [shown.index(f"\n{heading}") for heading in headings]
    assert found == sorted(found)


def test_five_unserved_rows_name_the_rest_and_the_command(
    trial: Trial, run_fleet: RunFleet
) -> None:
    pools = {f"p{nth}": BIG.replace("[big]", f"[t{nth}]") for nth in range(7)}
    pools = {name: text.replace("max: 4", "max: 0") for name, text in pools.items()}
    trial.write(fleet_yaml(pools=pools))
    wait_for_tags(trial, *((f"t{nth}",) for nth in range(7)))

    shown = run_fleet("plan").stdout

    section = shown[shown.index("Not served in this run") : shown.index("\nPools")]
    assert len(re.findall(r"^  ! ", section, re.MULTILINE)) == 5
    assert "2 requests for 2 other reasons" in section
    assert "`fleet explain request --all`" in section
    assert run_fleet("explain", "request", "--all").returncode == 0


def test_shared_tags_of_unserved_requests_are_printed_once(
    trial: Trial, run_fleet: RunFleet
) -> None:
    wait_for_tags(trial, ("common", "one"), ("common", "big", "two"))

    shown = run_fleet("plan").stdout

    section = shown[shown.index("Not served in this run") : shown.index("\nPools")]
    assert section.count("ask for common") == 1
    assert section.count("queue work") == 0


@pytest.mark.parametrize("options", [("--verbose",), ("--out", "saved.json")])
def test_digests_are_printed_only_when_requested(
    trial: Trial, run_fleet: RunFleet, options: tuple[str, ...]
) -> None:
    trial.wait_for("1")
    assert "Digests" not in run_fleet("plan").stdout

    shown = run_fleet("plan", *options).stdout
    assert re.search(r"^Digests: plan [0-9a-f]{12}", shown, re.MULTILINE)


def test_totals_have_two_places_and_rates_four(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1", "2", "3")

    shown = run_fleet("plan").stdout

    assert "; 0.00 -> 0.23 EUR/h\n" in shown
    assert "+0.0777 EUR/h" in shown
    assert re.search(r"^  builders .* 0\.0000  0\.2331$", shown, re.MULTILINE)


def test_cost_of_created_machines_is_one_sentence(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1", "2", "3")

    cost = r"^These 3 machines cost about 0\.3\d EUR until they are idle \(cheapest choice\)$"
    assert re.search(cost, run_fleet("plan").stdout, re.MULTILINE)


def test_each_created_machine_is_one_row_with_its_request(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for("1", "2", "3")

    lines = run_fleet("plan").stdout.splitlines()

    first = lines.index("  builders", lines.index("Changes"))
    assert [text.split("for ")[-1] for text in lines[first + 1 : first + 4]] == [
        f"work/{nth} [requests-wait]" for nth in (1, 2, 3)
    ]
