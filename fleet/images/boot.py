"""Test an image: boot it under QEMU until its worker asks the server for work.

The kernel kills the machine when this process exits or is killed.

QEMU writes changes to an unnamed file and leaves the disk unchanged. The user data is on a small
disk in memory, so that no file contains the worker's token.

The console output is kept for people; the test does not evaluate the output.
"""

import argparse
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Literal

from fleet.apply.config import read_seconds
from fleet.apply.wire import registries_of
from fleet.clock import utc_now
from fleet.errors import FleetError, WorkerBusy, WrongUsage
from fleet.images.fake_debusine import Stage, WorkerServer
from fleet.images.folder import CONSOLE, QCOW2
from fleet.images.programs import last_line, need, run_on
from fleet.model.images import Manifest, Test
from fleet.model.user_data import write_user_data
from fleet.ports import Console, Enrolment, Tell
from fleet.schema.model import DebusineQueue, Fleet
from fleet.state.secrets import HostSecrets

HOST = "10.0.2.2"
"""The address of this computer as seen from a machine in QEMU's user network."""
Accelerator = Literal["kvm", "tcg"]
_QEMU = "qemu-system-x86_64"
_MEMORY_MIB = 2048
_PROCESSORS = 2
_SEED_BYTES = 2 << 20
_FIRMWARE = (
    "/usr/share/ovmf/OVMF.fd",
    "/usr/share/qemu/OVMF.fd",
    "/usr/share/edk2/x64/OVMF.4m.fd",
    "/usr/share/edk2-ovmf/OVMF.fd",
)
# With `-cpu host`, a broken KVM fails immediately. TCG runs without cmpxchg16b: with it, kernels
# have panicked.
_ACCELERATE: dict[Accelerator, tuple[str, ...]] = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    "tcg": ("-accel", "tcg,thread=multi", "-cpu", "qemu64,-cx16"),
}
_PROBE_SECONDS = 4
_PROBE_STATUS = 33
# mov dx, 0xf4; mov al, 0x10; out dx, al; hlt: QEMU ends with 2 * 0x10 + 1.
_PROBE = bytes.fromhex("baf400b010eef4").ljust(510, b"\0") + b"\x55\xaa"
# The parent may exit before --pdeathsig is set, so the shell checks that the parent lives.
_EXEC_IF_PARENT_LIVES = 'test "$PPID" = "$1" || exit 1; shift; exec "$@"'


def choose_accelerator() -> Accelerator:
    """Return kvm if a probe machine runs under KVM within `_PROBE_SECONDS`, or else tcg."""
    with tempfile.TemporaryFile() as disk:
        disk.write(_PROBE)
        disk.flush()
        drive = f"file=/dev/fd/{disk.fileno()},format=raw,if=ide,snapshot=on"
        exit_ = ("-device", "isa-debug-exit,iobase=0xf4,iosize=1")
        options = (*_ACCELERATE["kvm"], "-m", "16", "-nodefaults", "-display", "none")
        with _start_qemu(disk, *options, "-no-reboot", "-drive", drive, *exit_) as process:
            try:
                return "kvm" if process.wait(_PROBE_SECONDS) == _PROBE_STATUS else "tcg"
            except subprocess.TimeoutExpired:
                return "tcg"


@contextmanager
def booted(
    disk: Path, console: Path, accelerator: Accelerator, user_data: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a machine in the context. `stderr` of the yielded process has QEMU's errors."""
    meta_data = "instance-id: fleet-image-test\nlocal-hostname: fleet-image-test\n"
    # cloud-init reads the disk at the first boot.
    with os.fdopen(os.memfd_create("seed"), "r+b") as seed:
        os.ftruncate(seed.fileno(), _SEED_BYTES)
        place = f"/dev/fd/{seed.fileno()}"
        run_on(seed, "mkfs.vfat", "-n", "CIDATA", place, failing="mkfs.vfat")
        for name, text in (("user-data", user_data), ("meta-data", meta_data)):
            target = ("-i", place, "-", f"::{name}")
            run_on(seed, "mcopy", *target, stdin=text.encode(), failing="mcopy")
        path = str(disk).replace(",", ",,")  # QEMU's escape for a comma within an option
        drive = f"file={path},format={disk.suffix[1:]},if=virtio,snapshot=on"
        options = (
            *("-M", "q35", *_ACCELERATE[accelerator], "-bios", find_firmware()),
            *("-m", str(_MEMORY_MIB), "-smp", str(_PROCESSORS), "-nodefaults", "-display", "none"),
            *("-no-reboot", "-serial", f"file:{console}", "-drive", drive),
            *("-drive", f"file={place},format=raw,if=virtio,readonly=on"),
            *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"),
            *("-device", "virtio-rng-pci"),
        )
        with _start_qemu(seed, *options) as process:
            yield process


def find_firmware() -> str:
    """Return the path of the UEFI firmware; raises FleetError if no package provides it."""
    for place in _FIRMWARE:
        with suppress(OSError):
            if Path(place).stat().st_size:
                return place
    raise FleetError("no UEFI firmware for QEMU is installed here: install the package ovmf")


@contextmanager
def _start_qemu(file: IO[bytes], *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run QEMU with an open file, and kill QEMU when the context ends."""
    die_with_us = (need("setpriv"), "--pdeathsig=KILL", "--")
    guarded = ("/bin/sh", "-c", _EXEC_IF_PARENT_LIVES, "sh", str(os.getpid()))
    with subprocess.Popen(  # noqa: S603 - QEMU, with options of this module
        [*die_with_us, *guarded, need(_QEMU), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(file.fileno(),),
        start_new_session=True,  # only this process handles Ctrl-C
    ) as process:
        try:
            yield process
        finally:
            process.kill()


_POLL_SECONDS = 0.1
"""Interval of the checks that the machine is still running."""
_STATUS_SECONDS = 1.0
"""Interval of status lines."""
_DONE = {
    Stage.REGISTERED: "its worker registered with the token",
    Stage.CONNECTED: "its worker connected",
    Stage.REPORTED: "its worker reported its tags",
    Stage.ASKED: "its worker asked for work",
    Stage.FETCHED: "its worker got work",
    Stage.ENDED: "its worker finished the work",
}
_MISSED = {
    Stage.REGISTERED: (
        "its worker never registered with the token: see there whether cloud-init wrote "
        "/etc/debusine/worker/activation-token and the network came up"
    ),
    Stage.CONNECTED: (
        "its worker registered and never opened its websocket: see there why debusine-worker "
        "stopped, and compare its version with the server's"
    ),
    Stage.REPORTED: "its worker connected and never reported its tags: compare its version",
    Stage.ASKED: "its worker was offered work and never asked for it: see there why",
    Stage.FETCHED: (
        "its worker is ready and the server gave it no work: post a request that its tags fit, "
        "and test again"
    ),
    Stage.ENDED: "its worker got work and did not end it: allow more time (--limit)",
}


@dataclass(frozen=True)
class Trial:
    """The inputs of a boot test: disk, console log, server, stage to reach, and time limit."""

    disk: Path
    console: Path
    server: WorkerServer
    """The server to which the worker connects. The test starts the server."""
    goal: Stage
    accelerator: Accelerator
    limit: float


def boot_image(trial: Trial, tell: Tell, watch: Tell) -> Test:
    """Boot a machine until its worker reaches the required stage, then stop the machine.

    `tell` gets a line per reached stage, `watch` a status line every second.
    """
    at, began = utc_now(), time.monotonic()
    with trial.server as server:
        url = f"http://{HOST}:{server.port}"
        user_data = write_user_data(url, server.token)
        try:
            with booted(trial.disk, trial.console, trial.accelerator, user_data) as process:
                ended = _wait_for_goal(trial, server, process, tell, watch)
        finally:
            # Redact the token after an interruption too: the token may still be valid.
            leaks, token = list[str](), server.token.encode()
            text = trial.console.read_bytes() if trial.console.exists() else b""
            if token in text:
                trial.console.write_bytes(text.replace(token, b"***"))
                leaks.append(
                    f"{trial.console}: the machine printed its token on the console: see there "
                    "what did"
                )
    refused = server.refusals[-1:] if ended else ()
    said = (f"the server refused {each}: see the log of the server" for each in refused)
    return Test(
        kind="boot",
        at=at,
        seconds=round(time.monotonic() - began, 1),
        problems=(*ended, *leaks, *said),
        provides=server.provides,
    )


def _wait_for_goal(
    trial: Trial, server: WorkerServer, process: "subprocess.Popen[bytes]", tell: Tell, watch: Tell
) -> list[str]:
    """Wait until the worker reaches the required stage. Return the problems if it fails."""
    began = time.monotonic()
    under = trial.accelerator.upper()
    printed_at = -_STATUS_SECONDS
    for stage in (each for each in Stage if Stage.ABSENT < each <= trial.goal):
        while not server.wait_for(stage, _POLL_SECONDS):
            seconds = time.monotonic() - began
            if seconds >= printed_at + _STATUS_SECONDS:
                watch(f"booting under {under}, {seconds:.0f} s: not yet: {_DONE[stage]}")
                printed_at = seconds
            if process.poll():
                said = last_line(process.stderr.read() if process.stderr else b"")
                return [f"{trial.disk}: QEMU ended with {process.returncode}: {said}"]
            if process.returncode == 0:
                said = "the machine switched itself off, or panicked, before its worker was ready"
                return [f"{trial.console}: {said}: see there why"]
            if seconds > trial.limit:
                return [f"{trial.console}: after {trial.limit:.0f} s {_MISSED[stage]}"]
        tell(f"{_DONE[stage]} after {server.reached()[stage]:.0f} s")
    return []


_BOOTED = "amd64"
_MARGIN = timedelta(minutes=5)
_NOTICED = 60
"""Maximum seconds until a server notices that a worker has disconnected."""


def boot_version(
    fleet: Fleet, args: argparse.Namespace, folder: Path, manifest: Manifest, console: Console
) -> Test:
    """Boot an image version, with the output of its console in its folder."""
    limit = read_seconds("--limit", args.limit)
    if manifest.architecture != _BOOTED:
        raise FleetError(
            f"{folder}: cannot boot an image for {manifest.architecture} here, only {_BOOTED}; "
            "test it without --boot"
        )
    console.progress("checking for kvm")
    accelerator = choose_accelerator() if args.accelerator == "auto" else args.accelerator
    with _server(fleet, args, limit) as (server, goal):
        trial = Trial(
            disk=folder / QCOW2,
            console=folder / CONSOLE,
            server=server,
            goal=goal,
            accelerator=accelerator,
            limit=limit,
        )
        return boot_image(trial, console.note, console.progress)


@contextmanager
def _server(
    fleet: Fleet, args: argparse.Namespace, limit: int
) -> Iterator[tuple[WorkerServer, Stage]]:
    """Yield a local test server or a proxy to a queue's server, and the stage to reach."""
    if not args.queue:
        yield WorkerServer(secrets.token_hex(32)), Stage.ASKED
        return
    queue = fleet.queues.get(args.queue)
    if not isinstance(queue, DebusineQueue) or not queue.admin:
        able = [
            name
            for name, each in fleet.queues.items()
            if isinstance(each, DebusineQueue) and each.admin
        ]
        raise WrongUsage(
            f"--queue {args.queue}: not a Debusine queue with `admin`, which creates the "
            f"worker's token; known: {', '.join(able) or 'none'}"
        )
    # Use another fleet name: else `fleet apply` would take this worker for one that lost its
    # machine.
    name = f"{fleet.fleet}-image-test"
    secret = HostSecrets.beside(args.file)
    registry = registries_of(fleet.model_copy(update={"fleet": name}), secret)[args.queue]
    enrolment = Enrolment(
        worker=name,
        fleet=name,
        pool="image-test",
        expires=utc_now() + timedelta(seconds=limit) + _MARGIN,
    )
    token = registry.enrol(enrolment)
    try:
        yield WorkerServer(token, queue.url), Stage.ENDED
    finally:
        until = time.monotonic() + _NOTICED
        # The server refuses to disable the worker until it has noticed that the machine stopped.
        while True:
            try:
                registry.release(name)
                break
            except WorkerBusy:
                if time.monotonic() > until:
                    raise
                time.sleep(1)
