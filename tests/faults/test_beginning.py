"""`fleet init`, killed at any moment or started by two people at once: a whole folder, or none."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from itertools import count
from pathlib import Path

import psycopg
import pytest

from fleet.program import main
from tests.cli.test_init import FILES, names
from tests.ports.stores import postgres_url
from tests.rigs.process import RunFleet, clean_environment
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml
from tests.rigs.warm import Warm

__all__ = ["postgres_url"]

CHANGES = ("os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "sqlite3.connect")


def moments(folder: Path, copies: Path) -> Iterator[Path]:
    """Yield what `fleet init` leaves in a folder that is killed before each of its changes."""
    child = os.fork()
    if not child:
        number = count()

        def keep(event: str, details: tuple[object, ...]) -> None:
            written = event == "open" and details[1] is None and int(str(details[2])) & os.O_CREAT
            if (event in CHANGES or written) and os.getpid() == own and watching:
                watching.clear()
                shutil.copytree(folder, copies / f"{next(number)}")
                watching.append(True)

        own, watching = os.getpid(), [True]
        with (
            chdir(folder),
            open(os.devnull, "w") as nowhere,  # noqa: PTH123 - a stream
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
        ):
            sys.addaudithook(keep)
            main(["init"])
            # Who measures coverage writes a database of its own when the process ends.
            watching.clear()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    yield from sorted(copies.iterdir(), key=lambda each: int(each.name))


@pytest.mark.slow
def test_next_init_completes_init_killed_before_any_change(
    project: Path, tmp_path: Path, run_fleet: RunFleet
) -> None:
    whole, copies = tmp_path / "whole", tmp_path / "copies"
    whole.mkdir()
    copies.mkdir()
    struck = list(moments(whole, copies))
    assert len(struck) > 3 * len(FILES)

    for left in struck:
        had = {each: (left / each).read_bytes() for each in FILES[1:] if (left / each).exists()}
        shutil.copytree(left, project, dirs_exist_ok=True)

        done = run_fleet("init")

        # A second one after it is refused: only the last moments have all of it.
        assert done.returncode in ({0, 4} if left in struck[-2:] else {0}), (
            left.name,
            done.stderr,
        )
        assert names(project) == FILES or done.returncode == 4
        assert run_fleet("plan").returncode == 0
        assert all((project / each).read_bytes() == text for each, text in had.items())
        shutil.rmtree(project)
        project.mkdir()


@pytest.mark.parametrize("queues", [("recorded", "recorded"), ("recorded", "tickets")])
def test_concurrent_init_succeeds_for_one_of_two(
    project: Path, warm: Warm, run_fleet: RunFleet, queues: tuple[str, ...]
) -> None:
    environment = clean_environment(project.parent)
    with ExitStack() as stack:
        begun = [
            stack.enter_context(
                warm.started("init", "--queue", each, cwd=project, env=environment)
            )
            for each in (*queues, *queues)
        ]
        said = [each.stderr.read() for each in begun]
        codes = sorted(each.wait() for each in begun)

    assert codes == [0, 4, 4, 4]
    assert "Traceback" not in "".join(said)
    is_recorded = "kind: world" in (project / "fleet.yaml").read_text()
    assert names(project) == [each for each in FILES if is_recorded or each != "world.json"]
    assert run_fleet("validate").returncode == 0
    assert run_fleet("plan").returncode == 0


@pytest.mark.slow
def test_concurrent_init_shares_one_store_at_a_server(
    tmp_path: Path, postgres_url: str, warm: Warm
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS trial CASCADE; CREATE SCHEMA trial")
    url = f"{postgres_url}&options=-csearch_path%3Dtrial"
    trials = []
    for name in ("ada", "bob"):
        (tmp_path / name).mkdir()
        trials.append(Trial(tmp_path / name))
        trials[-1].write(
            fleet_yaml(pools={"builders": BUILDERS}, more=f"state: {{store: '{url}'}}\n")
        )
        trials[-1].wait_for("1")
    environment = clean_environment(tmp_path)

    def together(*words: str) -> list[int]:
        with ExitStack() as stack:
            begun = [
                stack.enter_context(warm.started(*words, cwd=each.folder, env=environment))
                for each in trials
                for _ in range(2)
            ]
            said = [each.stderr.read() for each in begun]
            assert "Traceback" not in "".join(said)
            return sorted(each.wait() for each in begun)

    # One creates it, the others find it there.
    assert together("state", "init") == [0] * 4
    trials[0].apply()
    assert together("log", "--verify") == [0] * 4
    logs = [each.told("log", "--last", "0", "--json") for each in trials]
    assert logs[0] == logs[1]
    assert "trial-builders-0001" in logs[0]
