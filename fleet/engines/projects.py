"""Stack projects: their programs and inputs, and checks of a stack's owner.

The program of a stack is an independent file that is loaded by its path.

Evaluation calls no provider: a local monitor answers each registration with its own inputs.
"""

import asyncio
import importlib.util
import time
from collections.abc import Callable, Collection, Container, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import Context
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

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
from fleet.model.facts import Machine, Unknown, WorkerInputs
from fleet.model.values import Value
from fleet.ports import Engine, Provider, StackChange, StackRef, SupportsConcurrency
from fleet.schema.sources import extra_of
from fleet.state.storage import shipped_folder

if TYPE_CHECKING:
    from pulumi.runtime.proto import resource_pb2


@dataclass(frozen=True)
class ProviderAccount:
    """The access to a provider for its stacks: the machine listing, settings and secrets.

    `config` is stored unencrypted in the stack's settings. Secrets must be in `environment`, or in
    `inputs` that the program declares as secret.
    """

    provider: Provider
    config: Mapping[str, str] = field(default_factory=dict)
    environment: Callable[[], Mapping[str, str]] = dict
    inputs: Mapping[str, Any] = field(default_factory=dict)
    clear: Callable[[str, str, Collection[str]], None] = lambda *_: None
    """Function (fleet, resource, recorded names) that deletes a resource's unrecorded objects."""


def check_owner(ref: StackRef, *, mine: str, owner: str | None) -> None:
    """Raise EngineMismatch if another engine owns the stack."""
    if owner not in (None, mine):
        raise EngineMismatch(
            f"stack {ref.name} belongs to the engine {owner!r}, not to {mine!r}; say "
            f"`engine: {owner}` for provider {ref.provider}, or drain the pool first"
        )


def check_provider(ref: StackRef, recorded: str, *, holds_machines: bool) -> None:
    """Raise PlanRefused if the stack has machines at a provider other than its pool's."""
    if holds_machines and recorded != ref.provider:
        raise PlanRefused(
            f"stack {ref.name} holds machines at provider {recorded!r}, but the pool now says "
            f"{ref.provider!r}; drain the pool before it moves"
        )


def check_holds(ref: StackRef, worker: str, held: Container[str]) -> None:
    """Raise PlanRefused if the stack lacks the worker whose record is to be removed."""
    if worker not in held:
        raise PlanRefused(
            f"stack {ref.name} does not hold {worker}, so there is nothing to forget"
        )


def check_still_there(ref: StackRef, user_data: Mapping[str, str], exists: Container[str]) -> None:
    """Raise StackFailed if a machine that got no new user data no longer exists."""
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


_LISTING_PAUSE_SECONDS = 10


class AbsenceCheck:
    """Confirms that machines no longer exist. A confirmed machine needs no second pause.

    A provider with problems may omit a machine from a listing. If fleet counted it as deleted, the
    machine would run on unnoticed. So it must be missing from two listings with a pause between.
    """

    pause: Callable[[float], object] = staticmethod(time.sleep)

    def __init__(self) -> None:
        self._confirmed: set[tuple[str, str]] = set()

    def surely_gone(
        self,
        provider: Provider,
        going: Sequence[WorkerInputs],
        ids: Mapping[str, str],
    ) -> tuple[str, ...]:
        """Return the workers missing from a listing, and from another listing after a pause."""
        gone = _missing_from_listing(provider, [each for each in going if each.name in ids], ids)
        if not self._confirmed.issuperset(_name_and_id(gone, ids)):
            self.pause(_LISTING_PAUSE_SECONDS)
            gone = _missing_from_listing(provider, gone, ids)
            self._confirmed.update(_name_and_id(gone, ids))
        return tuple(each.name for each in gone)


def _name_and_id(
    workers: Sequence[WorkerInputs], ids: Mapping[str, str]
) -> Sequence[tuple[str, str]]:
    return [(each.name, ids[each.name]) for each in workers]


def find_listed(
    provider: Provider, suspects: Mapping[str, WorkerInputs]
) -> dict[str, Machine] | Unknown:
    """Map the names of these workers to their machines that a provider lists.

    Of machines with the same name, choose the one with the worker's pool and digest. Unknown if a
    listing is unreadable.
    """
    found: dict[str, Machine] = {}
    for fleet in sorted({each.labels.get("fleet", "") for each in suspects.values()}):
        listing = provider.list(fleet)
        if isinstance(listing, Unknown):
            return listing
        named = [each for each in listing.machines if each.name in suspects]
        named.sort(key=lambda each: is_made_from(each, suspects[each.name]))
        found |= {each.name: each for each in named}
    return found


def is_made_from(machine: Machine, worker: WorkerInputs) -> bool:
    """Return whether a machine has the pool and the digest of this worker."""
    marks = (worker.labels.get("pool"), worker.labels.get("digest"))
    return (machine.pool, machine.digest) == marks


def _missing_from_listing(
    provider: Provider, going: Sequence[WorkerInputs], ids: Mapping[str, str]
) -> Sequence[WorkerInputs]:
    listed: set[str] = set()
    for owner in {each.labels.get("fleet", "") for each in going}:
        listing = provider.list(owner)
        if isinstance(listing, Unknown):
            return ()
        listed |= {text for machine in listing.machines for text in (machine.name, machine.id)}
    return [each for each in going if not listed & {each.name, ids[each.name]}]


def two_step_change(engine: Engine, ref: StackRef, workers: Sequence[WorkerInputs]) -> StackChange:
    """Return a change whose preview and update are two separate operations."""
    return StackChange(engine.preview(ref, workers), partial(engine.up, ref, workers))


Inputs = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Project:
    """A stack project. `recorded` parses a worker from state, without the program's SDK."""

    name: str
    folder: Path
    recorded: Callable[[str, Inputs], dict[str, Any] | None]
    parts: Mapping[str, str]
    """Map of a resource type to the kind of a resource that machines share."""

    @property
    def program(self) -> Callable[[Inputs], None]:
        """Return the stack's program; raises EngineAbsent if the provider's SDK is missing."""
        program: Callable[[Inputs], None] = _load(self.folder / "program.py").program
        return program

    def worker_of(self, kind: str, inputs: Inputs) -> WorkerInputs | None:
        """Return the worker that a resource declares; None if the resource is no worker."""
        try:
            found = self.recorded(kind, inputs)
            return None if found is None else WorkerInputs.model_validate(found)
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise PlanRefused(
                f"stacks/{self.name}: a recorded {kind} was not made by this program: {error}"
            ) from error


@cache
def load_project(name: str) -> Project:
    """Load stacks/<name> without its program; raises FleetError if it does not exist."""
    folder = shipped_folder("stacks") / name
    if not (folder / "recorded.py").is_file():
        known = ", ".join(sorted(each.parent.name for each in folder.parent.glob("*/recorded.py")))
        raise FleetError(f"there is no stack project {name!r}; there are: {known}")
    record = _load(folder / "recorded.py")
    return Project(name, folder, record.recorded, getattr(record, "PARTS", {}))


def project_name(name: str) -> str:
    """Return the project name that Pulumi uses for stacks/<name>."""
    settings = (load_project(name).folder / "Pulumi.yaml").read_text(encoding="utf-8")
    return str(yaml.safe_load(settings)["name"])


@cache
def _load(path: Path) -> ModuleType:
    """Load a module by its path; raises EngineAbsent if a dependency is missing."""
    project = path.parent.name
    spec = importlib.util.spec_from_file_location(f"fleet_stack_{project}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FleetError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    with needing(extra_of(project), f"stacks/{project}", EngineAbsent):
        spec.loader.exec_module(module)
    return module


def run_steps(
    provider: object, steps: Sequence[T], do: Callable[[T], None]
) -> Generator[tuple[T, FleetError | None]]:
    """Run steps, and yield each step when it ends, with the step's error or None.

    If the caller is interrupted or closes this, running steps are cancelled and no other starts.
    """

    def tried(step: T) -> FleetError | None:
        try:
            do(step)
        except FleetError as error:
            return error
        return None

    if not isinstance(provider, SupportsConcurrency):
        for step in steps:
            yield step, tried(step)
        return
    with ThreadPoolExecutor(provider.at_once, thread_name_prefix="machine") as threads:
        try:
            running = {threads.submit(tried, step): step for step in steps}
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            provider.cut_short()
            try:
                threads.shutdown(cancel_futures=True)
            finally:
                provider.go_on()
            raise


SECRET = "[secret]"  # noqa: S105 - the text in place of a secret


class Resource(Value):
    """A resource as its program declares it, with secrets replaced by a fixed text."""

    type: str
    name: str
    inputs: dict[str, Any]
    secrets: tuple[str, ...] = ()
    adopts: str = ""


def evaluate(program: Callable[[], None], *, project: str, stack: str) -> tuple[Resource, ...]:
    """Run a program and return its resources, sorted; raises PlanRefused for invalid inputs.

    Raises EngineAbsent if Pulumi's SDK is missing.
    """
    with needing(extra_of(project), f"stacks/{project}", EngineAbsent):
        from pulumi.runtime import Settings, configure, run_in_stack
        from pulumi.runtime.mocks import MockEngine
    monitor = _InputMonitor(project, stack)

    async def run() -> None:
        # The mock monitor of the SDK leaks one event loop per evaluation.
        configure(Settings(project, stack, monitor, MockEngine(None)))
        await run_in_stack(program)

    try:
        # A separate context has its own settings and root resource of the SDK.
        Context().run(asyncio.run, run())
    except Exception as error:
        raise PlanRefused(f"stacks/{project}: {error}") from error
    names = [each.name for each in monitor.found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PlanRefused(f"stacks/{project}: declared twice: {', '.join(twice)}")
    return tuple(sorted(monitor.found, key=lambda each: (each.type, each.name)))


class _InputMonitor:
    """Fake engine that answers the SDK's calls. The protocol defines the names of the methods."""

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
        inputs = _redact(MessageToDict(request.object), "", secrets)
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
            # An integer, like the ids of some providers: programs may compute with ids.
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


def _redact(value: Any, path: str, secrets: list[str]) -> Any:  # noqa: ANN401 - any input
    """Return an input with secrets replaced, and integral floats as integers.

    Appends the paths of the secrets to `secrets`.
    """
    from pulumi.runtime import rpc

    if rpc.is_rpc_secret(value):
        secrets.append(path)
        return SECRET
    if isinstance(value, dict):
        return {
            key: _redact(each, f"{path}.{key}".lstrip("."), secrets) for key, each in value.items()
        }
    if isinstance(value, list):
        return [_redact(each, f"{path}[{index}]", secrets) for index, each in enumerate(value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
