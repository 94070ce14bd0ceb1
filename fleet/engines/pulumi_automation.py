"""The Pulumi CLI through its Automation API: workspace, stack, events, gate.

`pulumi up` runs a program twice: for its preview and for the update. No resource changes before
the second run declares resources, so the gate holds this run until the preview was checked.

Concurrent runs of several stacks share a folder. So no stack is selected in the folder, every
command names its stack, and files are replaced atomically.

All files are in one folder of fleet, never in the folder of the stack projects.
"""

import asyncio
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import yaml

from fleet.engines.parallel import running
from fleet.engines.projects import ProviderAccount, load_project, project_name
from fleet.engines.pulumi_backends import file_root, known_cli, remove_empty_attribute_files
from fleet.engines.pulumi_state import CheckpointCopy, drop_init_errors, drop_worker
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
from fleet.state.files import replace_file
from fleet.state.processes import mask
from fleet.state.storage import cache_folder

if TYPE_CHECKING:
    from types import TracebackType

    from pulumi.automation import EngineEvent, LocalWorkspace, Stack, StepEventMetadata


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
        self._reset(progress)

    def _reset(self, progress: Progress | None) -> None:
        self._progress = progress
        self._planned: dict[str, StackStep] = {}
        self._done: dict[str, StackStep] = {}
        self._errors: dict[str, None] = {}
        self._failed: dict[str, tuple[str, ...]] = {}
        self.is_complete = False
        """Whether the engine has sent its last event, the summary."""

    def go_on(self, progress: Progress) -> None:
        """Forget the events of the preview, and collect those of the update."""
        self._reset(progress)

    def __call__(self, event: "EngineEvent") -> None:
        """Handle an event. The SDK calls this in its own thread."""
        if (begun := event.resource_pre_event) and (step := _convert_step(begun.metadata)):
            self._planned[begun.metadata.urn] = step
        progress, ended = self._progress, event.res_outputs_event
        if progress and ended and (step := _convert_step(ended.metadata)):
            first = ended.metadata.urn not in self._done
            self._done[ended.metadata.urn] = step
            if first:
                progress(step)
        self.is_complete = self.is_complete or event.summary_event is not None
        told = event.diagnostic_event
        if told and told.severity == "error":
            line = shorten(told.message, self._secrets)
            self._errors[line] = None
            if told.urn and line not in _CLOSING_LINES:
                name = told.urn.rpartition("::")[2]
                said = [*self._failed.get(name, ()), whole(told.message, self._secrets)]
                self._failed[name] = tuple(dict.fromkeys(said))

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
    # The SDK's exceptions have lines with `code: 1`, `stdout: …` and `stderr: …`.
    stripped = (re.sub(r"^ *(stderr|stdout|code): *", "", line) for line in text.splitlines())
    lines = [line.strip() for line in stripped if line.strip()]
    marked = [line for line in lines if re.match(r"(error|[\w.]*(Error|Exception)):", line)]
    line = (marked or lines or [""])[-1 if marked else 0]
    line = re.sub(r"^error: ", "", line)
    return re.sub(r"^(Preview failed: )?Unexpected <class '[^']*'>: ", "", line)[:_LINE_LIMIT]


def _convert_step(metadata: "StepEventMetadata") -> StackStep | None:
    operation = _OPERATIONS.get(metadata.op.value)
    kind, _, name = metadata.urn.rpartition("::")
    if operation is None or kind.rpartition("::")[2].startswith("pulumi:"):
        return None
    in_place = operation in {"update", "replace"}
    detail = ", ".join(sorted(metadata.diffs or ())) if in_place else ""
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

    def passes(self, *, is_preview: bool) -> bool:
        """Return whether a run of the program may start. An update waits for the decision."""
        if is_preview:
            return True
        self._is_waiting.set()
        self._is_decided.wait()
        return self._update is not None

    def program(self) -> None:
        """Run the program of the preview or, after the approval, of the update."""
        if self._update is not None:
            self._update()
            return
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


def _without_attribute_files(backend: str) -> str:
    """Add a parameter to a file backend's URL, so that the CLI writes no attribute files.

    The CLI does not write these files atomically; see `remove_empty_attribute_files`. The
    parameter is defined by gocloud.dev/blob/fileblob.
    """
    if file_root(backend) is None:
        return backend
    return f"{backend}{'&' if '?' in backend else '?'}metadata=skip"


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

    def environment(self, backend: str, passphrase: str) -> dict[str, str]:
        """Return the CLI's environment. Secrets are passed in it, never as arguments."""
        return {
            "PULUMI_BACKEND_URL": _without_attribute_files(backend),
            "PULUMI_CONFIG_PASSPHRASE": passphrase,
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

    def command_root(self, cli: Path) -> Path:
        """Return a folder in which bin/pulumi is this CLI, as the SDK requires."""
        if cli.name == "pulumi" and cli.parent.name == "bin":
            return cli.parent.parent
        link = self.folder / "cli" / "link" / "bin" / "pulumi"
        link.parent.mkdir(parents=True, exist_ok=True)
        draft = link.with_name(f"{link.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        draft.symlink_to(cli.absolute())
        draft.replace(link)
        return link.parent.parent

    def configure(self, project: str, stack: str, config: Mapping[str, str]) -> None:
        """Write keys into a stack's settings file, and keep the encryption settings in it."""
        path = self.work(project) / f"Pulumi.{stack}.yaml"
        with touching(path, StoreFailed):
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


_MAX_LOOP_POLLS = 250
_LOOP_POLL_SECONDS = 0.02


class Session(NamedTuple):
    """An open stack, with a program to run."""

    ref: StackRef
    stack: "Stack"
    home: Home
    secrets: list[str]
    """Texts that messages mask. Texts may be added before the next message."""
    loops: list[asyncio.AbstractEventLoop]

    def run(self, act: Callable[[], object], events: Events | None = None) -> None:
        """Call the SDK; raise its exceptions as short messages without secrets."""
        try:
            _run(self.ref, act, self.secrets, events)
        finally:
            while self.loops:
                _close_loop(self.loops.pop())
            self.home.prune_logs()


class Cli:
    """Creates, opens and repairs stacks of one backend with the Pulumi CLI."""

    def __init__(self, backend: str, home: Home, passphrase: Callable[[], str] | None) -> None:
        self._backend = backend
        self._home = home
        self._passphrase = passphrase

    def make(self, ref: StackRef, account: ProviderAccount) -> None:
        """Create a stack; raises StackFailed or Locked."""
        workspace = self._workspace(ref, account, None)
        try:
            _run(ref, lambda: workspace.create_stack(ref.name), self.secrets(account))
        except StackFailed:
            if kept := self._checkpoint_copy(ref):
                kept.drop_cut()
            raise

    def open(
        self,
        ref: StackRef,
        account: ProviderAccount,
        program: Callable[[], None],
        *,
        secrets: Collection[str] = (),
        gate: UpdateGate | None = None,
    ) -> Session:
        """Open an existing stack with a program to run.

        `secrets` are secrets of the program, which messages mask. With a `gate`, `up` has a
        preview and waits after it.
        """
        loops: list[asyncio.AbstractEventLoop] = []

        def noted() -> None:
            loops.append(asyncio.get_running_loop())
            program()

        workspace = self._workspace(ref, account, noted, gate)
        from pulumi.automation import Stack

        hidden = [*secrets, *self.secrets(account)]
        return Session(ref, Stack.select(ref.name, workspace), self._home, hidden, loops)

    def export(self, ref: StackRef, account: ProviderAccount) -> dict[str, Any] | None:
        """Return a stack's deployment with encrypted secrets; None if the stack does not exist."""
        try:
            exported: dict[str, Any] = json.loads(self._stack_command(ref, account, "export"))
        except StackFailed as error:
            from pulumi.automation import StackNotFoundError

            if isinstance(error.__cause__, StackNotFoundError):
                return None
            raise
        return dict(exported.get("deployment") or {})

    def forget_pending(self, ref: StackRef, account: ProviderAccount) -> None:
        """Remove unfinished operations from the state.

        `refresh` would also remove machines that their provider does not list at that moment. The
        next `up` would create these machines again.
        """
        self._rewrite(ref, account, lambda state: state.pop("pending_operations", None))

    def forget_init_errors(self, ref: StackRef, account: ProviderAccount) -> None:
        """Remove recorded initialization errors; the engine would update these machines again."""
        project = load_project(ref.project)
        self._rewrite(ref, account, lambda state: drop_init_errors(state, project))

    def forget_worker(self, ref: StackRef, account: ProviderAccount, worker: str) -> None:
        """Remove a worker's resources from the state, so that no later update changes them."""
        project = load_project(ref.project)
        self._rewrite(ref, account, lambda state: drop_worker(state, worker, project))

    def keep(self, ref: StackRef, wanted: Collection[str] | None = None) -> None:
        """Copy the checkpoint before a change; see `CheckpointCopy.keep`."""
        if kept := self._checkpoint_copy(ref):
            kept.keep(load_project(ref.project), wanted)

    def is_cut(self, ref: StackRef) -> bool:
        """Return whether a full disk truncated the checkpoint, so that its copy must be used."""
        kept = self._checkpoint_copy(ref)
        return bool(kept and kept.is_cut())

    def restore(self, ref: StackRef) -> None:
        """Replace a truncated checkpoint by its copy; raises Locked if its writer may run."""
        if kept := self._checkpoint_copy(ref):
            kept.restore()

    def configure(self, ref: StackRef, config: Mapping[str, str]) -> None:
        """Write keys into the settings of a stack."""
        self._home.configure(project_name(ref.project), ref.name, config)

    def _rewrite(
        self, ref: StackRef, account: ProviderAccount, change: Callable[[dict[str, Any]], object]
    ) -> None:
        """Export, change and import a stack's state. If `change` returns False, do not import."""
        exported = json.loads(self._stack_command(ref, account, "export"))
        if not change(exported["deployment"]):
            return
        self.keep(ref)
        path = self._home.folder / f"{ref.name}.rewritten.json"
        try:
            path.write_text(json.dumps(exported), encoding="utf-8")
            self._stack_command(ref, account, "import", "--file", str(path))
        finally:
            path.unlink(missing_ok=True)

    def secrets(self, account: ProviderAccount) -> tuple[str, ...]:
        """Return all secrets of the engine and the provider, which messages mask."""
        passphrase = self._passphrase() if self._passphrase else ""
        return (passphrase, *account.environment().values())

    def _stack_command(self, ref: StackRef, account: ProviderAccount, *words: str) -> str:
        workspace = self._workspace(ref, account, None)
        environment = {**workspace.env_vars, "PULUMI_HOME": str(workspace.pulumi_home)}
        args = ["stack", *words, "--stack", ref.name]
        said: list[str] = []

        def run() -> None:
            answer = workspace.pulumi_command.run(args, workspace.work_dir, environment)
            said.append(answer.stdout)

        _run(ref, run, self.secrets(account))
        return said[0]

    def _checkpoint_copy(self, ref: StackRef) -> CheckpointCopy | None:
        root = file_root(self._backend)
        return CheckpointCopy(root.parent, project_name(ref.project), ref.name) if root else None

    @cached_property
    def _root(self) -> str:
        return str(self._home.command_root(known_cli()))

    def _workspace(
        self,
        ref: StackRef,
        account: ProviderAccount,
        program: Callable[[], None] | None,
        gate: UpdateGate | None = None,
    ) -> "LocalWorkspace":
        """Open the folder of a project; raises EngineAbsent if Pulumi's SDK is missing."""
        if self._passphrase is None:
            raise SecretMissing(
                "the real engine encrypts secrets in stack state: say where its passphrase is, "
                "for instance state: {passphrase: {env: FLEET_PASSPHRASE}}"
            )
        with needing(extra_of(ref.project), "the engine pulumi", EngineAbsent):
            from pulumi.automation import ProjectSettings

            from fleet.engines.pulumi_sdk import Command, Workspace
        # After a failure, the SDK's server replies to a CLI that has exited. grpc would log a
        # traceback without information that StackFailed does not have.
        logging.getLogger("grpc._server").setLevel(logging.CRITICAL)
        name = project_name(ref.project)
        root = file_root(self._backend)
        self._home.prepare(name, root.parent if root else None)
        if root:
            remove_empty_attribute_files(root, name)
        return Workspace(
            work_dir=str(self._home.work(name)),
            pulumi_home=str(self._home.folder / "cli"),
            program=program,
            env_vars={
                **self._home.environment(self._backend, self._passphrase()),
                **account.environment(),
            },
            secrets_provider="passphrase",
            project_settings=ProjectSettings(
                name=name, runtime="python", main=str(load_project(ref.project).folder)
            ),
            pulumi_command=Command(self._root, gate=gate),
        )


def _close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Close the event loop in which the SDK ran the program.

    After a failure, the CLI exits before the SDK's thread notices. The next log line of that
    thread then fails, which ends the thread and leaves the loop open.
    """
    never = threading.Event()
    for _ in range(_MAX_LOOP_POLLS):
        if not loop.is_running():
            break
        never.wait(_LOOP_POLL_SECONDS)
    else:
        return
    loop.close()


def _run(
    ref: StackRef,
    act: Callable[[], object],
    secrets: Collection[str],
    events: Events | None = None,
) -> None:
    from pulumi.automation import (
        CommandError,
        ConcurrentUpdateError,
        InvalidVersionError,
        StackAlreadyExistsError,
    )

    from fleet.engines.pulumi_sdk import Overdue

    try:
        with running.one():
            act()
    except (ConcurrentUpdateError, StackAlreadyExistsError) as error:
        raise Locked(
            f"stack {ref.name} is being changed by another run; try again when it has ended"
        ) from error
    except Overdue as error:
        raise StackFailed(
            f"stack {ref.name}: the engine did not finish within {error} and was stopped: its "
            "result is unknown; the next apply checks and finishes it",
            done=tuple(step.worker for step in events.done) if events else (),
            failed=events.failed if events else {},
        ) from error
    except InvalidVersionError as error:
        raise EngineAbsent(f"the Pulumi CLI does not fit: {error}") from error
    except CommandError as error:
        said = "; ".join(events.errors) if events else ""
        raise StackFailed(
            f"stack {ref.name}: {said or shorten(str(error), secrets)}",
            done=tuple(step.worker for step in events.done) if events else (),
            failed=events.failed if events else {},
        ) from error
