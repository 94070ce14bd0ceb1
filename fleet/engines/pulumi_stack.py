"""This module holds the SDK's workspace and stack, without the CLI starts that nobody asked for.

Runs of several stacks at once share a folder: nothing is selected in it, for every command names
its stack, and its files are replaced whole.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

import grpc  # type: ignore[import-untyped] # it ships no types
import yaml
from pulumi import automation
from pulumi.automation import EngineEvent
from pulumi.automation._server import LanguageServer
from pulumi.automation._stack import ExecKind, StackInitMode, _cleanup
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import language_pb2, language_pb2_grpc
from semver import VersionInfo

from fleet.engines.pulumi_cli import VERSION
from fleet.engines.pulumi_gate import Gate
from fleet.schema.units import write_duration
from fleet.store.files import replace_file
from fleet.store.processes import kill_marked, marked

_THREADS = 4
"""As many as the SDK has."""


class Overdue(Exception):
    """The CLI did not end in time, and was ended."""


class Command(automation.PulumiCommand):
    """The CLI under a folder, whose version is known to fit: it is not asked again.

    What takes longer than `limit` seconds is interrupted, so that it records what it did, and
    killed with all that it started where it has not ended `grace` seconds later.
    """

    def __init__(self, root: str, limit: float = 3600, grace: float = 60) -> None:
        self.command = str(Path(root) / "bin" / "pulumi")
        self.version = VersionInfo.parse(VERSION)
        self._limit, self._grace = limit, grace

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: automation.OnOutput | None = None,
        on_error: automation.OnOutput | None = None,
    ) -> automation.CommandResult:
        """Run a command of the CLI; Overdue where it was ended."""
        mark = token_hex(8)
        is_over, is_late = threading.Event(), threading.Event()

        def watch() -> None:
            if is_over.wait(self._limit):
                return
            is_late.set()
            for pid in marked(mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
            if not is_over.wait(self._grace):
                kill_marked(mark)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            environment = {**additional_env, "FLEET_OPERATION": mark}
            return super().run(args, cwd, environment, on_output, on_error)
        finally:
            is_over.set()
            watcher.join()
            if is_late.is_set():
                raise Overdue(write_duration(int(self._limit)))


class Workspace(automation.LocalWorkspace):
    """A folder that several runs may use at once."""

    def select_stack(self, stack_name: str) -> None:
        """Do nothing: a selection is a file for people who leave `--stack` out."""

    def create_stack(self, stack_name: str) -> None:
        """Make a stack without selecting it."""
        words = ["stack", "init", stack_name, "--no-select"]
        if self.secrets_provider:
            words += ["--secrets-provider", self.secrets_provider]
        self._run_pulumi_cmd_sync(words)

    def save_project_settings(self, settings: automation.ProjectSettings) -> None:
        """Write the project's file whole, where it says something else."""
        text = yaml.safe_dump(settings.to_dict(), sort_keys=True)
        replace_file(Path(self.work_dir) / "Pulumi.yaml", text.encode(), mode=0o600)


class _GatedProgram(LanguageServer):
    """A program that the engine runs when its gate lets it."""

    def __init__(self, program: automation.PulumiFn, gate: Gate) -> None:
        super().__init__(program)
        self._gate = gate

    def Run(  # noqa: N802 - the protocol's name
        self, request: language_pb2.RunRequest, context: object
    ) -> language_pb2.RunResponse:
        # Before that, not even the stack itself is declared, and its state is not written.
        if not self._gate.passes(is_preview=request.dryRun):
            return language_pb2.RunResponse(error="given up after its preview", bail=True)
        answer: language_pb2.RunResponse = super().Run(request, context)  # type: ignore[no-untyped-call] # the SDK's own
        return answer


class Stack(automation.Stack):
    """A stack of which the outputs and the history are not read after each `up`."""

    @classmethod
    def select(cls, stack_name: str, workspace: automation.Workspace) -> "Stack":
        """Return a stack that exists."""
        return cls(stack_name, workspace, StackInitMode.SELECT)

    def up_through(self, gate: Gate, on_event: Callable[[EngineEvent], None]) -> None:
        """Run `up` with the CLI's own preview, which the SDK always skips, through a gate."""
        server = grpc.server(ThreadPoolExecutor(_THREADS), options=_GRPC_CHANNEL_OPTIONS)
        language = _GatedProgram(self.workspace.program or gate.program, gate)
        language_pb2_grpc.add_LanguageRuntimeServicer_to_server(language, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        # This CLI tells its events to a server: there is neither a file nor what watches it.
        events, _, _, _, listener = self._setup_event_log("up", on_event, VERSION)
        words = ["up", "--yes", "--continue-on-error", f"--client=127.0.0.1:{port}"]
        words += ["--exec-kind", ExecKind.INLINE.value, "--event-log", events]
        try:
            self._run_pulumi_cmd_sync(words)
        finally:
            _cleanup(None, None, None, lambda: server.stop(0), listener)

    def outputs(self) -> Mapping[str, automation.OutputValue]:  # type: ignore[override] # the SDK's own alias is of dict, it only hands it on
        """Return none: what was made is read from the state."""
        return {}

    def info(self, show_secrets: bool | None = None) -> automation.UpdateSummary:  # noqa: ARG002, FBT001 - the SDK's own argument
        """Return that an update ended; `up` raises where it did not succeed."""
        return automation.UpdateSummary("update", datetime.now(UTC), "", {}, {}, "succeeded")
