"""Serve tickets to clients of Resalloc, and run `apply` repeatedly: `fleet serve`."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit

from fleet.apply.config import load_config, read_seconds, refuse_throwaway_state
from fleet.apply.metrics import LiveMetrics
from fleet.apply.parallel import Background, default_jobs
from fleet.apply.run import RunOptions
from fleet.apply.satellites import connected
from fleet.apply.saved_plan import Selection
from fleet.apply.timer import WakeableTimer
from fleet.apply.wire import read_members
from fleet.cli.apply import ApplyResult, Runs, Schedule, keep_running
from fleet.cli.arguments import FILE, flag, option
from fleet.clock import SystemClock
from fleet.engines.projects import evaluate
from fleet.errors import EngineAbsent, FleetError, WrongUsage
from fleet.planner.solver import can_solve
from fleet.ports import Console
from fleet.schema.model import Fleet
from fleet.state.store import store_of
from fleet.tickets.connections import Bounds
from fleet.tickets.desk import find_desk
from fleet.tickets.service import TicketCalls
from fleet.tickets.store import DatabaseTickets
from fleet.tickets.xml_rpc import CredentialFiles, Health, XmlRpcServer, has_hung_up

ARGUMENTS = (
    FILE,
    option(
        "--listen",
        "ADDRESS:PORT",
        "address to listen on, with port 0 for any free one; addresses other than loopback need "
        "--tokens and --certificate (default: 127.0.0.1:49100)",
        default="127.0.0.1:49100",
    ),
    option("--queue", "NAME", "queue of kind tickets; required if fleet.yaml has several"),
    option(
        "--every",
        "DURATION",
        "maximum time between two runs; a new or closed ticket starts one (default: 20s)",
        default="20s",
    ),
    option(
        "--apart",
        "DURATION",
        "minimum average time between runs, in bursts of up to five (default: 1s)",
        default="1s",
    ),
    option(
        "--tokens",
        "FILE",
        "file of clients, one NAME TOKEN per line; each sees only its own tickets",
    ),
    option("--certificate", "FILE", "serve TLS with this certificate chain, in PEM"),
    option("--key", "FILE", "private key of the certificate (default: in its file)"),
    flag("--pages", "also serve the status pages of the last run, to every client"),
    flag("--json", "print the outcome of each run as JSON"),
)


_PATIENCE_SECONDS = 0.5
"""Seconds that a run waits for new machines before it assigns machines to waiting tickets."""
_RESERVE = 256
"""Number of open files to reserve for runs: for stores, commands, engines and sources."""


def run(args: argparse.Namespace, console: Console, bell: WakeableTimer | None = None) -> int:
    """Serve clients and run `apply` repeatedly until a signal. Return the exit code."""
    schedule = Schedule(read_seconds("--every", args.every))
    bell = bell or WakeableTimer(read_seconds("--apart", args.apart))
    with bell.heard():
        return _serve(args, console, schedule, bell)


def _serve(
    args: argparse.Namespace, console: Console, schedule: Schedule, bell: WakeableTimer
) -> int:
    config = load_config(args, console)
    queue, _ = find_desk(config.fleet, args.queue)
    refuse_throwaway_state(config.fleet, args.file)
    jobs = default_jobs()
    own_store = partial(store_of, config.fleet, args.file)
    background = Background(jobs, own_store(), bell.wake, _PATIENCE_SECONDS)
    options = RunOptions(Selection(), background, bell)
    runs = Runs(args, console, config, options)
    # Calls are handled at the same time as runs, so calls have a separate store.
    book = DatabaseTickets(own_store().begin, queue)
    # Report a missing store now, instead of to each client.
    book.tickets()
    calls = TicketCalls(queue, book, SystemClock(), lambda: runs.fleet, bell.wake)
    calls.members = lambda: read_members(runs.fleet, args.file)
    runs.watch = background.given = calls.tell
    credentials = CredentialFiles(args.tokens, args.certificate, args.key, console.note)

    health = Health(SystemClock())

    def once() -> ApplyResult:
        with bell.changing():
            renewed = credentials.read_again()
        if renewed:
            server.renew(renewed.tokens, renewed.tls)
        try:
            with health.run():
                done = runs.run()
        finally:
            calls.tell()
        if done.changed and done.code == 0:
            # Meanwhile new machines may be ready, and deleted machines leave capacity.
            bell.look_again()
        return done

    bounds = bounds_here()
    calls.has_hung_up = has_hung_up
    calls.bound_waiting(bounds.calls)
    with _listening(args, calls, credentials, bounds, console.note) as server:
        server.health = health.tell
        metrics = LiveMetrics(own_store(), lambda: runs.fleet, lambda: server.wrong_tokens)
        runs.shown.append(metrics.show)
        server.metrics = metrics.read
        if args.pages:
            pages = connected().served_pages(own_store())
            runs.shown.append(pages.show)
            server.pages = pages.read
            console.note(f"status pages at {server.url}/")
        console.note(f"listening at {server.url} for tickets of queue {queue}")
        # An interrupt during an import may be lost in a callback.
        with bell.changing():
            load_ahead(config.fleet)
        return keep_running(once, schedule, console, bell, background)


def bounds_here() -> Bounds:
    """Raise the limit of open files if needed, and return server limits that fit it."""
    wanted = Bounds.calls + Bounds.idle + _RESERVE
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft != RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == RLIM_INFINITY else min(wanted, hard)
        setrlimit(RLIMIT_NOFILE, (soft, hard))
    below = wanted if soft == RLIM_INFINITY else soft
    left = max(below - _RESERVE, below // 2)
    calls = min(Bounds.calls, left * 2 // 3)
    return Bounds(calls, min(Bounds.idle, left - calls))


def load_ahead(fleet: Fleet) -> None:
    """Import the modules for creations now, because importing takes longer than a creation."""
    can_solve()
    # If the optional dependency is missing, the first change reports that.
    with suppress(EngineAbsent):
        if any(provider.engine == "embedded" for provider in fleet.providers.values()):
            evaluate(lambda: None, project="none", stack="none")


@contextmanager
def _listening(
    args: argparse.Namespace,
    calls: TicketCalls,
    credentials: CredentialFiles,
    bounds: Bounds,
    note: Callable[[str], None],
) -> Iterator[XmlRpcServer]:
    host, port = _address(args.listen)
    if not ip_address(host).is_loopback and not (args.tokens and args.certificate):
        raise WrongUsage(
            f"--listen {args.listen}: a non-loopback address needs --tokens and --certificate"
        )
    tokens, tls = credentials.read()
    try:
        server = XmlRpcServer(
            (host, port), calls.answer, tokens=tokens, tls=tls, bounds=bounds, note=note
        )
    except OSError as error:
        raise FleetError(f"cannot listen on {args.listen}: {error.strerror}") from error
    with server:
        try:
            yield server
        finally:
            calls.end()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 16:
        raise WrongUsage(
            f"--listen {text}: expected an IP address and a port, as in 127.0.0.1:49100 or "
            "[::1]:49100"
        )
    return str(address), number
