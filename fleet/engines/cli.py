"""This module runs the Pulumi CLI through its Automation API, errors made short and showable."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from fleet.engines.backend_file import drop_cut_notes
from fleet.engines.objects import file_root
from fleet.engines.projects import load_project
from fleet.engines.pulumi_cli import known_cli
from fleet.engines.pulumi_events import Events, shorten
from fleet.engines.pulumi_kept import Kept
from fleet.engines.pulumi_state import drop_init_errors, drop_worker
from fleet.engines.running import running
from fleet.engines.workspace import Home, project_name
from fleet.errors import EngineAbsent, Locked, SecretMissing, StackFailed
from fleet.ports import Provider, StackRef

if TYPE_CHECKING:
    from pulumi import automation

    from fleet.engines.pulumi_stack import Stack

_SETTLE_STEPS = 250
_SETTLE_SECONDS = 0.02


@dataclass(frozen=True)
class Account:
    """What the real engine needs of one provider: its listing, and its part of each stack.

    `config` goes into the stack's settings in clear; secrets go by `environment` or, as inputs
    of the program that it declares secret, by `inputs`.
    """

    provider: Provider
    config: Mapping[str, str] = field(default_factory=dict)
    environment: Callable[[], Mapping[str, str]] = dict
    inputs: Mapping[str, Any] = field(default_factory=dict)
    pause: Callable[[float], None] = time.sleep
    """Waits that many seconds between two looks at the provider."""
    clear: Callable[[str, str, Collection[str]], None] = lambda *_: None
    """Deletes what a base's stack does not know of a part, and cannot adopt: of which fleet, of
    which part, and the names of the resources that it knows."""


class Session(NamedTuple):
    """An open stack and the program that was given to it."""

    ref: StackRef
    stack: "Stack"
    home: Home
    secrets: list[str]
    """What no message shows; more may be added before more is told."""
    loops: list[asyncio.AbstractEventLoop]

    def run(self, act: Callable[[], object], events: Events | None = None) -> None:
        """Call the SDK, its exceptions made short and fit to be shown."""
        try:
            _run(self.ref, act, self.secrets, events)
        finally:
            while self.loops:
                _close(self.loops.pop())
            self.home.prune_logs()


class Cli:
    """Opens stacks of one backend."""

    def __init__(self, backend: str, home: Home, passphrase: Callable[[], str] | None) -> None:
        self._backend = backend
        self._home = home
        self._passphrase = passphrase

    def make(self, ref: StackRef, account: Account) -> None:
        """Make a stack that does not exist yet."""
        workspace = self._workspace(ref, account, None)
        try:
            _run(ref, lambda: workspace.create_stack(ref.name), self.secrets(account))
        except StackFailed:
            if kept := self._kept(ref):
                kept.drop_cut()
            raise

    def open(
        self,
        ref: StackRef,
        account: Account,
        program: Callable[[], None],
        *,
        secrets: Collection[str] = (),
    ) -> Session:
        """Return a stack that exists, with a program to run.

        `secrets` are those of the program: no message shows them.
        """
        from fleet.engines.pulumi_stack import Stack

        loops: list[asyncio.AbstractEventLoop] = []

        def noted() -> None:
            loops.append(asyncio.get_running_loop())
            program()

        workspace = self._workspace(ref, account, noted)
        hidden = [*secrets, *self.secrets(account)]
        return Session(ref, Stack.select(ref.name, workspace), self._home, hidden, loops)

    def export(self, ref: StackRef, account: Account) -> dict[str, Any] | None:
        """Return a stack's deployment, its secrets still encrypted; None when it is not there."""
        from pulumi.automation import StackNotFoundError

        try:
            exported: dict[str, Any] = json.loads(self._stack_command(ref, account, "export"))
        except StackFailed as error:
            if isinstance(error.__cause__, StackNotFoundError):
                return None
            raise
        return dict(exported.get("deployment") or {})

    def forget_pending(self, ref: StackRef, account: Account) -> None:
        """Take the unfinished operations out of the state.

        `refresh` could do it too, but would also drop machines that their provider does not
        list just now, and the next `up` would make them again.
        """
        self._rewrite(ref, account, lambda state: state.pop("pending_operations", None))

    def forget_init_errors(self, ref: StackRef, account: Account) -> None:
        """Have the engine no longer want to update machines only because their creation failed."""
        project = load_project(ref.project)
        self._rewrite(ref, account, lambda state: drop_init_errors(state, project))

    def forget_worker(self, ref: StackRef, account: Account, worker: str) -> None:
        """Take a worker's resources out of the state, so that nothing is done to them again."""
        project = load_project(ref.project)
        self._rewrite(ref, account, lambda state: drop_worker(state, worker, project))

    def keep(self, ref: StackRef, wanted: Collection[str] | None = None) -> None:
        """Copy what is recorded before it is changed; see `Kept.keep`."""
        if kept := self._kept(ref):
            kept.keep(load_project(ref.project), wanted)

    def is_cut(self, ref: StackRef) -> bool:
        """Say whether a full disk has cut what was recorded, so that its copy is read."""
        kept = self._kept(ref)
        return bool(kept and kept.is_cut())

    def restore(self, ref: StackRef) -> None:
        """Put a copy in the place of what was cut; Locked where its writer may still try."""
        if kept := self._kept(ref):
            kept.restore()

    def configure(self, ref: StackRef, config: Mapping[str, str]) -> None:
        """Write keys into a stack's settings."""
        self._home.configure(project_name(load_project(ref.project)), ref.name, config)

    def _rewrite(
        self, ref: StackRef, account: Account, change: Callable[[dict[str, Any]], object]
    ) -> None:
        """Export a stack's state and import it again, changed; `change` says whether it did."""
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

    def secrets(self, account: Account) -> tuple[str, ...]:
        """Return every secret that a message might show."""
        passphrase = self._passphrase() if self._passphrase else ""
        return (passphrase, *account.environment().values())

    def _stack_command(self, ref: StackRef, account: Account, *words: str) -> str:
        workspace = self._workspace(ref, account, None)
        environment = {**workspace.env_vars, "PULUMI_HOME": str(workspace.pulumi_home)}
        args = ["stack", *words, "--stack", ref.name]
        said: list[str] = []

        def run() -> None:
            answer = workspace.pulumi_command.run(args, workspace.work_dir, environment)
            said.append(answer.stdout)

        _run(ref, run, self.secrets(account))
        return said[0]

    def _kept(self, ref: StackRef) -> Kept | None:
        root = file_root(self._backend)
        return (
            Kept(root.parent, project_name(load_project(ref.project)), ref.name) if root else None
        )

    @cached_property
    def _command(self) -> "automation.PulumiCommand":
        from fleet.engines.pulumi_stack import Command

        return Command(str(self._home.command_root(known_cli())))

    def _workspace(
        self, ref: StackRef, account: Account, program: Callable[[], None] | None
    ) -> "automation.LocalWorkspace":
        from pulumi import automation

        from fleet.engines.pulumi_stack import Workspace

        if self._passphrase is None:
            raise SecretMissing(
                "the real engine encrypts secrets in stack state: say where its passphrase is, "
                "for instance state: {passphrase: {env: FLEET_PASSPHRASE}}"
            )
        # The SDK's server answers to a CLI that is gone after a failure; the traceback that grpc
        # would log of it says nothing that StackFailed does not.
        logging.getLogger("grpc._server").setLevel(logging.CRITICAL)
        project = load_project(ref.project)
        name = project_name(project)
        root = file_root(self._backend)
        self._home.prepare(name, root.parent if root else None)
        if root:
            drop_cut_notes(root, name)
        return Workspace(
            work_dir=str(self._home.work(name)),
            pulumi_home=str(self._home.folder / "cli"),
            program=program,
            env_vars={
                **self._home.environment(self._backend, self._passphrase()),
                **account.environment(),
            },
            secrets_provider="passphrase",
            project_settings=automation.ProjectSettings(
                name=name, runtime="python", main=str(project.folder)
            ),
            pulumi_command=self._command,
        )


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop that the SDK ran the program in.

    After a failure the CLI is gone before the SDK's own thread has noticed; it then stops at
    its first line of log and leaves the loop open.
    """
    never = threading.Event()
    for _ in range(_SETTLE_STEPS):
        if not loop.is_running():
            break
        never.wait(_SETTLE_SECONDS)
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

    from fleet.engines.pulumi_stack import Overdue

    try:
        with running.one():
            act()
    except (ConcurrentUpdateError, StackAlreadyExistsError) as error:
        raise Locked(
            f"stack {ref.name} is being changed by another run; try again when it has ended"
        ) from error
    except Overdue as error:
        raise StackFailed(
            f"stack {ref.name}: the engine did not end within {error}, and was ended: what it did "
            "is not known; the next apply looks, and finishes what it began",
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
