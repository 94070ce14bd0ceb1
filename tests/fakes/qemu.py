"""A QEMU for tests: it boots nothing, reads the seed as cloud-init does, and acts.

What it does is in the file that FAKE_QEMU names: `register` comes as a worker does, `off` ends at
once, `fail` is a QEMU that cannot, `print` shows the token on the console, `kvm` is one that runs
under KVM. Its process number is written beside.
"""

import os
import re
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from tests.rigs.process import ROOT
from tests.rigs.worker_client import TAGS, WorkerClient


def install_qemu(folder: Path, *told: str) -> dict[str, str]:
    """Put it into a folder, told what to do; returns the environment that has it found first."""
    folder.mkdir(exist_ok=True)
    program, orders = folder / "qemu-system-x86_64", folder / "orders"
    start = f'PYTHONPATH={ROOT} exec {sys.executable} -m tests.fakes.qemu "$@"'
    program.write_text(f"#!/bin/sh\n{start}\n", encoding="utf-8")
    program.chmod(0o755)
    orders.write_text(" ".join(told), encoding="utf-8")
    return {"PATH": f"{folder}:{os.environ['PATH']}", "FAKE_QEMU": str(orders)}


def pid_of(folder: Path) -> int:
    """Return the process number of the one that was started last."""
    return int((folder / "orders.pid").read_text(encoding="utf-8"))


def main() -> int:
    """Do as told."""
    orders = Path(os.environ["FAKE_QEMU"])
    told = orders.read_text(encoding="utf-8").split()
    options = " ".join(sys.argv)
    if "isa-debug-exit" in options:
        return 33 if "kvm" in told else 1
    if "fail" in told:
        sys.stderr.write("qemu: starting\nqemu: could not open the disk\n")
        return 1
    token, port = _given(options)
    shown = token if "print" in told else "nothing"
    console = sys.argv[sys.argv.index("-serial") + 1].removeprefix("file:")
    Path(console).write_text(f"Linux boots and shows {shown}\n", encoding="utf-8")
    written = orders.with_suffix(".partial")
    written.write_text(str(os.getpid()), encoding="utf-8")
    written.rename(orders.with_suffix(".pid"))
    if "register" in told:
        _come(WorkerClient(port), token)
    if "off" not in told:
        time.sleep(600)
    return 0


def _given(options: str) -> tuple[str, int]:
    """Return the token and the server's port that the seed holds."""
    seed = re.search(r"file=(/dev/fd/\d+)", options)
    assert seed
    text = Path(seed[1]).read_bytes().decode(errors="replace")
    token = re.search(r"content: (\w{64})\n", text)
    url = re.search(r"api-url = (http://10\.0\.2\.2:\d+)/api\n", text)
    assert token
    assert url
    return token[1], urlsplit(url[1]).port or 0


def _come(worker: WorkerClient, token: str) -> None:
    assert worker.register(token) == 201
    with worker.connected() as websocket:
        websocket.message()
        websocket.message()
        worker.tell(TAGS)
        worker.fetch()


if __name__ == "__main__":
    sys.exit(main())
