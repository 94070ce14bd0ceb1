"""This module gives out machines: it answers clients of Resalloc, and applies beside that."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from ipaddress import ip_address
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit

from fleet.commands.applying import Terms
from fleet.commands.background import Background
from fleet.commands.bell import Bell
from fleet.commands.clock import SystemClock
from fleet.commands.config import load_config, refuse_throwaway_state
from fleet.commands.credentials import CredentialFiles
from fleet.commands.crew import Pace, default_jobs
from fleet.commands.desks import find_desk, read_members
from fleet.commands.options import read_seconds
from fleet.commands.runs import Runs, keep_running
from fleet.engines.evaluate import evaluate
from fleet.errors import FleetError, Locked, WrongUsage
from fleet.operate.loop import Rhythm, Run
from fleet.operate.order import Order
from fleet.ports import Clock, Console
from fleet.schema.model import Fleet
from fleet.service.tickets import TicketCalls
from fleet.service.xml_rpc import Bounds, XmlRpcServer, has_hung_up
from fleet.store.database import DatabaseStore
from fleet.store.places import find_places
from fleet.store.tickets import DatabaseTickets

_MOST_FAILURES = 3
"""Runs in a row that fail before /healthz says so with 503: one alone the next makes good."""
_PATIENCE_SECONDS = 0.5
"""A run waits so long for machines to be made or cleaned; then who is waiting is served first."""
_RESERVE = 256
"""Open files that a run may need: stores, hooks, engines, what is read."""


def run(args: argparse.Namespace, console: Console, bell: Bell | None = None) -> int:
    """Serve and apply until somebody asks to end."""
    rhythm = Rhythm(read_seconds("--every", args.every))
    bell = bell or Bell(read_seconds("--apart", args.apart))
    config = load_config(args, console)
    queue, _ = find_desk(config.fleet, args.queue)
    refuse_throwaway_state(config.fleet, args.file)
    place = find_places(config.fleet, args.file).store
    jobs = default_jobs()
    background = Background(
        jobs, DatabaseStore(place, config.fleet.fleet), bell.ring, _PATIENCE_SECONDS
    )
    terms = Terms(Order(), Pace(jobs, background=background), bell)
    runs = Runs(args, console, config, terms)
    # Clients are answered beside the runs: of another store's lock.
    store = DatabaseStore(place, config.fleet.fleet)
    book = DatabaseTickets(store.begin, queue)
    # A store that was never made is told now, and not to each client.
    book.tickets()
    calls = TicketCalls(queue, book, SystemClock(), lambda: runs.fleet, bell.ring)
    calls.members = lambda: read_members(runs.fleet, args.file)
    runs.watch = background.given = calls.tell
    credentials = CredentialFiles(args, console)

    health = Health(SystemClock())

    def once() -> Run:
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
            # What was made may be up by then, and what was let go has left room.
            bell.look_again()
        return done

    bounds = bounds_here()
    calls.has_hung_up = has_hung_up
    calls.most_waiting = bounds.calls * 3 // 4
    with _listening(args, calls, credentials, bounds) as server:
        server.health = health.tell
        console.note(f"listening at {server.url} for tickets of queue {queue}")
        load_ahead(config.fleet)
        return keep_running(once, rhythm, console, bell, background)


class Health:
    """How the runs beside the service go."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._ended: datetime | None = None

    @contextmanager
    def run(self) -> Iterator[None]:
        """Note how a run ends; one that another run kept from beginning is none."""
        try:
            yield
        except Locked:
            raise
        except BaseException:
            self._failures += 1
            raise
        self._failures = 0
        self._ended = self._clock.now()

    def tell(self) -> tuple[bool, Mapping[str, object]]:
        """Return whether the latest runs came to their end, and when the last did that has."""
        ended = self._ended.isoformat() if self._ended else None
        told = {"failed_runs_in_a_row": self._failures, "last_run_ended": ended}
        return self._failures < _MOST_FAILURES, told


def bounds_here() -> Bounds:
    """Raise the limit of open files as far as is needed; return how many calls fit below it."""
    wanted = Bounds.calls + _RESERVE
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft != RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == RLIM_INFINITY else min(wanted, hard)
        setrlimit(RLIMIT_NOFILE, (soft, hard))
    below = wanted if soft == RLIM_INFINITY else soft
    return Bounds(min(Bounds.calls, max(below - _RESERVE, below // 2)))


def load_ahead(fleet: Fleet) -> None:
    """Load what the first order needs, which takes longer than the order itself."""
    import_module("highspy")
    if any(provider.engine == "embedded" for provider in fleet.providers.values()):
        evaluate(lambda: None, project="none", stack="none")


@contextmanager
def _listening(
    args: argparse.Namespace,
    calls: TicketCalls,
    credentials: CredentialFiles,
    bounds: Bounds,
) -> Iterator[XmlRpcServer]:
    host, port = _address(args.listen)
    if not _is_here(host) and not (args.tokens and args.certificate):
        raise WrongUsage(
            f"--listen {args.listen} is more than this computer: say with --tokens who may ask, "
            "and with --certificate what proves it to be this server"
        )
    tokens, tls = credentials.read()
    try:
        server = XmlRpcServer((host, port), calls.answer, tokens=tokens, tls=tls, bounds=bounds)
    except OSError as error:
        raise FleetError(f"cannot listen at {args.listen}: {error.strerror}") from error
    with server:
        try:
            yield server
        finally:
            calls.end()


def _address(said: str) -> tuple[str, int]:
    host, _, port = said.rpartition(":")
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 16:
        raise WrongUsage(
            f"--listen {said}: expected an IP address and a port, as in 127.0.0.1:49100 or "
            "[::1]:49100"
        )
    return str(address), number


def _is_here(host: str) -> bool:
    return ip_address(host).is_loopback
