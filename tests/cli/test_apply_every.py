"""`fleet apply --every`: plain applies one after the other, and what ends them.

Where a test is about what happens between runs, the loop runs inside the test and waits no time.
"""

import gc
import io
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from fleet.apply.timer import Signals
from fleet.cli import apply
from fleet.cli.console import TerminalConsole
from fleet.program import build_parser
from tests.builders.sentences import tells
from tests.rigs.loopback import Loopback, html
from tests.rigs.process import clean_environment
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml
from tests.rigs.warm import Started, Warm

MIN_1 = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 1, min: 1}}"


@pytest.fixture(autouse=True, scope="module")
def _little_garbage() -> None:
    """Spare each run of a loop, which collects garbage, what earlier tests loaded."""
    gc.collect()
    gc.freeze()


class Between(Signals):
    """Does something between each two runs, then asks to end."""

    def __init__(self, *happenings: Callable[[], object]) -> None:
        super().__init__()
        self._happenings = iter(happenings)

    def wait(self, seconds: float) -> bool:  # noqa: ARG002 - the port's own argument
        """Have the next thing happen; False where nothing is left to happen."""
        return next(self._happenings, lambda: False)() is not False


def kept(
    trial: Trial, *options: str, between: tuple[Callable[[], object], ...]
) -> tuple[int, str]:
    """Return the exit code of a loop during which this happens, and all that it said."""
    args = build_parser().parse_args(["apply", "--every", "60s", *options])
    said = io.StringIO()
    with chdir(trial.folder), redirect_stdout(said), redirect_stderr(said):
        code = apply.run(args, TerminalConsole(), Between(*between))
    return code, said.getvalue()


def nothing() -> None:
    """Nothing happens."""


def test_loop_continues_when_its_output_is_on_full_disk(trial: Trial) -> None:
    trial.wait_for("1")
    args = build_parser().parse_args(["apply", "--every", "60s"])
    said = io.StringIO()

    with (
        Path("/dev/full").open("w") as full,
        chdir(trial.folder),
        redirect_stdout(full),
        redirect_stderr(said),
    ):
        code = apply.run(args, TerminalConsole(), Between(nothing))

    assert tells(said.getvalue(), "run failed, the next one retries", "standard output")
    assert "Traceback" not in said.getvalue()
    assert (code, trial.machines()) == (0, ["trial-builders-0001"])


def test_until_quiet_creates_and_deletes_machines_then_stops(trial: Trial) -> None:
    trial.wait_for("1")

    def take() -> None:
        trial.wait_for()
        trial.cloud.assign("trial-builders-0001", "1")

    code, said = kept(
        trial,
        "--until-quiet",
        between=(
            lambda: trial.age(minutes=1),
            take,
            lambda: trial.cloud.assign("trial-builders-0001", None),
            lambda: trial.age(hours=1),
            *[nothing] * 5,
        ),
    )

    assert code == 0
    assert "+ created 1: trial-builders-0001" in said
    assert "~ drained 1: trial-builders-0001" in said
    assert "- deleted 1: trial-builders-0001" in said
    assert "7 runs" in said.splitlines()[-1]
    assert trial.machines() == []


def test_loop_prints_a_line_per_run_with_json(trial: Trial) -> None:
    trial.wait_for("1")

    _, said = kept(trial, "--json", between=(nothing,))

    create, first, *rest = said.splitlines()
    lines = [json.loads(line) for line in (first, rest[0])]
    assert [[stack["created"] for stack in line["stacks"]] for line in lines] == [
        [[], ["trial-builders-0001"]],
        [[], []],
    ]
    assert tells(create, "builders", "create", "trial-builders-0001")
    assert len(rest) == 2
    assert "2 runs" in rest[-1]


# what somebody writes while it runs


def test_next_run_reads_edit_of_included_file(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, more="include: [fleet.d/*.yaml]\n"))
    included = trial.folder / "fleet.d/more.yaml"
    included.parent.mkdir()
    included.write_text("cadence: 5m\n")

    code, said = kept(
        trial, between=(lambda: included.write_text(f"pools: {{more: {MIN_1}}}\n"), nothing)
    )

    assert code == 0
    assert "+ created 1: trial-more-0001" in said


def test_loop_reports_invalid_edit_once_and_continues(trial: Trial) -> None:
    good = fleet_yaml(pools={"builders": BUILDERS})
    trial.write(good)

    _, said = kept(
        trial,
        between=(
            lambda: trial.write(good + "powerfuls: []\n"),
            lambda: trial.wait_for("1"),
            lambda: trial.write(good),
        ),
    )

    assert said.count("error[unknown-key]") == 1
    assert said.endswith("4 runs (2 failed)\n")
    assert trial.machines() == ["trial-builders-0001"]


@pytest.mark.slow
def test_loop_ignores_edit_with_name_of_another_fleet(trial: Trial) -> None:
    _, said = kept(
        trial,
        between=(
            lambda: trial.write(fleet_yaml().replace("fleet: trial", "fleet: other")),
            lambda: trial.wait_for("1"),
        ),
    )

    told = [line for line in said.splitlines() if tells(line, "fleet.yaml", "`fleet`", "`state`")]
    assert len(told) == 1
    assert trial.machines() == ["trial-builders-0001"]


# signals, locks, kills


@contextmanager
def looping(trial: Trial, warm: Warm) -> Iterator[Started]:
    """Start a loop as a process; all that it says goes to its standard output."""
    env = clean_environment(trial.folder)
    loop = ("apply", "--every", "1h")
    with warm.started(*loop, cwd=trial.folder, env=env, apart=False) as process:
        yield process


def hear(process: Started, what: str) -> None:
    """Read what it says until it says this."""
    assert any(what in line for line in process.stdout), f"it ended without saying {what}"


def left(process: Started) -> tuple[int, str]:
    """Return the exit code and what it said to the end."""
    said = process.stdout.read()
    return process.wait(), said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_loop_stops_immediately_when_signalled_between_runs(
    trial: Trial, warm: Warm, number: signal.Signals
) -> None:
    with looping(trial, warm) as process:
        hear(process, "unchanged: big, builders")
        process.send_signal(number)
        code, said = left(process)

    assert (code, said.count("\n")) == (0, 1)


def test_loop_stops_immediately_when_signalled_during_a_read(trial: Trial, warm: Warm) -> None:
    with Loopback(lambda _: html()) as server:
        server.faults.hold = True
        queue = f"{{kind: debusine, url: '{server.url}', scopes: [debian]}}"
        trial.write(fleet_yaml(pools={"builders": BUILDERS}, queue=queue))
        with looping(trial, warm) as process:
            assert server.asked.wait(timeout=60)
            process.send_signal(signal.SIGTERM)
            code, said = left(process)

    assert (code, said.count("\n")) == (0, 1)


def test_loop_finishes_current_step_when_signalled(trial: Trial) -> None:
    trial.wait_for("1", big=["2"])
    signals = Signals()

    code, said = struck(trial, signals, times=1)

    assert code == 0
    assert tells(said, "  ", "builders")
    assert "1 run" in said.splitlines()[-1]
    assert trial.machines() == ["trial-big-0001"]
    assert trial.recorded() == ["trial-big-0001"]


def test_loop_interrupts_current_step_when_signalled_twice(trial: Trial) -> None:
    trial.wait_for("1", big=["2"])

    with pytest.raises(KeyboardInterrupt):
        struck(trial, Signals(), times=2)

    assert trial.outcome()["builders"]["created"] == ["trial-builders-0001"]
    assert trial.machines() == ["trial-big-0001", "trial-builders-0001"]


def struck(trial: Trial, signals: Signals, *, times: int) -> tuple[int, str]:
    """Return what becomes of a loop that hears a signal when it begins to change something."""

    class Struck(TerminalConsole):
        def note(self, text: str) -> None:
            super().note(text)
            if text.startswith("big: create"):
                for _ in range(times):
                    signal.raise_signal(signal.SIGTERM)

    args = build_parser().parse_args(["apply", "--every", "60s"])
    said = io.StringIO()
    with chdir(trial.folder), redirect_stdout(said), redirect_stderr(said):
        code = apply.run(args, Struck(), signals)
    return code, said.getvalue()


def test_next_loop_continues_after_kill(trial: Trial, warm: Warm) -> None:
    trial.wait_for("1")
    with looping(trial, warm) as process:
        hear(process, "+ created 1: trial-builders-0001")
        process.kill()

    _, said = kept(trial, between=())

    assert tells(said, "Applied", "nothing", "fleet trial")
    assert trial.machines() == ["trial-builders-0001"]
