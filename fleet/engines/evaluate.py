"""This module runs a stack program in-process and returns the resources that it declares.

No provider is called: a monitor of our own answers each registration with its own inputs.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fleet.errors import PlanRefused
from fleet.facts.values import Value

if TYPE_CHECKING:
    from pulumi.runtime.proto import resource_pb2

SECRET = "[secret]"  # noqa: S105 - what stands in for a secret, not one

_ONE = threading.Lock()
"""The SDK shuts down threads that all of its programs share."""


class Resource(Value):
    """A resource as its program declares it, without the text of any secret."""

    type: str
    name: str
    inputs: dict[str, Any]
    secrets: tuple[str, ...] = ()
    adopts: str = ""


def evaluate(program: Callable[[], None], *, project: str, stack: str) -> tuple[Resource, ...]:
    """Return the resources a program declares, sorted; raises PlanRefused on wrong inputs."""
    monitor = _Monitor(project, stack)
    problem: list[Exception] = []

    def run() -> None:
        # A thread of its own has a context of its own: the SDK's settings, root resource
        # and event loop of one evaluation never reach another.
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(_run(program, monitor))
        except Exception as error:  # noqa: BLE001 - carried over to the caller's thread
            problem.append(error)
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=run, name=f"evaluate {stack}")
    with _ONE:
        thread.start()
        thread.join()
    if problem:
        raise PlanRefused(f"stacks/{project}: {problem[0]}") from problem[0]
    names = [each.name for each in monitor.found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PlanRefused(f"stacks/{project}: declared twice: {', '.join(twice)}")
    return tuple(sorted(monitor.found, key=lambda each: (each.type, each.name)))


async def _run(program: Callable[[], None], monitor: "_Monitor") -> None:
    from pulumi.runtime import mocks
    from pulumi.runtime.stack import run_pulumi_func

    class NoMocks(mocks.Mocks):
        """Never asked: the monitor answers by itself."""

        def call(self, args: mocks.MockCallArgs) -> Any:  # noqa: ANN401 - the SDK's signature
            raise NotImplementedError(args.token)

        def new_resource(self, args: mocks.MockResourceArgs) -> Any:  # noqa: ANN401 - same
            raise NotImplementedError(args.name)

    mocks.set_mocks(
        NoMocks(),
        project=monitor.project,
        stack=monitor.stack,
        # The SDK's own mock monitor leaves one open event loop per thread behind.
        monitor=monitor,  # type: ignore[arg-type] # duck-typed, as a gRPC stub is
    )
    await run_pulumi_func(program)


class _Monitor:
    """Answers what the SDK asks of an engine; the method names are the protocol's."""

    def __init__(self, project: str, stack: str) -> None:
        self.project = project
        self.stack = stack
        self.found: list[Resource] = []

    def RegisterResource(  # noqa: N802 - the protocol's name
        self, request: "resource_pb2.RegisterResourceRequest"
    ) -> "resource_pb2.RegisterResourceResponse":
        from google.protobuf.json_format import (  # type: ignore[import-untyped] # no stubs
            MessageToDict,
        )
        from pulumi.runtime.proto import resource_pb2

        urn = f"urn:pulumi:{self.stack}::{self.project}::{request.type}::{request.name}"
        if request.type == "pulumi:pulumi:Stack":
            return resource_pb2.RegisterResourceResponse(urn=urn)
        secrets: list[str] = []
        inputs = _plain(MessageToDict(request.object), "", secrets)
        self.found.append(
            Resource(
                type=request.type,
                name=request.name,
                inputs=inputs,
                secrets=tuple(sorted(secrets)),
                adopts=request.importId,
            )
        )
        return resource_pb2.RegisterResourceResponse(
            # A whole number, as some providers' ids are: programs may compute with them.
            urn=urn,
            id=str(len(self.found)),
            object=request.object,
        )

    def RegisterResourceOutputs(self, _request: object) -> object:  # noqa: N802 - same
        from google.protobuf import empty_pb2  # type: ignore[import-untyped] # no stubs

        return empty_pb2.Empty()

    SignalAndWaitForShutdown = RegisterResourceOutputs

    def RegisterPackage(self, _request: object) -> object:  # noqa: N802 - same
        from pulumi.runtime.proto import resource_pb2

        return resource_pb2.RegisterPackageResponse(ref="none")

    def SupportsFeature(self, request: Any) -> object:  # noqa: N802, ANN401 - same
        from pulumi.runtime.proto import resource_pb2

        return resource_pb2.SupportsFeatureResponse(hasSupport=request.id != "outputValues")

    def Invoke(self, request: Any) -> object:  # noqa: N802, ANN401 - same
        raise PlanRefused(f"the program looks something up ({request.tok}), which is not allowed")

    ReadResource = Invoke


def _plain(value: Any, path: str, secrets: list[str]) -> Any:  # noqa: ANN401 - any input
    """Return an input with secrets struck out, noting their places, and whole numbers whole."""
    from pulumi.runtime import rpc

    if rpc.is_rpc_secret(value):
        secrets.append(path)
        return SECRET
    if isinstance(value, dict):
        return {
            key: _plain(each, f"{path}.{key}".lstrip("."), secrets) for key, each in value.items()
        }
    if isinstance(value, list):
        return [_plain(each, f"{path}[{index}]", secrets) for index, each in enumerate(value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
