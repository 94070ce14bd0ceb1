"""`fleet machine`: lists machines by pool and state, and deletes those that a person names."""

import os
from pathlib import Path

import pytest

from tests.rigs.hook_machines import write_hooks
from tests.rigs.terminal import answer_at_terminal, read_until_closed, run_at_terminal
from tests.rigs.trial import BUILDERS, ONE, TWO, WARM, WHY, Trial, fleet_yaml
from tests.rigs.warm import Warm


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

    trial.told("machine", "delete", "trial-own-0002", "--apply")

    assert list((project / "machines").iterdir()) == []


def test_delete_run_selects_run_by_prefix_of_start(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": WARM}))
    for waiting in (("1",), ("1", "2")):
        trial.wait_for(*waiting)
        trial.apply()
    latest, first = trial.json("state", "show")["runs"]

    for run, machine in ((latest, TWO), (first, ONE)):
        actions = trial.json("machine", "delete", "--run", run["started"])["actions"]

        assert {each["worker"] for each in actions} == {machine}


@pytest.mark.parametrize(
    ("answer", "result"), [(b"yes\n", (0, [TWO])), (b"no\n", (1, [ONE, TWO]))]
)
def test_delete_asks_a_user_at_a_terminal(
    idle: Trial, warm: Warm, answer: bytes, result: tuple[int, list[str]]
) -> None:
    idle.do("machine", "delete", ONE, "--apply")

    code, shown = answer_at_terminal(idle, warm, answer, "machine", "delete", ONE)

    assert (code, idle.machines()) == result
    assert shown.count("1 to delete") == 1
    assert "dry run" not in shown


def test_delete_is_refused_when_plan_changes_during_the_question(idle: Trial, warm: Warm) -> None:
    idle.do("machine", "delete", ONE, "--apply")

    with run_at_terminal(idle, warm, "machine", "delete", ONE) as (process, terminal):
        while b"yes/no" not in os.read(terminal, 65536):
            pass
        idle.told("freeze", *WHY)
        os.write(terminal, b"yes\n")
        b"".join(read_until_closed(terminal))

    assert (process.returncode, idle.machines()) == (4, [ONE, TWO])


def test_delete_keeps_machine_that_a_static_pool_names(idle: Trial) -> None:
    idle.write(fleet_yaml(pools={"builders": BUILDERS, "own": f"{{static: [{ONE}]}}"}))

    idle.told("machine", "delete", ONE, "--apply", code=4)

    assert idle.machines() == [ONE, TWO]
