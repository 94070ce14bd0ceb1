"""`fleet serve`: clients of Resalloc are answered, and what they ask for is ordered at once."""

import errno
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from pathlib import Path
from xmlrpc.client import ProtocolError

import pytest

from fleet.apply.timer import WakeableTimer
from fleet.program import build_parser
from fleet.tickets import serve
from tests.builders.sentences import tells
from tests.rigs.local_machines import end_machines
from tests.rigs.resalloc_client import OldClient
from tests.rigs.trial import Trial, fleet_yaml

POOLS = {
    "powerful": "{provider: desk, machine: ccx63, image: trixie, provides: [extra_powerful],"
    " workers: {max: 4}}",
}
TAGS = "tags:\n  extra_powerful: {on_demand: true}\n"
YAML = fleet_yaml(pools=POOLS, queue="{kind: tickets}", desk="boot: 1m", more=TAGS)


@dataclass
class Heard:
    """A console on which threads wait for a word."""

    colour: bool = False
    watched: bool = False
    can_ask: bool = False
    said: list[str] = field(default_factory=list)
    _new: threading.Condition = field(default_factory=threading.Condition)

    def out(self, text: str) -> None:
        """Hear it."""
        with self._new:
            self.said.append(text)
            self._new.notify_all()

    note = progress = out

    def columns(self, piped: int | None) -> int | None:
        """Be no terminal."""
        return piped

    def ask(self, _: str) -> str:
        """Answer nothing."""
        return ""

    def hear(self, word: str, after: int = 0) -> str:
        """Wait until something with this word is said, and return it."""
        with self._new:
            assert self._new.wait_for(lambda: self._find(word, after), 60), self.said
            return self._find(word, after)

    def _find(self, word: str, after: int) -> str:
        return next((text for text in self.said[after:] if word in text), "")


@pytest.fixture
def counter(project: Path) -> Trial:
    """Return a fleet whose machines are asked for by tickets."""
    trial = Trial(project)
    trial.write(YAML)
    trial.init()
    return trial


def served(
    trial: Trial, script: Callable[[OldClient, Heard], object], *options: str
) -> tuple[int, Heard]:
    """Serve while a client does something, then end as a service manager does."""
    console = Heard()
    args = build_parser().parse_args(
        ["serve", "--listen", "127.0.0.1:0", "--every", "1h", *options]
    )

    def play() -> None:
        try:
            url = console.hear("listening at").split()[2]
            # The first run of all.
            console.hear("Plan: nothing to change")
            console.hear("Applied:")
            script(OldClient(url), console)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    player = threading.Thread(target=play)
    # Where the server has ended by itself, this process hears the signal.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        player.start()
        with chdir(trial.folder), warnings.catch_warnings():
            # A signal may fall between the opening of a file and its `with`.
            warnings.simplefilter("ignore", ResourceWarning)
            code = serve.run(args, console, WakeableTimer(0))
        player.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    return code, console


class LosesInterrupt(Heard):
    """A console in whose first note a signal arrives, and its KeyboardInterrupt is lost."""

    def note(self, text: str) -> None:
        super().note(text)
        if len(self.said) == 1:
            # As in a callback of a weak reference, which cannot raise.
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)


def test_serve_stops_before_first_run_when_interrupt_was_lost(counter: Trial) -> None:
    console = LosesInterrupt()
    args = build_parser().parse_args(["serve", "--listen", "127.0.0.1:0", "--every", "1h"])

    with chdir(counter.folder):
        assert serve.run(args, console) == 0

    assert [text.split()[0] for text in console.said] == ["listening", "stopped"]


def test_tickets_are_served_and_closed_between_runs(
    counter: Trial,
) -> None:
    """The walk of the seed, in the words of Resalloc's clients: and ada cannot take all."""
    fair = "on_demand: true, limits: {per: {submitter: 1}}"
    counter.write(YAML.replace("on_demand: true", fair))
    made: list[list[str]] = []

    def script(client: OldClient, console: Heard) -> None:
        first = client.take("extra_powerful", sandbox="ada/ping--ada")
        console.hear("+ created 1: trial-powerful-0001")
        before = len(console.said)
        second = client.take("extra_powerful", sandbox="ada/pong--ada")
        console.hear("2 waiting requests", before)
        made.append(counter.machines())
        client.close(second)
        client.close(first)
        console.hear("- deleted 1: trial-powerful-0001")

    code, _ = served(counter, script)

    assert (code, made) == (0, [["trial-powerful-0001"]])
    assert counter.machines() == []


@pytest.mark.slow
def test_serve_assigns_machine_that_became_ready_during_a_run(project: Path) -> None:
    trial = Trial(project)
    trial.write(LOCAL)
    trial.init()
    answers: list[object] = []

    def script(client: OldClient, console: Heard) -> None:
        del console
        number = client.take("extra_powerful")
        answers.extend([client.wait(number), client.close(number)])

    try:
        served(trial, script)
    finally:
        end_machines(project / ".fleet/local-here")

    assert answers == ["trial-powerful-0001\n", True]


def test_serve_reports_occupied_port(counter: Trial) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, said = counter.do("serve", "--listen", address)

    assert code == 1
    assert address in said
    assert os.strerror(errno.EADDRINUSE) in said


@pytest.mark.slow
def test_serve_keeps_last_valid_tokens_when_file_is_invalid(
    counter: Trial,
) -> None:
    tokens = counter.folder / "tokens"
    tokens.write_text("copr the-first-token-of-copr\n")

    def client_of(client: OldClient, nth: str) -> OldClient:
        return OldClient(client.url.replace("//", f"//copr:the-{nth}-token-of-copr@"))

    def script(client: OldClient, console: Heard) -> None:
        first, second = (client_of(client, nth) for nth in ("first", "second"))
        tokens.write_text("copr the-second-token-of-copr\n")
        first.take("extra_powerful")
        console.hear("+ created 1: trial-powerful-0001")
        with pytest.raises(ProtocolError, match="401"):
            first.take("extra_powerful")
        tokens.write_text("copr\n")
        second.take("extra_powerful")
        console.hear("tokens:1: ")
        second.take("extra_powerful")

    code, _ = served(counter, script, "--tokens", "tokens")

    assert code == 0


LOCAL = """\
fleet: trial
providers:
  here: {kind: local, run: [sleep, infinity]}
queues:
  work: {kind: tickets}
images:
  builder: {existing: {here: x}}
pools:
  powerful: {provider: here, machine: {cores: 4, memory: 8GiB}, image: builder,
    provides: [extra_powerful], workers: {max: 3}}
tags:
  extra_powerful: {on_demand: true}
"""


def test_local_process_is_assigned_to_ticket_and_stopped(project: Path) -> None:
    trial = Trial(project)
    trial.write(LOCAL)
    trial.init()
    try:
        number = trial.do("ticket", "open", "--tag", "extra_powerful", "--user", "ada")[1].split()[
            0
        ]
        trial.apply()

        assert tells(trial.apply(), "trial-powerful-0001", "assigned", f"ticket {number}")

        trial.do("ticket", "close", number, "--user", "ada")
        assert "delete trial-powerful-0001" in trial.apply()
    finally:
        end_machines(project / ".fleet/local-here")
