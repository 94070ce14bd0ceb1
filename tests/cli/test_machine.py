"""`fleet machine`: lists machines by pool and state, and deletes those that a person names."""

import json
import shutil
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.cli.test_state import lose
from tests.cli.test_ticket import open_ticket, ticket_yaml
from tests.rigs.hook_machines import write_hooks
from tests.rigs.process import ROOT, RunFleet
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

ONE, TWO = "trial-builders-0001", "trial-builders-0002"
WARM = BUILDERS.replace("max: 4", "max: 4, min: 0, spare: 0")


@pytest.fixture
def two(trial: Trial) -> Trial:
    """Return a fleet with two machines, the first of which is busy; the loop keeps both."""
    return trial.begun(begin_two)


def begin_two(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": WARM}))
    trial.wait_for("1", "2")
    trial.apply()
    trial.age(minutes=2)
    trial.cloud.assign(ONE, "1")
    trial.wait_for()


def names(trial: Trial, *options: str) -> list[str]:
    """Return the machines that `fleet machine list` lists."""
    code, said = trial.do("machine", "list", "--json", *options)
    assert code == 0, said
    return [each["worker"] for each in json.loads(said)["machines"]]


def test_machines_are_listed_by_pool_and_state(two: Trial, run_fleet: RunFleet) -> None:
    listed = run_fleet("machine", "list")

    assert [line.split()[0] for line in listed.stdout.splitlines()] == [
        "WORKER",
        "builders",
        ONE,
        TWO,
    ]
    assert names(two, "--state", "up") == [ONE, TWO]
    assert names(two, "--state", "ready") == [TWO]
    assert names(two, "--pool", "builders", "--state", "busy") == [ONE]
    assert names(two, "--state", "draining", "--state", "starting") == []


def test_cost_of_a_machine_is_unknown_when_its_provider_is_unread(
    project: Path, run_fleet: RunFleet
) -> None:
    folder = ROOT / "tests/plans/what-unseen-machines-may-serve-is-not-bought-elsewhere"
    for name in ("fleet.yaml", "world.json"):
        shutil.copy(folder / name, project)

    listed = json.loads(run_fleet("machine", "list", "--world", "world.json", "--json").stdout)

    # `fleet-machines-1` had 0 there.
    assert listed["format"] == "fleet-machines-2"
    assert [[*each["cost"]] for each in listed["machines"]] == [["unknown"]] * 2


def test_machine_list_of_unknown_pool_names_known_pools(two: Trial) -> None:
    code, said = two.do("machine", "list", "--pool", "bilders")

    assert code == 1
    assert tells(said, "pool bilders", "builders")


def test_deletion_is_only_shown_without_apply(two: Trial) -> None:
    before = two.files()

    code, said = two.do("machine", "delete", TWO)

    assert code == 0
    assert tells(said, "1 to drain", "0 to delete", "dry run")
    assert "[requested]" in said
    assert two.files() == before


def test_named_machine_is_drained_and_deleted_by_next_apply(two: Trial) -> None:
    assert two.do("machine", "delete", TWO, "--apply")[0] == 0
    assert two.machines() == [ONE, TWO]

    two.apply()

    assert two.machines() == two.recorded() == [ONE]


def test_busy_machine_is_only_drained(two: Trial) -> None:
    for _ in range(3):
        assert two.do("machine", "delete", ONE, "--apply")[0] == 0
        two.apply()

    assert ONE in two.machines()
    code, said = two.do("machine", "delete", ONE)
    assert tells(said, ONE, "runs request 1")
    two.cloud.assign(ONE, None)
    assert two.do("machine", "delete", ONE, "--apply")[0] == code == 0
    assert ONE not in two.machines()


def test_machine_delete_of_pool_keeps_busy_machines(two: Trial) -> None:
    for _ in range(2):
        two.do("machine", "delete", "--pool", "builders", "--unused", "--apply")

    assert two.machines() == [ONE]
    assert names(two, "--state", "busy") == [ONE]


def test_machine_delete_all_deletes_busy_machines_once_idle(two: Trial) -> None:
    two.do("machine", "delete", "--pool", "builders", "--all", "--apply")

    drained = two.do("machine", "delete", "--pool", "builders", "--all", "--apply", "--json")[1]
    (stack,) = json.loads(drained[drained.index("{") :])["stacks"]

    assert stack["deleted"] == [TWO]
    assert two.machines() == [ONE]


def test_machine_delete_keeps_machine_until_its_ticket_closes(project: Path) -> None:
    trial = Trial(project)
    trial.write(ticket_yaml())
    trial.init()
    number = open_ticket(trial)
    trial.apply()
    trial.age(minutes=2)
    trial.apply()
    (name,) = trial.machines()

    for _ in range(2):
        trial.do("machine", "delete", "--pool", "powerful", "--all", "--apply")
        trial.do("machine", "delete", "--pool", "powerful", "--unused", "--apply")

    assert trial.machines() == [name]
    trial.do("ticket", "close", number, "--user", "ada")
    trial.do("machine", "delete", name, "--apply")
    assert trial.machines() == []


def test_machine_delete_refuses_machine_of_unknown_state(two: Trial) -> None:
    two.write(fleet_yaml(pools={"builders": WARM.replace("workers", "mode: pause, workers")}))

    code, said = two.do("machine", "delete", TWO, "--apply")

    assert code == 4
    assert tells(said, TWO, "fleet machine delete", "kept", "mode", "pause")
    assert two.machines() == [ONE, TWO]


def test_machine_delete_suggests_forget_for_missing_machine(two: Trial) -> None:
    lose(two, TWO)

    code, said = two.do("machine", "delete", TWO, "--apply")

    assert code == 4
    assert tells(said, f"fleet machine forget {TWO}")
    assert two.do("machine", "forget", TWO)[0] == 0
    assert two.recorded() == [ONE]


def test_machine_delete_of_unknown_name_changes_nothing(two: Trial) -> None:
    code, said = two.do("machine", "delete", TWO, "trial-builders-002", "--apply")

    assert code == 1
    assert tells(said, "machine trial-builders-002", TWO)
    assert names(two, "--state", "draining") == []


def test_machine_delete_holds_lock_and_is_in_journal(two: Trial) -> None:
    with two.locked():
        assert two.do("machine", "delete", TWO, "--apply")[0] == 1
    two.do("machine", "delete", TWO, "--apply")

    runs = json.loads(two.do("state", "show", "--json")[1])["runs"]

    assert [bool(run["plan"]) for run in runs[:2]] == [False, True]


@pytest.mark.slow
def test_machine_delete_also_deletes_earlier_failed_deletion(project: Path) -> None:
    """The engine deletes it in any case, so that a plan without it would be refused."""
    trial = Trial(project)
    # Two machines are deleted at once: a list omits one whose file is gone before it is read.
    read = '{ text=$(cat "$file" 2>/dev/null) || [ ! -e "$file" ]; }'
    each = f'{read} && [ -n "$text" ] && printf "$comma%s" "$text" && comma=,'
    listing = f"mkdir -p machines; comma=; printf '['; for file in machines/*; do {each}; done"
    write_hooks(
        project,
        delete="test ! -e broken && rm -f machines/$FLEET_MACHINE",
        list=f"{listing}; echo ']'",
    )
    commands = ", ".join(f"{name}: [sh, {name}.sh]" for name in ("new", "delete", "list"))
    pool = (
        f"{{provider: hooks, hooks: {{{commands}}}, image: trixie, workers: {{max: 3, spare: 2}},"
        " machine: {cores: 4, memory: 16GiB, price: 0.10 EUR/h}}"
    )
    trial.write(fleet_yaml(pools={"own": pool}, queue="{kind: tickets}"))
    trial.init()
    trial.apply()
    trial.do("machine", "delete", "trial-own-0001", "--apply")
    (project / "broken").touch()
    assert trial.do("machine", "delete", "trial-own-0001", "--apply")[0] != 0
    trial.do("machine", "delete", "trial-own-0002", "--apply")
    (project / "broken").unlink()

    code, said = trial.do("machine", "delete", "trial-own-0002", "--apply")

    assert code == 0, said
    assert list((project / "machines").iterdir()) == []
