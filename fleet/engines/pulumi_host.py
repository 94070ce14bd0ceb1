"""Serve the program of a stack to the Pulumi CLI, and receive the CLI's events.

The CLI connects to a language runtime (its option `--client`), which runs the program, and streams
the events of an operation to a server (`--event-log`). Both are this server, in this process. Each
run of a program has its own context and event loop, so that several can run at the same time.

The SDK is an optional dependency and slow to import. Reading stacks does not need it.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import Context
from typing import Any

import grpc  # type: ignore[import-untyped] # it ships no types
from google.protobuf import empty_pb2  # type: ignore[import-untyped] # no stubs
from pulumi.runtime import Settings, configure, run_in_stack, set_all_config
from pulumi.runtime.proto import (
    LanguageRuntimeServicer,
    engine_pb2_grpc,
    events_pb2,
    events_pb2_grpc,
    language_pb2,
    language_pb2_grpc,
    plugin_pb2,
    resource_pb2_grpc,
)

_GRPC_OPTIONS = (
    ("grpc.max_receive_message_length", 400 * 2**20),
    ("grpc.server_max_unrequested_time_in_server", 1800),
)
"""Limits as in the SDK, because the reply to a run may be large and slow."""
_LAST_EVENTS_SECONDS = 5
_SERVER_THREADS = 4

Program = Callable[[], None]


class ProgramServer(LanguageRuntimeServicer, events_pb2_grpc.EventsServicer):
    """The server of one operation. The names of its methods are those of the protocol."""

    def __init__(
        self,
        choose: Callable[[bool], Program | None],
        hear: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """Set the inputs.

        `choose` returns the program to run, or None to cancel. Its argument is True for the run of
        a preview. Before the run, the CLI has neither declared the stack nor written its state.
        """
        self._choose = choose
        self._hear = hear
        self._channels = ExitStack()
        self._is_heard = threading.Event()
        self._is_heard.set()
        self.error: Exception | None = None
        """The first error of `hear`."""

    @contextmanager
    def serve(self) -> Iterator[tuple[str, ...]]:
        """Serve during the body, in which the CLI runs; yield the options of the CLI."""
        # After a failure, the server replies to a CLI that has exited. grpc would log a traceback.
        logging.getLogger("grpc._server").setLevel(logging.CRITICAL)
        server = grpc.server(ThreadPoolExecutor(_SERVER_THREADS), options=_GRPC_OPTIONS)
        language_pb2_grpc.add_LanguageRuntimeServicer_to_server(self, server)
        events_pb2_grpc.add_EventsServicer_to_server(self, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            log = ("--event-log", f"tcp://{address}")
            yield (f"--client={address}", "--exec-kind", "auto.inline", *log)
        finally:
            self._is_heard.wait(_LAST_EVENTS_SECONDS)
            # Cancel the calls of a program that has not noticed the CLI's end.
            self._channels.close()
            server.stop(0)

    def StreamEvents(  # noqa: N802 - the protocol's name
        self, requests: Iterable[events_pb2.EventRequest], _context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        """Receive the events of the operation until its end."""
        self._is_heard.clear()
        try:
            for request in requests:
                try:
                    self._hear(json.loads(request.event))
                except Exception as error:  # noqa: BLE001 - raised after the operation
                    self.error = self.error or error
        finally:
            self._is_heard.set()
        return empty_pb2.Empty()

    def GetRequiredPlugins(self, *_: object) -> language_pb2.GetRequiredPluginsResponse:  # noqa: N802 - same
        """Return no plugins, because the CLI finds those of the resources."""
        return language_pb2.GetRequiredPluginsResponse()

    def GetRequiredPackages(self, *_: object) -> language_pb2.GetRequiredPackagesResponse:  # noqa: N802 - same
        """Return no packages, because the CLI finds those of the resources."""
        return language_pb2.GetRequiredPackagesResponse()

    def GetPluginInfo(self, *_: object) -> plugin_pb2.PluginInfo:  # noqa: N802 - same
        """Return no version of this server."""
        return plugin_pb2.PluginInfo()

    def Run(  # noqa: N802 - same
        self, request: language_pb2.RunRequest, _context: grpc.ServicerContext
    ) -> language_pb2.RunResponse:
        """Run the program, for a preview or for the update."""
        program = self._choose(request.dryRun)
        if program is None:
            return language_pb2.RunResponse(error="cancelled after its preview", bail=True)
        try:
            Context().run(asyncio.run, self._run(program, request))
        except grpc.RpcError as error:
            return language_pb2.RunResponse(error=error.details())
        except Exception as error:  # noqa: BLE001 - the CLI reports it
            return language_pb2.RunResponse(error=str(error))
        return language_pb2.RunResponse()

    async def _run(self, program: Program, request: language_pb2.RunRequest) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(max(request.parallel, 1) * 4))
        # The SDK leaves errors in tasks if the CLI exits; asyncio would log a traceback.
        loop.set_exception_handler(lambda *_: None)
        monitor, engine = (
            self._channels.enter_context(grpc.insecure_channel(address, options=_GRPC_OPTIONS))
            for address in (request.monitor_address, request.args[0])
        )
        configure(
            Settings(
                project=request.project,
                stack=request.stack,
                monitor=resource_pb2_grpc.ResourceMonitorStub(monitor),
                engine=engine_pb2_grpc.EngineStub(engine),
                parallel=request.parallel,
                dry_run=request.dryRun,
                organization=request.organization,
            )
        )
        set_all_config(dict(request.config), list(request.configSecretKeys))
        await run_in_stack(program)
