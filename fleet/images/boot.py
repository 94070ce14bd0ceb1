"""This module boots an image until its worker has registered with a token, and judges by HTTP.

What the machine prints on its console is kept and proves nothing.
"""

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleet.images.qemu import HOST, Accelerator, Machine, booted
from fleet.images.reception import Backend, Reception, Stage
from fleet.making.user_data import write_user_data

CONSOLE = "console.log"
_LOOK = 0.1
"""Seconds between two looks at whether the machine still runs."""
_TELL = 1.0
"""Seconds between two sentences on what is waited for."""
Tell = Callable[[str], None]
_DONE = {
    Stage.REGISTERED: "its worker registered with the token",
    Stage.CONNECTED: "its worker connected",
    Stage.TOLD: "its worker told its tags",
    Stage.ASKED: "its worker asked for work",
    Stage.FETCHED: "its worker got work",
    Stage.ENDED: "its worker ended the work",
}
_LOST = {
    Stage.REGISTERED: (
        "its worker never registered with the token: see there whether cloud-init wrote "
        "/etc/debusine/worker/activation-token and the network came up"
    ),
    Stage.CONNECTED: (
        "its worker registered and never opened its websocket: see there why debusine-worker "
        "stopped, and compare its version with the server's"
    ),
    Stage.TOLD: "its worker connected and never told what it can do: compare its version",
    Stage.ASKED: "its worker was told of work and never asked for it: see there why",
    Stage.FETCHED: (
        "its worker is ready and the server gave it no work: post a request that its tags fit, "
        "and test again"
    ),
    Stage.ENDED: "its worker got work and did not end it: allow more time (--limit)",
}


@dataclass(frozen=True)
class Trial:
    """What is booted, against which server, how far it has to come, within how many seconds."""

    disk: Path
    console: Path
    backend: Backend
    token: str = field(repr=False)
    goal: Stage
    accelerator: Accelerator
    limit: float


@dataclass(frozen=True)
class Booted:
    """How far a machine came, each stage after how many seconds, and what is wrong."""

    accelerator: Accelerator
    reached: Mapping[Stage, float]
    provides: tuple[str, ...]
    problems: tuple[str, ...]


def boot_image(trial: Trial, tell: Tell, watch: Tell) -> Booted:
    """Boot a machine until it has come to the goal; it has ended when this returns.

    `tell` hears each stage, `watch` hears every second what is waited for.
    """
    with Reception(trial.token, trial.backend) as reception:
        url = f"http://{HOST}:{reception.port}"
        user_data = write_user_data(url, trial.token)
        machine = Machine(trial.disk, trial.console, trial.accelerator, user_data)
        try:
            with booted(machine) as process:
                ended = _wait(trial, reception, process, tell, watch)
        finally:
            # Also where somebody interrupts this: the token may still be good.
            leaks = _leaks(trial)
        reached, provides = reception.reached(), reception.provides
        refused = reception.refusals
    problems = [*ended, *leaks]
    if ended and refused:
        problems.append(f"the server refused {refused[-1]}: see there why it was asked that")
    return Booted(trial.accelerator, reached, provides, tuple(problems))


def _wait(
    trial: Trial,
    reception: Reception,
    process: "subprocess.Popen[bytes]",
    tell: Tell,
    watch: Tell,
) -> list[str]:
    """Wait for the goal; returns why it was not come to."""
    began = time.monotonic()
    under = trial.accelerator.upper()
    told = -_TELL
    for stage in (each for each in Stage if Stage.ABSENT < each <= trial.goal):
        while not reception.wait_for(stage, _LOOK):
            seconds = time.monotonic() - began
            if seconds >= told + _TELL:
                watch(f"booting under {under}, {seconds:.0f} s: not yet: {_DONE[stage]}")
                told = seconds
            if process.poll() is not None:
                return [_ended(trial, process)]
            if seconds > trial.limit:
                return [f"{trial.console}: after {trial.limit:.0f} s {_LOST[stage]}"]
        tell(f"{_DONE[stage]} after {reception.reached()[stage]:.0f} s")
    return []


def _ended(trial: Trial, process: "subprocess.Popen[bytes]") -> str:
    said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
    if process.returncode:
        last = said.splitlines()[-1] if said else "it did not say why"
        return f"{trial.disk}: QEMU ended with {process.returncode}: {last}"
    return (
        f"{trial.console}: the machine switched itself off, or panicked, before its worker was "
        "ready: see there why"
    )


def _leaks(trial: Trial) -> list[str]:
    """Take the token out of the console's log, where it was printed."""
    try:
        text = trial.console.read_bytes()
    except FileNotFoundError:
        return []
    token = trial.token.encode()
    if token not in text:
        return []
    trial.console.write_bytes(text.replace(token, b"***"))
    return [f"{trial.console}: the machine printed its token on the console: see there what did"]
