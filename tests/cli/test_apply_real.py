"""`fleet apply` with the real engine: pools at once, each with an outcome of its own."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet.engines.pulumi_cli import find_cli
from tests.builders.sentences import tells
from tests.ports.engines import skip_without_cli
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml

pytestmark = pytest.mark.engine

POOL = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4, min: 1}}"
RARE = POOL.replace("ccx33", "rare")
TYPES = "{rare: {cores: 2, memory: 8GiB, disk: 40GiB, price: 0 EUR/h, stock: 0}}"
PASSPHRASE = "state: {passphrase: {env: PASSPHRASE}}\n"


class Cli:
    """A wrapper of the CLI that notes what it is started for."""

    def __init__(self, folder: Path) -> None:
        self._told = folder / "told"
        self._told.touch()
        wrapper = folder / "pulumi"
        wrapper.write_text(f'#!/bin/sh\necho "$@" >> {self._told}\nexec {find_cli()} "$@"\n')
        wrapper.chmod(0o700)
        self.env = {"PASSPHRASE": "of tests", "FLEET_PULUMI": str(wrapper)}

    def started(self) -> list[str]:
        """Return the operations that it was started for since, versions aside, sorted."""
        lines = self._told.read_text().splitlines()
        words = [line.removeprefix("--non-interactive ").split() for line in lines]
        self._told.write_text("")
        return sorted(each[0] for each in words if each[0] != "version")


@pytest.fixture
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    skip_without_cli()
    return Cli(tmp_path_factory.mktemp("cli"))


def declare(trial: Trial, **pools: str) -> None:
    desk = f"boot: 1s, engine: pulumi, types: {TYPES}"
    trial.write(fleet_yaml(pools=pools, desk=desk, more=PASSPHRASE))


def test_pools_are_applied_concurrently_when_one_fails(
    trial: Trial, run_fleet: RunFleet, cli: Cli
) -> None:
    declare(trial, a=POOL, b=RARE, c=POOL)

    applied = run_fleet("apply", "--jobs", "3", env=cli.env)

    assert applied.returncode == 5, applied.stderr
    assert tells(applied.stdout, "2 created", "0 drained", "0 deleted", "fleet trial")
    assert tells(applied.stdout, "    + ", "1", "trial-a-0001")
    assert "  a: applied\n" in applied.stdout
    assert "  b: failed\n" in applied.stdout
    assert trial.machines() == ["trial-a-0001", "trial-c-0001"]


def test_engine_starts_once_per_operation(trial: Trial, run_fleet: RunFleet, cli: Cli) -> None:
    declare(trial, a=POOL)
    first = run_fleet("apply", env=cli.env)
    assert (first.returncode, cli.started()) == (0, ["stack", "up"]), first.stderr

    quiet = [run_fleet(verb, env=cli.env).returncode for verb in ("plan", "apply", "status")]
    assert (quiet, cli.started()) == ([0, 0, 0], [])

    declare(trial, a=POOL.replace("min: 1", "min: 2"))
    run_fleet("plan", env=cli.env)
    assert cli.started() == []
    second = run_fleet("apply", env=cli.env)
    assert (second.returncode, cli.started()) == (0, ["up"]), second.stderr


def test_pools_are_swept_concurrently(trial: Trial, run_fleet: RunFleet, cli: Cli) -> None:
    more = PASSPHRASE + "expire_after: 1d\n"
    pools = dict.fromkeys(("a", "b"), POOL)
    desk = f"boot: 1s, engine: pulumi, types: {TYPES}"
    trial.write(fleet_yaml(pools=pools, desk=desk, more=more))
    made = run_fleet("apply", env=cli.env)
    assert made.returncode == 0, made.stderr
    trial.age(days=3)
    trial.cloud.extend(["sim-1", "sim-2"], datetime.now(UTC) - timedelta(days=2))

    drained = run_fleet("machine", "delete", "--expired", "--apply", env=cli.env)
    cli.started()
    swept = run_fleet("machine", "delete", "--expired", "--apply", env=cli.env)

    assert (drained.returncode, swept.returncode) == (0, 0), swept.stderr
    assert "deleted 1: trial-a-0001" in swept.stdout
    assert "deleted 1: trial-b-0001" in swept.stdout
    assert (trial.machines(), cli.started()) == ([], ["up", "up"])
