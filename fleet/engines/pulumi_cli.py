"""Stacks with the Pulumi CLI: the CLI, its folder, commands and events, and a gate for updates.

`pulumi up` runs a program twice: for its preview and for the update. No resource changes before
the second run declares resources, so the gate holds this run until the preview was checked.

Concurrent runs of several stacks share a folder. So no stack is selected in the folder, every
command names its stack, and files are replaced atomically.

The CLI has its own session, so that the terminal's Ctrl-C does not reach it. Its output goes to
unnamed files: with a pipe, the CLI would die with fleet, and leave its lock and unfinished steps.

All files are in one folder of fleet, never in the folder of the stack projects.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import yaml

from fleet.engines.projects import ProviderAccount, load_project, project_name
from fleet.engines.pulumi_state import (
    CheckpointCopy,
    drop_init_errors,
    drop_worker,
    file_root,
    remove_empty_attribute_files,
)
from fleet.errors import (
    EngineAbsent,
    Locked,
    PlanRefused,
    SecretMissing,
    StackFailed,
    StoreFailed,
    needing,
    touching,
)
from fleet.ports import Progress, StackRef, StackStep
from fleet.schema.sources import extra_of
from fleet.schema.units import write_duration
from fleet.state.files import replace_file
from fleet.state.processes import kill_by_environment, later_interrupts, mask
from fleet.state.storage import cache_folder

if TYPE_CHECKING:
    from types import TracebackType


VERSION = "3.255.0"
"""Release of the SDK in pyproject.toml. The CLI may be newer, with the same major version."""

_VERSION_TIMEOUT_SECONDS = 20
GET_CLI = "install it from pulumi.com, or name it in FLEET_PULUMI"
_VERSION_VARIABLES = ("HOME", "LANG", "PATH", "PULUMI_HOME", "TMPDIR", "USER")
"""Environment variables that `pulumi version` gets. Others may be secret."""
_CLI_VARIABLES = ("FLEET_PULUMI", "PATH", "XDG_CACHE_HOME", "HOME")


def find_cli(environment: Mapping[str, str] = os.environ) -> Path:
    """Return a CLI of a supported release; raises EngineAbsent with advice otherwise."""
    problems = []
    for path in _candidates(environment):
        problem = why_unfit(path)
        if problem is None:
            return path
        problems.append(problem)
    found = f" ({'; '.join(problems)})" if problems else ""
    raise EngineAbsent(
        f"the Pulumi CLI {VERSION} or newer is not installed{found}; {GET_CLI} (in a clone of "
        "fleet, `python tools/pulumi_cli.py` gets it); simulated machines work without it "
        "with `engine: embedded`"
    )


def known_cli() -> Path:
    """Return the CLI that the environment selects. The search runs once per environment."""
    return _known_cli(
        tuple((name, os.environ[name]) for name in _CLI_VARIABLES if name in os.environ)
    )


@cache
def _known_cli(environment: tuple[tuple[str, str], ...]) -> Path:
    return find_cli(dict(environment))


def why_unfit(path: Path) -> str | None:
    """Run `version` of a program; return the reason why it is no usable CLI, or None."""
    try:
        answer = subprocess.run(  # noqa: S603 - the person's own program, one fixed argument
            [path, "version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=False,
            env={
                **{name: os.environ[name] for name in _VERSION_VARIABLES if name in os.environ},
                "PULUMI_SKIP_UPDATE_CHECK": "true",
            },
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"
    match = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)\S*", answer)
    if match is None:
        return f"{path} names no version"
    version = tuple(map(int, match.groups()))
    needed = tuple(map(int, VERSION.split(".")))
    if version[0] != needed[0] or version < needed:
        return f"{path} is {answer}"
    return None


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("FLEET_PULUMI"):
        yield Path(named)
    if on_path := shutil.which("pulumi", path=environment.get("PATH", "")):
        yield Path(on_path)
    yield from sorted(cache_folder(environment).glob("pulumi-*/bin/pulumi"), reverse=True)


_running: set["subprocess.Popen[bytes]"] = set()


def interrupt_all() -> None:
    """Cancel all running operations gracefully. A second call cancels them immediately."""
    for process in tuple(_running):
        process.send_signal(signal.SIGINT)


class Overdue(Exception):
    """The CLI exceeded its time limit and was stopped."""


class Command(NamedTuple):
    """The CLI, its folder and its environment.

    After `limit` seconds the CLI is interrupted, so that it records its completed steps. `grace`
    seconds later the CLI is killed with all its children.
    """

    cli: Path
    folder: Path
    environment: Mapping[str, str]
    limit: float = 3600
    grace: float = 60

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the CLI; raises Overdue if the CLI was stopped at its time limit."""
        mark = token_hex(8)
        with TemporaryFile() as out, TemporaryFile() as err:
            try:
                with later_interrupts():
                    process = subprocess.Popen(  # noqa: S603 - the CLI, with words of fleet
                        [self.cli, "--non-interactive", *words],
                        cwd=self.folder,
                        env={**os.environ, **self.environment, "FLEET_OPERATION": mark},
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                        start_new_session=True,
                    )
                    _running.add(process)
            except OSError as error:
                raise EngineAbsent(f"{self.cli} cannot be started: {error.strerror}") from error
            try:
                try:
                    process.wait(self.limit)
                except BaseException as stop:
                    process.send_signal(signal.SIGINT)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(self.grace)
                    kill_by_environment(mark)
                    process.wait()
                    if isinstance(stop, subprocess.TimeoutExpired):
                        raise Overdue(write_duration(int(self.limit))) from stop
                    raise
                if process.returncode < 0:
                    # A killed CLI leaves its plugins running.
                    kill_by_environment(mark)
            finally:
                _running.discard(process)
            for file in (out, err):
                file.seek(0)
            texts = [file.read().decode(errors="replace") for file in (out, err)]
        return subprocess.CompletedProcess(words, process.returncode, *texts)


Operation = Literal["create", "delete", "update", "replace"]

_OPERATIONS: dict[str, Operation] = {
    "create": "create",
    # An interrupted creation leaves a machine, which the next run adopts.
    "import": "create",
    "delete": "delete",
    "update": "update",
    "replace": "replace",
    "create-replacement": "replace",
    "delete-replaced": "replace",
    "import-replacement": "replace",
    "read-replacement": "replace",
}
_CLOSING_LINES = frozenset({"", "update failed", "preview failed"})
_LINE_LIMIT = 300
_SUMMARY_SECONDS = 10
# Noise of Terraform plugins: source lines, their name and release, error counts, "API request".
_PLUGIN_NOISE = (
    r"\b[\w./@-]+\.go:\d+: |\bsdk\.\w+: |: provider=[\w-]+@\w[\w.+-]*"
    r"|\d+ errors? occurred:\s*(\* ?)?"
    r"|(\[ERROR\] )?((API request failed|Invalid field in API request): )?An (unexpected error|"
    r"invalid field) was encountered during an API request\.( The field [^.\n]*\.)?\s*"
    r"|\s*\nField: .*(\n(?!\s*\* ).+)*|\n: API request failed\s*$"
)
_ERROR_CODE = r"\s*\nError code: (\w+)\n(Status code: \d+)?"


class Events:
    """Collector of the events of one operation, without the engine's internal resources.

    Each URN counts separately, even if two resources have the same name. Without `progress`, the
    events are those of a preview, which also reports outputs but does no step.
    """

    def __init__(self, secrets: Collection[str], progress: Progress | None = None) -> None:
        self._secrets = secrets
        self.go_on(progress)

    def go_on(self, progress: Progress | None) -> None:
        """Collect events from now on, and forget earlier events, as those of the preview."""
        self._progress = progress
        self._planned: dict[str, StackStep] = {}
        self._done: dict[str, StackStep] = {}
        self._errors: dict[str, None] = {}
        self._failed: dict[str, tuple[str, ...]] = {}
        self._summary = threading.Event()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Handle an event of the CLI, in another thread."""
        begun, ended, told = (
            event.get(f"{kind}Event") for kind in ("resourcePre", "resOutputs", "diagnostic")
        )
        if begun and (step := _convert_step(begun["metadata"])):
            self._planned[begun["metadata"]["urn"]] = step
        if self._progress and ended and (step := _convert_step(ended["metadata"])):
            first = ended["metadata"]["urn"] not in self._done
            self._done[ended["metadata"]["urn"]] = step
            if first:
                self._progress(step)
        if "summaryEvent" in event:
            self._summary.set()
        if told and told["severity"] == "error":
            line = self.shorten(told["message"])
            self._errors[line] = None
            if told.get("urn") and line not in _CLOSING_LINES:
                name = told["urn"].rpartition("::")[2]
                said = [*self._failed.get(name, ()), whole(told["message"], self._secrets)]
                self._failed[name] = tuple(dict.fromkeys(said))

    def wait_for_summary(self) -> bool:
        """Wait for the last event of the preview. Return False if the event does not arrive."""
        return self._summary.wait(_SUMMARY_SECONDS)

    @property
    def planned(self) -> tuple[StackStep, ...]:
        """Return the planned or started steps, sorted by name."""
        return _sort_steps(self._planned.values())

    @property
    def done(self) -> tuple[StackStep, ...]:
        """Return the completed steps, sorted by name."""
        return _sort_steps(self._done.values())

    @property
    def failed(self) -> dict[str, str]:
        """Map each failed resource to all its error messages. Any message may have the code."""
        done = {step.worker for step in self._done.values()}
        return {name: "; ".join(said) for name, said in self._failed.items() if name not in done}

    def shorten(self, text: str) -> str:
        """Return the most informative line of an error, with secrets masked."""
        return shorten(text, self._secrets)

    @property
    def errors(self) -> tuple[str, ...]:
        """Return the error lines, without the engine's closing line if there are others."""
        lines = tuple(line for line in self._errors if line not in _CLOSING_LINES)
        return lines or tuple(self._errors)


def _sort_steps(steps: Iterable[StackStep]) -> tuple[StackStep, ...]:
    return tuple(sorted(steps, key=lambda step: (step.worker, step.operation)))


def whole(text: str, secrets: Collection[str] = ()) -> str:
    """Return an error message as one line, with secrets masked."""
    return re.sub(r"^error: ", "", " ".join(_without_noise(text, secrets).split()))


def _without_noise(text: str, secrets: Collection[str]) -> str:
    """Return an error with masked secrets and without details for plugin developers."""
    return re.sub(_ERROR_CODE, r" (\1)", re.sub(_PLUGIN_NOISE, "", mask(text, secrets)))


def shorten(text: str, secrets: Collection[str] = ()) -> str:
    """Return the most informative line of an error, with secrets masked, without class names."""
    text = _without_noise(text, secrets)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if re.match(r"(error|[\w.]*(Error|Exception)):", line)]
    line = (marked or lines or [""])[-1 if marked else 0]
    line = re.sub(r"^error: ", "", line)
    return re.sub(r"^(Preview failed: )?Unexpected <class '[^']*'>: ", "", line)[:_LINE_LIMIT]


def _convert_step(metadata: Mapping[str, Any]) -> StackStep | None:
    operation = _OPERATIONS.get(metadata["op"])
    kind, _, name = metadata["urn"].rpartition("::")
    if operation is None or kind.rpartition("::")[2].startswith("pulumi:"):
        return None
    in_place = operation in {"update", "replace"}
    detail = ", ".join(sorted(metadata.get("diffs") or ())) if in_place else ""
    return StackStep(worker=name, operation=operation, detail=detail)


Program = Callable[[], None]


class UpdateGate(AbstractContextManager["UpdateGate"]):
    """An update that waits for approval after its preview. Leaving the context cancels it."""

    def __init__(self, ref: StackRef, preview: Program) -> None:
        self._ref = ref
        self._preview = preview
        self._update: Program | None = None
        self._program_error: Exception | None = None
        self._is_waiting = threading.Event()
        self._is_decided = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="update")
        self._running: Future[None] | None = None

    def choose(self, is_preview: bool) -> Program | None:  # noqa: FBT001 - its only argument
        """Return the program to run, or None to cancel. An update waits for the decision."""
        if is_preview:
            return self._run_preview
        self._is_waiting.set()
        self._is_decided.wait()
        return self._update

    def _run_preview(self) -> None:
        try:
            self._preview()
        except Exception as error:
            self._program_error = error
            raise

    def start(self, up: Callable[[], None]) -> None:
        """Run `up` in a thread until its preview ends; raises its errors.

        An error of the program itself is raised as PlanRefused with its message.
        """
        self._running = self._thread.submit(up)
        self._running.add_done_callback(lambda _: self._is_waiting.set())
        self._is_waiting.wait()
        if self._program_error:
            raise PlanRefused(
                f"stacks/{self._ref.project}: {self._program_error}"
            ) from self._program_error
        if self._running.done():
            self._raise_end(self._running)

    def let_through(self, update: Program) -> None:
        """Approve the update and wait for it; raises its errors, or an earlier error of `up`."""
        if self._running and self._running.done():
            self._raise_end(self._running)
        self._update = update
        self._is_decided.set()
        if self._running:
            self._running.result()

    def _raise_end(self, running: Future[None]) -> NoReturn:
        running.result()
        raise StackFailed(f"stack {self._ref.name}: the engine ended after its preview")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        """Cancel the update if it was not approved, and wait for its end."""
        self._is_decided.set()
        self._thread.shutdown()


_MAX_LOGS = 20


class Home:
    """The folder of the engine, with `work/<project>`, `plugins`, and the home of the CLI."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def work(self, project: str) -> Path:
        """Return the permanent folder of a project. It has the encryption salt of each stack."""
        return self.folder / "work" / project

    def prepare(self, project: str, state: Path | None) -> None:
        """Create the folders, and a launcher of the simulated cloud's plugin."""
        plugins = self.folder / "plugins"
        # The interpreter that runs fleet has fleet's modules.
        launcher = f'#!/bin/sh\nexec "{sys.executable}" -u -m fleet.clouds.sim.plugin "$@"\n'
        folders = (self.work(project), plugins, self.folder / "cli", *([state] if state else []))
        with touching(self.folder, StoreFailed):
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(plugins / "pulumi-resource-sim", launcher.encode(), mode=0o700)

    def declare(self, project: str, main: Path) -> None:
        """Write the settings file of a project. Its program is in the folder `main`."""
        settings = {"name": project, "runtime": "python", "main": str(main)}
        path = self.work(project) / "Pulumi.yaml"
        with touching(path, StoreFailed):
            replace_file(path, yaml.safe_dump(settings).encode(), mode=0o600)

    def environment(self, backend: str, passphrase: str) -> dict[str, str]:
        """Return the CLI's environment. Secrets are passed in it, never as arguments."""
        if file_root(backend):
            # The CLI does not write attribute files atomically; see
            # `remove_empty_attribute_files`. gocloud.dev/blob/fileblob defines the parameter.
            backend += f"{'&' if '?' in backend else '?'}metadata=skip"
        return {
            "PULUMI_BACKEND_URL": backend,
            "PULUMI_CONFIG_PASSPHRASE": passphrase,
            "PULUMI_HOME": str(self.folder / "cli"),
            "PULUMI_AUTOMATION_API": "true",
            # Without it, the CLI has no option --event-log.
            "PULUMI_DEBUG_COMMANDS": "true",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PATH": os.pathsep.join(self._search_path()),
        }

    def _search_path(self) -> Iterator[str]:
        """Yield the parts of the CLI's search path. The CLI uses the first plugin in it."""
        if named := os.environ.get("FLEET_PULUMI_PLUGINS"):
            yield named
        yield str(self.folder / "plugins")
        yield os.environ.get("PATH", "")
        # After the user's plugins: the plugins of tools/pulumi_plugins.py, latest first.
        kept = cache_folder().glob("pulumi-plugins-*/bin")
        yield from map(str, sorted(kept, key=_modification_time, reverse=True))

    def configure(self, project: str, stack: str, config: Mapping[str, str]) -> None:
        """Write keys into a stack's settings file, and keep the encryption settings in it."""
        path = self.work(project) / f"Pulumi.{stack}.yaml"
        with touching(path, StoreFailed):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            settings: dict[str, Any] = yaml.safe_load(text) or {}
            settings["config"] = {**(settings.get("config") or {}), **config}
            replace_file(path, yaml.safe_dump(settings, sort_keys=True).encode(), mode=0o600)

    def prune_logs(self) -> None:
        """Delete all but the latest logs of the CLI, which never deletes logs itself."""
        logs = sorted((self.folder / "cli" / "logs").glob("*.log"), key=_modification_time)
        for path in logs[:-_MAX_LOGS]:
            path.unlink(missing_ok=True)


def _modification_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another run has deleted it
        return 0.0


_CONFLICT = "[409] Conflict: Another update is currently in progress."
_LOCKED = re.compile(
    rf"stack.*already exists|the stack is currently locked by|{re.escape(_CONFLICT)}"
)
_NOT_FOUND = re.compile(r"no stack named.*found")


_UP = ("up", "--yes", "--continue-on-error")


class _StackMissing(StackFailed):
    """The stack does not exist."""


class CliStack(NamedTuple):
    """A stack of a backend, which the Pulumi CLI creates, changes and repairs."""

    backend: str
    home: Home
    passphrase: Callable[[], str] | None
    ref: StackRef
    find_account: Callable[[StackRef], ProviderAccount]

    def preview(self, program: Program, events: Events) -> None:
        """Preview a program; raises StackFailed or Locked."""
        self._operate(lambda _: program, events, "preview")

    def up(self, program: Program, events: Events) -> None:
        """Apply a program without a preview. After a failed step, continue with the others."""
        self._operate(lambda _: program, events, *_UP, "--skip-preview")

    def up_through(self, gate: UpdateGate, events: Events) -> None:
        """Apply the program of a gate, which waits after the preview."""
        self._operate(gate.choose, events, *_UP)

    def _operate(
        self, choose: Callable[[bool], Program | None], events: Events, *words: str
    ) -> None:
        with needing(extra_of(self.ref.project), "the engine pulumi", EngineAbsent):
            from fleet.engines.pulumi_host import ProgramServer
        self.configure(self._account.config)
        server = ProgramServer(choose, events)
        self._call(words, events, server.serve())
        if server.error:
            raise server.error

    def make(self) -> None:
        """Create a stack; raises StackFailed or Locked."""
        words = ("init", "--no-select", "--secrets-provider", "passphrase")
        try:
            self._call_stack(*words)
        except StackFailed:
            if kept := self._checkpoint_copy():
                kept.drop_cut()
            raise

    def export(self) -> dict[str, Any] | None:
        """Return a stack's deployment with encrypted secrets; None if the stack does not exist."""
        exported = self._export()
        return exported and dict(exported.get("deployment") or {})

    def forget_pending(self) -> None:
        """Remove unfinished operations from the state.

        `refresh` would also remove machines that their provider does not list at that moment. The
        next `up` would create these machines again.
        """
        self._rewrite(lambda state: state.pop("pending_operations", None))

    def forget_init_errors(self) -> None:
        """Remove recorded initialization errors; the engine would update these machines again."""
        project = load_project(self.ref.project)
        self._rewrite(lambda state: drop_init_errors(state, project))

    def forget_worker(self, worker: str) -> None:
        """Remove a worker's resources from the state, so that no later update changes them."""
        project = load_project(self.ref.project)
        self._rewrite(lambda state: drop_worker(state, worker, project))

    def keep(self, wanted: Collection[str] | None = None) -> None:
        """Copy the checkpoint before a change; see `CheckpointCopy.keep`."""
        if kept := self._checkpoint_copy():
            kept.keep(load_project(self.ref.project), wanted)

    def is_cut(self) -> bool:
        """Return whether a full disk truncated the checkpoint, so that its copy must be used."""
        kept = self._checkpoint_copy()
        return bool(kept and kept.is_cut())

    def restore(self) -> None:
        """Replace a truncated checkpoint by its copy; raises Locked if its writer may run."""
        if kept := self._checkpoint_copy():
            kept.restore()

    def configure(self, config: Mapping[str, str]) -> None:
        """Write keys into the settings of a stack."""
        self.home.configure(project_name(self.ref.project), self.ref.name, config)

    def _rewrite(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Export, change and import a stack's state. If `change` returns False, do not import."""
        exported = self._export()
        if not exported or not change(exported["deployment"]):
            return
        self.keep()
        path = self.home.folder / f"{self.ref.name}.rewritten.json"
        try:
            # Only its owner may read it, like the checkpoint itself.
            replace_file(path, json.dumps(exported).encode(), mode=0o600)
            self._call_stack("import", "--file", str(path))
        finally:
            path.unlink(missing_ok=True)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return all secrets of the engine and the provider, which messages mask."""
        passphrase = self.passphrase() if self.passphrase else ""
        return (passphrase, *self._account.environment().values())

    def _checkpoint_copy(self) -> CheckpointCopy | None:
        root = file_root(self.backend)
        return (
            CheckpointCopy(root.parent, project_name(self.ref.project), self.ref.name)
            if root
            else None
        )

    def _export(self) -> dict[str, Any] | None:
        try:
            exported: dict[str, Any] = json.loads(self._call_stack("export"))
        except _StackMissing:
            return None
        except ValueError as error:
            raise StackFailed(
                f"stack {self.ref.name}: its export is incomplete: {error}"
            ) from error
        return exported

    @property
    def _account(self) -> ProviderAccount:
        return self.find_account(self.ref)

    def _call_stack(self, *words: str) -> str:
        return self._call(("stack", *words), Events(self.secrets))

    def _call(
        self,
        words: Sequence[str],
        events: Events,
        server: AbstractContextManager[Sequence[str]] | None = None,
    ) -> str:
        """Run a command on a stack, and return its output; raises StackFailed or Locked.

        `server` yields further options of the command, and serves while it runs.
        """
        command, failure = self._command(), StackFailed
        try:
            with server or nullcontext(()) as options:
                answer = command.run(*words, "--stack", self.ref.name, *options)
        except Overdue as error:
            why = (
                f"the engine did not finish within {error} and was stopped: its result is "
                "unknown; the next apply checks and finishes it"
            )
        else:
            if not answer.returncode:
                return answer.stdout
            if _LOCKED.search(answer.stderr):
                raise Locked(
                    f"stack {self.ref.name} is being changed by another run; try again when it "
                    "has ended"
                )
            if _NOT_FOUND.search(answer.stderr):
                failure = _StackMissing
            why = "; ".join(events.errors) or events.shorten(f"{answer.stderr}\n{answer.stdout}")
        finally:
            self.home.prune_logs()
        raise failure(
            f"stack {self.ref.name}: {why}",
            done=tuple(step.worker for step in events.done),
            failed=events.failed,
        )

    def _command(self) -> Command:
        if self.passphrase is None:
            raise SecretMissing(
                "the real engine encrypts secrets in stack state: say where its passphrase is, "
                "for instance state: {passphrase: {env: FLEET_PASSPHRASE}}"
            )
        cli, name, root = known_cli(), project_name(self.ref.project), file_root(self.backend)
        self.home.prepare(name, root.parent if root else None)
        self.home.declare(name, load_project(self.ref.project).folder)
        if root:
            remove_empty_attribute_files(root, name)
        environment = self.home.environment(self.backend, self.passphrase())
        # The plugins that the CLI brings along precede others.
        environment["PATH"] = os.pathsep.join((str(cli.parent), environment["PATH"]))
        return Command(cli, self.home.work(name), {**environment, **self._account.environment()})
