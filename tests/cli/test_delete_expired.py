"""`machine delete --expired` lists machines whose expiry has passed; --apply deletes them."""

import json
from datetime import timedelta

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

FIRST = "trial-builders-0001"


@pytest.fixture
def dead(trial: Trial) -> Trial:
    """Return a fleet with an idle machine that a run vouched for, two days ago."""
    return trial.begun(begin_dead)


def begin_dead(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, more="expire_after: 1d\n"))
    trial.wait_for("1")
    trial.apply()
    trial.apply()
    trial.wait_for()
    trial.age(days=2)
    expire(trial)


def expire(trial: Trial) -> None:
    """Have the expiry of every machine be over for a day."""
    listing = trial.cloud.list("trial")
    for machine in getattr(listing, "machines", ()):
        assert machine.expires is not None
        trial.cloud.extend([machine.id], machine.expires - timedelta(days=2, hours=6))


def test_delete_expired_lists_machines_without_changes(dead: Trial, run_fleet: RunFleet) -> None:
    before = dead.files()

    swept = run_fleet("machine", "delete", "--expired")

    assert (swept.returncode, swept.stderr) == (0, "")
    headline, *changes, because = filter(None, swept.stdout.splitlines()[1:])
    assert tells(headline, "Sweep", "0 to create", "1 to drain", "0 to delete", "--apply")
    assert changes == ["Changes", "  builders", f"    ~ drain  {FIRST}  ccx33"]
    assert tells(because, "1d", "`fleet apply`", "[expired]")
    assert dead.files() == before


def test_delete_expired_drains_first_and_deletes_in_next_run(dead: Trial) -> None:
    first, said = dead.do("machine", "delete", "--expired", "--apply")
    machines = dead.machines()
    second, then = dead.do("machine", "delete", "--expired", "--apply")

    assert [first, second] == [0, 0]
    assert machines == [FIRST]
    assert tells(said, "drained", "fleet machine delete --expired --apply")
    assert "- deleted 1: trial-builders-0001" in then
    assert dead.machines() == dead.recorded() == []


def test_delete_expired_works_without_a_store(dead: Trial) -> None:
    (dead.folder / ".fleet/store.db").unlink()

    (first, said), (second, _) = [
        dead.do("machine", "delete", "--expired", "--apply") for _ in range(2)
    ]

    assert [first, second] == [1, 1], "what became of the state, a person has to see to"
    assert tells(said, "lock", ".fleet/store.db")
    assert "provider's list" in said
    assert dead.machines() == []


def test_delete_expired_with_json_prints_plan_or_outcome(dead: Trial) -> None:
    shown = json.loads(dead.do("machine", "delete", "--expired", "--json")[1])
    _, said = dead.do("machine", "delete", "--expired", "--apply", "--json")

    done = json.loads(said[said.index("{") :])

    assert [(each["action"], each["reason"]) for each in shown["actions"]] == [
        ("drain", "expired")
    ]
    assert [(each["pool"], each["drained"]) for each in done["stacks"]] == [("builders", [FIRST])]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("machine", "delete", "--expired"), "expired-only"),
        (("machine", "delete", FIRST), "requested-only"),
        (("machine", "delete", "--pool", "builders", "--unused"), "requested-only"),
    ],
    ids=str,
)
@pytest.mark.parametrize("guards", [(), ("guard-keeps",)], ids=str)
@pytest.mark.usefixtures("dead")
def test_delete_expired_reports_ignored_demand_when_guard_withholds(
    command: tuple[str, ...], code: str, guards: tuple[str, ...], run_fleet: RunFleet
) -> None:
    if guards:
        assert run_fleet("freeze", "--for", "1h", "--reason", "look").returncode == 0

    plan = json.loads(run_fleet(*command, "--json").stdout)

    (pool,) = plan["pools"]
    assert [each["code"] for each in pool["decisions"]] == [code, *guards]
    assert pool["because"] == "; ".join(each["message"] for each in pool["decisions"])
    assert plan["digests"]["over"] == "decisions"


def test_delete_expired_plans_no_shared_resources(dead: Trial, run_fleet: RunFleet) -> None:
    path = dead.folder / "fleet.yaml"
    network = "network: {ip_range: 10.20.0.0/16, zone: eu-central}"
    far = f"  far: {{kind: hcloud, location: fsn1, token: {{env: NO_TOKEN}}, {network}}}\n"
    written = path.read_text(encoding="utf-8").replace("providers:\n", f"providers:\n{far}")
    dead.write(f"{written}state: {{passphrase: {{env: NO_PASSPHRASE}}}}\n")
    bases = json.loads(run_fleet("plan", "--json").stdout)["bases"]

    shown = json.loads(run_fleet("machine", "delete", "--expired", "--json").stdout)

    assert [each["create"] for each in bases] == [["network/trial-far-network"]]
    assert shown["bases"] == []
    assert [each["action"] for each in shown["actions"]] == ["drain"]


def test_delete_expired_is_in_journal_but_not_a_heartbeat(dead: Trial) -> None:
    dead.do("machine", "delete", "--expired", "--apply")

    runs = json.loads(dead.do("state", "show", "--json")[1])["runs"]

    assert [bool(run["plan"]) for run in runs] == [False, True, True]
    assert len(dead.world()["runs"]) == 2
