"""Many clients at once, and a service that is killed under them: none lost, none doubled."""

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleet.model.tickets import Ticket, TicketState
from fleet.state.store import Store
from fleet.tickets.store import DatabaseTickets
from tests.rigs.process import clean_environment, fleet_command
from tests.rigs.resalloc_client import OldClient
from tests.rigs.trial import Trial, fleet_yaml

SANDBOXES = 8
GUARDS = "guards: {throttle: {create: {free_below: 100, count: 100}, delete: {count: 100}}}\n"
POOL = "{provider: desk, machine: ccx63, image: trixie, provides: [big], reuse: {opportunity: 1h},"


class Crowd:
    """Clients that each take a ticket, wait for its machine and close it, and who kills."""

    def __init__(self, folder: Path, clients: int) -> None:
        self._folder = folder
        self._clients = clients
        self._listening = threading.Event()
        self._done: Counter[str] = Counter()
        self._moved = threading.Condition()
        self._url = ""

    def ask(self, *kills: str) -> list[int]:
        """Return the ids that the clients got to know, in the order of the clients.

        The service is killed whenever a third of them has done what is named.
        """
        with ThreadPoolExecutor(self._clients) as threads:
            asked = [threads.submit(self._one, number) for number in range(self._clients)]
            for word in kills:
                self._serve_until(word, self._clients // 3)
            self._serve_until("close", self._clients)
            return [each.result(600) for each in asked]

    def _one(self, number: int) -> int:
        place = number % SANDBOXES
        self._listening.wait(600)
        client = OldClient(self._url, patience=100, pause=lambda: self._listening.wait(600))
        ticket = client.take("big", sandbox=f"owner-{place}/project--submitter-{place}")
        self._count("take")
        assert client.wait(ticket) != ""
        self._count("wait")
        assert client.close(ticket) in (True, False)
        self._count("close")
        return ticket

    def _count(self, word: str) -> None:
        with self._moved:
            self._done[word] += 1
            self._moved.notify_all()

    def _serve_until(self, word: str, times: int) -> None:
        """Serve until the clients have done so much, then end by SIGKILL."""
        with self._serving() as service, self._moved:
            is_done = self._moved.wait_for(lambda: self._done[word] >= times, 900)
            self._listening.clear()
            service.kill()
            assert is_done, self._done

    @contextmanager
    def _serving(self) -> Iterator["subprocess.Popen[str]"]:
        listen = self._url.removeprefix("http://") or "127.0.0.1:0"
        command = (*fleet_command(), "serve", "--listen", listen, "--every", "1s")
        with (
            (self._folder / "log").open("a") as log,
            subprocess.Popen(
                command,
                cwd=self._folder,
                env=clean_environment(self._folder),
                stdout=log,
                stderr=subprocess.PIPE,
                text=True,
            ) as service,
        ):
            assert service.stderr is not None
            said = next((line for line in service.stderr if "listening at" in line), "")
            self._url = said.split()[2]
            drain = threading.Thread(target=service.stderr.read)
            drain.start()
            self._listening.set()
            yield service
            assert service.wait() == -signal.SIGKILL
            drain.join()


@pytest.mark.parametrize(
    ("clients", "kills"),
    [
        pytest.param(16, ("wait",), id="few", marks=pytest.mark.slow),
        pytest.param(1_000, ("take", "wait", "close"), id="many", marks=pytest.mark.crowd),
    ],
)
def test_killed_service_neither_loses_nor_duplicates_tickets(
    clients: int, kills: tuple[str, ...], project: Path
) -> None:
    trial = Trial(project)
    most = max(SANDBOXES, clients // 25)
    pools = {"big": f"{POOL} workers: {{max: {most}, max_starting: {most}}}}}"}
    trial.write(fleet_yaml(pools=pools, queue="{kind: tickets}", more=GUARDS))
    trial.init()

    ids = Crowd(project, clients).ask(*kills)

    # Others may have been opened before the first and after the last.
    numbers = range(min(ids) - clients, max(ids) + clients)
    kept = {ticket.id: ticket for ticket in find_tickets(project, numbers)}
    assert len(set(ids)) == clients
    assert {kept[number].state for number in ids} == {TicketState.CLOSED}
    assert [kept[number].submitter for number in ids] == [
        f"submitter-{number % SANDBOXES}" for number in range(clients)
    ]
    # Whose answer was lost took another: the first expires, as nobody knows of it.
    unrecorded_machines = [ticket for number, ticket in kept.items() if number not in set(ids)]
    assert all(ticket.lease for ticket in unrecorded_machines)
    assert len(trial.machines()) <= most


def find_tickets(folder: Path, numbers: Iterable[int]) -> list[Ticket]:
    """Return the tickets of the store with these ids, ended ones too."""
    store = Store(f"sqlite:///{folder}/.fleet/store.db", "trial")
    book = DatabaseTickets(store.begin, "work")
    found = map(book.find, numbers)
    return [ticket for ticket in found if ticket is not None]
