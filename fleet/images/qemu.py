"""This module runs a machine under QEMU that ends with this process, however that ends.

The disk stays as it is: what the machine writes goes to a file without a name. What it is given at
its first boot is a small disk in memory, so that a token lies in no file.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from fleet.errors import FleetError
from fleet.images.programs import need

HOST = "10.0.2.2"
"""Under which address a machine sees the computer that it runs on."""
Accelerator = Literal["kvm", "tcg"]
_QEMU = "qemu-system-x86_64"
_MEMORY = 2048
_PROCESSORS = 2
_SEED_BYTES = 2 << 20
_FIRMWARE = (
    "/usr/share/ovmf/OVMF.fd",
    "/usr/share/qemu/OVMF.fd",
    "/usr/share/edk2/x64/OVMF.4m.fd",
    "/usr/share/edk2-ovmf/OVMF.fd",
)
# The processor `host` fails at once where KVM only seems to work. Of what TCG emulates,
# cmpxchg16b has been seen to end in a panic.
_ACCELERATE: dict[Accelerator, tuple[str, ...]] = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    "tcg": ("-accel", "tcg,thread=multi", "-cpu", "qemu64,-cx16"),
}
_PROBE_SECONDS = 4
_PROBE_STATUS = 33
# mov dx, 0xf4; mov al, 0x10; out dx, al; hlt: QEMU ends with 2 * 0x10 + 1.
_PROBE = bytes.fromhex("baf400b010eef4").ljust(510, b"\0") + b"\x55\xaa"
# Whoever starts this may be gone before the kernel was told to end it with them.
_WITH_US = 'test "$PPID" = "$1" || exit 1; shift; exec "$@"'


@dataclass(frozen=True)
class Machine:
    """What is booted, what it is given, and the file that its console is written to."""

    disk: Path
    console: Path
    accelerator: Accelerator
    user_data: str = field(repr=False)


def choose_accelerator() -> Accelerator:
    """Return kvm where a machine surely runs under it, which takes seconds at most; else tcg."""
    with tempfile.TemporaryFile() as disk:
        disk.write(_PROBE)
        disk.flush()
        drive = f"file=/dev/fd/{disk.fileno()},format=raw,if=ide,snapshot=on"
        exit_ = ("-device", "isa-debug-exit,iobase=0xf4,iosize=1")
        options = (*_ACCELERATE["kvm"], "-m", "16", "-nodefaults", "-display", "none")
        with _started(disk, *options, "-no-reboot", "-drive", drive, *exit_) as process:
            try:
                return "kvm" if process.wait(_PROBE_SECONDS) == _PROBE_STATUS else "tcg"
            except subprocess.TimeoutExpired:
                return "tcg"


@contextmanager
def booted(machine: Machine) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a machine meanwhile; what QEMU itself complains of is read from its `stderr`."""
    with _seed(machine.user_data) as seed:
        path = str(machine.disk).replace(",", ",,")  # as QEMU reads one of its options
        disk = f"file={path},format={machine.disk.suffix[1:]},if=virtio,snapshot=on"
        options = (
            *("-M", "q35", *_ACCELERATE[machine.accelerator], "-bios", find_firmware()),
            *("-m", str(_MEMORY), "-smp", str(_PROCESSORS), "-nodefaults", "-display", "none"),
            *("-no-reboot", "-serial", f"file:{machine.console}", "-drive", disk),
            *("-drive", f"file=/dev/fd/{seed.fileno()},format=raw,if=virtio,readonly=on"),
            *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"),
            *("-device", "virtio-rng-pci"),
        )
        with _started(seed, *options) as process:
            yield process


def find_firmware() -> str:
    """Return the UEFI that a machine starts with; raises FleetError where there is none."""
    for place in _FIRMWARE:
        with suppress(OSError):
            if Path(place).stat().st_size:
                return place
    raise FleetError("no UEFI firmware for QEMU is installed here: install the package ovmf")


@contextmanager
def _started(file: IO[bytes], *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start QEMU with an open file, and see that it ends."""
    die_with_us = (need("setpriv"), "--pdeathsig=KILL", "--")
    guarded = ("/bin/sh", "-c", _WITH_US, "sh", str(os.getpid()))
    with subprocess.Popen(  # noqa: S603 - QEMU, with options of this module's own making
        [*die_with_us, *guarded, need(_QEMU), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(file.fileno(),),
        start_new_session=True,  # Ctrl-C is ours to hear
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _seed(user_data: str) -> Iterator[IO[bytes]]:
    """Make the disk that cloud-init reads at the first boot, in memory."""
    meta_data = "instance-id: fleet-image-test\nlocal-hostname: fleet-image-test\n"
    with os.fdopen(os.memfd_create("seed"), "r+b") as disk:
        os.ftruncate(disk.fileno(), _SEED_BYTES)
        place = f"/dev/fd/{disk.fileno()}"
        _run(disk, "", "mkfs.vfat", "-n", "CIDATA", place)
        for name, text in (("user-data", user_data), ("meta-data", meta_data)):
            _run(disk, text, "mcopy", "-i", place, "-", f"::{name}")
        yield disk


def _run(file: IO[bytes], text: str, program: str, *args: str) -> None:
    done = subprocess.run(  # noqa: S603 - programs of this module's own choice
        [need(program), *args],
        input=text.encode(),
        capture_output=True,
        check=False,
        pass_fds=(file.fileno(),),
    )
    if done.returncode:
        raise FleetError(f"{program}: {done.stderr.decode(errors='replace').strip()}")
