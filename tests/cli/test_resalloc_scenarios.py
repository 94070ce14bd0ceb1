"""Scenarios of a Resalloc over the wire: `fleet serve`, and what it takes the place of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.test_serve import served
from tests.cli.test_serve_slow import hold_at, seconds_until
from tests.rigs.resalloc_client import OldClient
from tests.rigs.resalloc_server import ResallocServer
from tests.rigs.trial import Trial

SCENARIOS = yaml.safe_load(
    (Path(__file__).parents[1] / "rigs/resalloc_scenarios.yaml").read_text(encoding="utf-8")
)
SCRIPT = """\
mkdir -p up broken released
case $1 in
new) echo "$RESALLOC_POOL_ID" >> calls
     [ ! -p "hold-$RESALLOC_POOL_ID" ] || read -r _ < "hold-$RESALLOC_POOL_ID"
     touch "up/$RESALLOC_NAME"; echo "$RESALLOC_NAME $RESALLOC_NAMED_COUNTER_ip" ;;
delete) rm -f "up/$RESALLOC_NAME" ;;
list) ls up | grep "^$RESALLOC_POOL_ID" ;;
livecheck) [ ! -e "broken/$RESALLOC_NAME" ] ;;
release) touch "released/$RESALLOC_NAME" ;;
esac
"""
COMMANDS = {f"cmd_{what}": f"sh hook.sh {what}" for what in ("new", "delete", "list", "release")}
LIVECHECK = {"cmd_livecheck": "sh hook.sh livecheck"}
MARKER = {"max": 40, "max_prealloc": 1, "tags": ["marker"]}
"""A pool that tells that a server has decided, without a time to wait for."""


class Player:
    """One client that does what a scenario says, and the machines that exist."""

    def __init__(self, client: OldClient, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._tickets: dict[str, int] = {}
        self._machines: dict[str, str] = {}
        self._held: dict[str, Callable[[], None]] = {}

    def play(self, step: dict[str, Any]) -> None:
        """Do a step, or see that it is as it says."""
        (verb, subject), *more = step.items()
        getattr(self, f"_{verb}")(subject, **dict(more))

    def _take(self, name: str, tags: list[str], sandbox: str = "") -> None:
        self._tickets[name] = self._client.take(*tags, sandbox=sandbox)

    def _ready(self, name: str, pool: str = "", counter: int | None = None) -> None:
        machine, *number = str(self._client.wait(self._tickets[name])).split()
        self._machines[name] = machine
        assert machine.startswith(pool)
        assert (self._folder / "up" / machine).exists()
        assert counter is None or number == [str(counter)]

    def _waits(self, name: str) -> None:
        for _ in range(2):
            marker = self._client.take("marker")
            self._client.wait(marker)
            self._client.close(marker)
        assert self._client.collect(self._tickets[name])["ready"] is False

    def _close(self, name: str) -> None:
        assert self._client.close(self._tickets[name]) is True

    def _gone(self, name: str) -> None:
        seconds_until(lambda: not (self._folder / "up" / self._machines[name]).exists())

    def _none(self, pool: str) -> None:
        seconds_until(
            lambda: not any(p.name.startswith(pool) for p in (self._folder / "up").iterdir())
        )

    def _released(self, name: str) -> None:
        seconds_until((self._folder / "released" / self._machines[name]).exists)

    def _break(self, name: str) -> None:
        (self._folder / "broken" / self._machines[name]).touch()

    def _failed(self, name: str) -> None:
        seconds_until(lambda: bool(self._client.collect(self._tickets[name])["failed"]))

    def _same(self, names: list[str]) -> None:
        assert len({self._machines[name] for name in names}) == 1

    def _different(self, names: list[str]) -> None:
        assert len({self._machines[name] for name in names}) == len(names)

    def _made(self, count: int) -> None:
        assert len([pool for pool in self._calls() if pool != "marker"]) == count

    def _begun(self, pool: str) -> None:
        seconds_until(lambda: pool in self._calls())

    def _hold(self, pool: str) -> None:
        self._held[pool] = hold_at(self._folder / f"hold-{pool}")

    def _go(self, pool: str) -> None:
        self._held[pool]()

    def _calls(self) -> list[str]:
        path = self._folder / "calls"
        return path.read_text(encoding="utf-8").split() if path.exists() else []


def at_resalloc(folder: Path, script: Callable[[OldClient], None]) -> None:
    """Play against the played Resalloc."""
    server = ResallocServer(folder)
    server.run()
    with server.serving() as url:
        script(OldClient(url))


def at_fleet(folder: Path, script: Callable[[OldClient], None]) -> None:
    """Play against `fleet serve` over the imported pools.yaml."""
    trial = Trial(folder)
    (folder / "fleet.yaml").unlink()
    code, said = trial.do(
        *("import", "resalloc", "pools.yaml", "--fleet", "trial", "--out", "fleet.yaml")
    )
    assert code == 0, said
    written = (folder / "fleet.yaml").read_text(encoding="utf-8")
    trial.write(written.replace("mode: pause", "mode: apply"))
    assert trial.do("state", "init")[0] == 0
    assert trial.do("apply")[0] == 0

    code, console = served(trial, lambda client, _: script(client), "--every", "1s")

    assert code == 0, console.said


@pytest.mark.slow
@pytest.mark.parametrize("side", [at_fleet, at_resalloc])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_gives_expected_answers_to_resalloc_client(
    side: Callable[[Path, Callable[[OldClient], None]], None], name: str, project: Path
) -> None:
    scenario = SCENARIOS[name]
    pools = {
        pool: {**COMMANDS, **(LIVECHECK if "livecheck_period" in keys else {}), **keys}
        for pool, keys in {**scenario["pools"], "marker": MARKER}.items()
    }
    (project / "pools.yaml").write_text(yaml.safe_dump(pools), encoding="utf-8")
    (project / "hook.sh").write_text(SCRIPT, encoding="utf-8")
    played: list[object] = []

    def script(client: OldClient) -> None:
        player = Player(client, project)
        for step in scenario["steps"]:
            player.play(step)
            played.append(step)

    side(project, script)

    assert played == scenario["steps"]
