"""Pulumi's SDK as fleet uses it: the CLI as a command, a workspace, a gate before a program.

The SDK is an optional dependency and slow to import. Reading stacks does not need it.
"""

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Protocol

import grpc  # type: ignore[import-untyped] # it ships no types
import yaml
from pulumi import automation
from pulumi.runtime.proto import language_pb2
from semver import VersionInfo

from fleet.engines.pulumi_backends import VERSION
from fleet.schema.units import write_duration
from fleet.state.files import replace_file
from fleet.state.processes import kill_by_environment, marked

_RUN_METHOD = "/pulumirpc.LanguageRuntime/Run"
_CLIENT_OPTION = "--client="
_GRPC_OPTIONS = (
    ("grpc.max_receive_message_length", 400 * 2**20),
    ("grpc.server_max_unrequested_time_in_server", 1800),
)
"""Limits as in the SDK, because the reply to a run may be large and slow."""


class ProgramGate(Protocol):
    """The decision whether a run of the stack's program may start."""

    def passes(self, *, is_preview: bool) -> bool:
        """Wait for the decision, and return whether the run may start."""


class _GatedServer(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc ships no types
    """Proxy of the SDK's server for a program. The gate decides whether a run may start."""

    def __init__(self, channel: grpc.Channel, gate: ProgramGate) -> None:
        self._channel = channel
        self._gate = gate

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Return the handler of a call. Its messages are bytes."""
        method, pass_on = details.method, self._channel.unary_unary(details.method)

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            if method == _RUN_METHOD and not self._passes(request):
                refused = language_pb2.RunResponse(error="cancelled after its preview", bail=True)
                return bytes(refused.SerializeToString())
            try:
                return bytes(pass_on(request))
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
                raise

        return grpc.unary_unary_rpc_method_handler(answer)

    def _passes(self, request: bytes) -> bool:
        # Before this point, the CLI has neither declared the stack nor written its state.
        return self._gate.passes(is_preview=language_pb2.RunRequest.FromString(request).dryRun)


@contextmanager
def _run_gated(args: Sequence[str], gate: ProgramGate) -> Iterator[list[str]]:
    """Insert the gate between CLI and program. Keep the preview, which the SDK would skip."""
    client = next(word for word in args if word.startswith(_CLIENT_OPTION))
    server = grpc.server(ThreadPoolExecutor(4), options=_GRPC_OPTIONS)
    with grpc.insecure_channel(
        client.removeprefix(_CLIENT_OPTION), options=_GRPC_OPTIONS
    ) as channel:
        server.add_generic_rpc_handlers((_GatedServer(channel, gate),))
        gated = f"{_CLIENT_OPTION}127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield [gated if word == client else word for word in args if word != "--skip-preview"]
        finally:
            server.stop(0)


_HISTORY_ENTRY = {
    "kind": "update",
    "message": "",
    "startTime": "2000-01-01T00:00:00.000Z",
    "environment": {},
    "config": {},
    "result": "succeeded",
}


class Overdue(Exception):
    """The CLI exceeded its time limit and was stopped."""


class Command(automation.PulumiCommand):
    """The CLI below a folder, in a supported release.

    After `limit` seconds the CLI is interrupted, so that it records its completed steps. `grace`
    seconds later the CLI is killed with all its children.
    """

    def __init__(
        self, root: str, limit: float = 3600, grace: float = 60, gate: ProgramGate | None = None
    ) -> None:
        self.command = str(Path(root) / "bin" / "pulumi")
        self.version = VersionInfo.parse(VERSION)
        self._limit, self._grace, self._gate = limit, grace, gate

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: automation.OnOutput | None = None,
        on_error: automation.OnOutput | None = None,
    ) -> automation.CommandResult:
        """Run a command of the CLI; raises Overdue if the CLI was stopped at its time limit."""
        if args[:2] == ["stack", "history"]:
            # The SDK reads the history after each update; fleet needs only its result.
            return automation.CommandResult(json.dumps([_HISTORY_ENTRY]), "", 0)
        if args[0] == "up" and self._gate:
            with _run_gated(args, self._gate) as gated:
                return self._run(gated, cwd, additional_env, on_output, on_error)
        return self._run(args, cwd, additional_env, on_output, on_error)

    def _run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: automation.OnOutput | None,
        on_error: automation.OnOutput | None,
    ) -> automation.CommandResult:
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
                kill_by_environment(mark)

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
    """A workspace folder that several runs may use concurrently."""

    def select_stack(self, stack_name: str) -> None:
        """Do nothing, because fleet names the stack in every command."""

    def create_stack(self, stack_name: str) -> None:
        """Create a stack without selecting it."""
        words = ["stack", "init", stack_name, "--no-select"]
        if self.secrets_provider:
            words += ["--secrets-provider", self.secrets_provider]
        self._run_pulumi_cmd_sync(words)

    def stack_outputs(self, stack_name: str) -> automation.OutputMap:  # noqa: ARG002 - the SDK's own argument
        """Return no outputs, because fleet reads results from the state."""
        return {}

    def save_project_settings(self, settings: automation.ProjectSettings) -> None:
        """Replace the project's file atomically, if its content would change."""
        text = yaml.safe_dump(settings.to_dict(), sort_keys=True)
        replace_file(Path(self.work_dir) / "Pulumi.yaml", text.encode(), mode=0o600)
