"""Measure `fleet serve` under load, over the wire: 200 tickets of 20 clients.

50 machines of a person's own commands (`interface: resalloc`, each a shell that makes a file) are
kept ready; each serves one ticket and is made anew. A client takes a ticket, waits for its machine
and closes it, ten times. `first_ticket_s` is a ticket of an idle service whose machines are ready,
from `takeTicket` to the answer of `waitTicket`: the median and the slowest of ten, two seconds
apart. Nothing stands beside it: Resalloc's server is on no package index.
"""

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import perf_counter
from xmlrpc.client import ServerProxy

from bench.report import held_mib

TICKETS, CLIENTS, MACHINES = 200, 20, 50
_FIRST = 10
_PROGRAM = (sys.executable, "-m", "fleet")
_FLEET_YAML = f"""\
fleet: load
queues:
  work: {{kind: tickets}}
pools:
  builders:
    provider: hooks
    hooks:
      interface: resalloc
      new: [sh, -c, 'echo "$RESALLOC_NAME" | tee "up/$RESALLOC_NAME"']
      delete: [sh, -c, 'rm "up/$RESALLOC_NAME"']
      list: [sh, -c, 'ls up']
      at_once: 20
    machine: {{cores: 4, memory: 8GiB, price: 0.1 EUR/h}}
    provides: [arch_x86_64]
    workers: {{max: {MACHINES}, min: {MACHINES}}}
guards:
  throttle:
    create: {{free_below: {MACHINES}}}
    delete: {{count: {MACHINES}}}
"""


def measure_load() -> dict[str, float]:
    """Return seconds and MiB of a load, and of the first ticket of an idle service."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "up").mkdir()
        (folder / "fleet.yaml").write_text(_FLEET_YAML, encoding="utf-8")
        for command in (["state", "init"], ["apply"]):
            subprocess.run([*_PROGRAM, *command], cwd=folder, check=True, capture_output=True)
        figures: dict[str, float] = {}
        with _serving(folder, figures) as url:
            time.sleep(2)
            firsts = [_first(url) for _ in range(_FIRST)]
            began = perf_counter()
            with ThreadPoolExecutor(CLIENTS) as clients:
                waits = [s for own in clients.map(_client, [url] * CLIENTS) for s in own]
            figures["load_wall_s"] = perf_counter() - began
        figures |= {
            "first_ticket_s": statistics.median(firsts),
            "first_ticket_slowest_s": max(firsts),
            "load_wait_median_s": statistics.median(waits),
            "load_wait_slowest_s": max(waits),
        }
    return figures


@contextmanager
def _serving(folder: Path, figures: dict[str, float]) -> Iterator[str]:
    """Serve and yield the address; write down the processor's time and the most memory."""
    process = subprocess.Popen(
        [*_PROGRAM, "serve", "--listen", "127.0.0.1:0"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = process.stdout or ()
    try:
        url = next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
        # It would stop where nobody reads what it says.
        Thread(target=lambda: [None for _ in lines], daemon=True).start()
        yield url
        figures["serve_peak_mib"] = held_mib(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        _, _, usage = os.wait4(process.pid, 0)
    figures["serve_cpu_s"] = usage.ru_utime + usage.ru_stime


def _first(url: str) -> float:
    time.sleep(2)
    return _ticket(url)


def _client(url: str) -> list[float]:
    return [_ticket(url) for _ in range(TICKETS // CLIENTS)]


def _ticket(url: str) -> float:
    """Take a ticket, wait for its machine and close it; return the seconds until it was there."""
    with ServerProxy(url) as server:
        began = perf_counter()
        number = server.takeTicket(["arch_x86_64"])
        server.waitTicket(number)
        took = perf_counter() - began
        server.closeTicket(number)
    return took
