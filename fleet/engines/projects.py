"""Stack projects: what a provider gives them, whose a stack is, and how programs are loaded.

A stack's program is a file of its own that knows nothing of fleet: it is loaded by path.

No provider is called: a monitor of our own answers each registration with its own inputs.
"""

import asyncio
import importlib.util
import threading
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from fleet.errors import (
    EngineAbsent,
    EngineMismatch,
    FleetError,
    PlanRefused,
    StackFailed,
    needing,
)
from fleet.model.facts import Unknown, WorkerInputs
from fleet.model.values import Value
from fleet.ports import Change, Engine, Provider, StackRef
from fleet.schema.sources import extra_of
from fleet.state.storage import shipped_folder

if TYPE_CHECKING:
    from pulumi.runtime.proto import resource_pb2


@dataclass(frozen=True)
class Account:
    """A provider's listing, and its part of each stack.

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
    """Deletes what a shared stack does not know of a part, and cannot adopt: of which fleet, of
    which part, and the names of the resources that it knows."""


def check_owner(ref: StackRef, *, mine: str, owner: str | None) -> None:
    """Raise EngineMismatch when a stack is recorded as another engine's."""
    if owner not in (None, mine):
        raise EngineMismatch(
            f"stack {ref.name} belongs to the engine {owner!r}, not to {mine!r}; say "
            f"`engine: {owner}` for provider {ref.provider}, or drain the pool first"
        )


def check_provider(ref: StackRef, recorded: str, *, holds_machines: bool) -> None:
    """Raise PlanRefused when a stack's machines are at another provider than its pool now is."""
    if holds_machines and recorded != ref.provider:
        raise PlanRefused(
            f"stack {ref.name} holds machines at provider {recorded!r}, but the pool now says "
            f"{ref.provider!r}; drain the pool before it moves"
        )


def check_holds(ref: StackRef, worker: str, held: Container[str]) -> None:
    """Raise PlanRefused when a stack does not hold the worker that it is to forget."""
    if worker not in held:
        raise PlanRefused(
            f"stack {ref.name} does not hold {worker}, so there is nothing to forget"
        )


def check_made_before(ref: StackRef, user_data: Mapping[str, str], exists: Container[str]) -> None:
    """Raise StackFailed where a machine that was there when this run looked is gone by now."""
    gone = {
        name: f"{name} is gone; without a token its worker would never register"
        for name, text in user_data.items()
        if not text and name not in exists
    }
    if gone:
        raise StackFailed(
            f"stack {ref.name}: {'; '.join(gone.values())}; the next apply gives it one",
            failed=gone,
        )


_SECONDS_APART = 10


class Absences:
    """Looks for machines; what was surely gone once is looked for again, but not waited for.

    A provider in trouble may leave a machine out of a listing. Taken for gone it would run on,
    unknown; so it has to be out of two listings, some seconds apart.
    """

    def __init__(self) -> None:
        self._sure: set[tuple[str, str]] = set()

    def surely_gone(
        self,
        provider: Provider,
        going: Sequence[WorkerInputs],
        ids: Mapping[str, str],
        pause: Callable[[float], None],
    ) -> tuple[str, ...]:
        """Return those that their provider lists no more, neither at once nor a while later."""
        gone = _unlisted(provider, [each for each in going if each.name in ids], ids)
        if not self._sure.issuperset(_machines(gone, ids)):
            pause(_SECONDS_APART)
            gone = _unlisted(provider, gone, ids)
            self._sure.update(_machines(gone, ids))
        return tuple(each.name for each in gone)


def _machines(
    workers: Sequence[WorkerInputs], ids: Mapping[str, str]
) -> Sequence[tuple[str, str]]:
    return [(each.name, ids[each.name]) for each in workers]


def _unlisted(
    provider: Provider, going: Sequence[WorkerInputs], ids: Mapping[str, str]
) -> Sequence[WorkerInputs]:
    listed: set[str] = set()
    for owner in {each.labels.get("fleet", "") for each in going}:
        listing = provider.list(owner)
        if isinstance(listing, Unknown):
            return ()
        listed |= {text for machine in listing.machines for text in (machine.name, machine.id)}
    return [each for each in going if not listed & {each.name, ids[each.name]}]


def previewed(engine: Engine, ref: StackRef, workers: Sequence[WorkerInputs]) -> Change:
    """Return a change that is previewed and made in two operations."""
    return Change(engine.preview(ref, workers), partial(engine.up, ref, workers))


Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Project:
    """One stack project: `recorded` reads a worker back, without what running a program needs."""

    name: str
    folder: Path
    recorded: Callable[[str, Inputs], dict[str, Any] | None]
    parts: Mapping[str, str]
    """Type of a resource that machines share, to the kind of part that it is."""

    @property
    def program(self) -> Callable[[Inputs], None]:
        """Return what declares resources; EngineAbsent where the provider's SDK is missing."""
        program: Callable[[Inputs], None] = _load(self.folder / "program.py").program
        return program

    def worker_of(self, kind: str, inputs: Inputs) -> WorkerInputs | None:
        """Return the worker that a resource was declared for; None when it is not one."""
        try:
            found = self.recorded(kind, inputs)
            return None if found is None else WorkerInputs.model_validate(found)
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise PlanRefused(
                f"stacks/{self.name}: a recorded {kind} was not made by this program: {error}"
            ) from error


@cache
def load_project(name: str) -> Project:
    """Return stacks/<name>, of which only the record's reader is loaded."""
    folder = shipped_folder("stacks") / name
    if not (folder / "recorded.py").is_file():
        known = ", ".join(sorted(each.parent.name for each in folder.parent.glob("*/recorded.py")))
        raise FleetError(f"there is no stack project {name!r}; there are: {known}")
    record = _load(folder / "recorded.py")
    return Project(name, folder, record.recorded, getattr(record, "PARTS", {}))


def project_name(name: str) -> str:
    """Return the name that Pulumi knows stacks/<name> by."""
    settings = (load_project(name).folder / "Pulumi.yaml").read_text(encoding="utf-8")
    return str(yaml.safe_load(settings)["name"])


@cache
def _load(path: Path) -> ModuleType:
    """Load a module by its path; EngineAbsent where it needs what is not installed."""
    project = path.parent.name
    spec = importlib.util.spec_from_file_location(f"fleet_stack_{project}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FleetError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    with needing(extra_of(project), f"stacks/{project}", EngineAbsent):
        spec.loader.exec_module(module)
    return module


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
    """Return the resources a program declares, sorted; raises PlanRefused on wrong inputs.

    EngineAbsent where Pulumi's SDK is not installed.
    """
    with needing(extra_of(project), f"stacks/{project}", EngineAbsent):
        import pulumi  # noqa: F401 - the thread below needs it
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
        from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped] # no stubs
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
