"""The simulated cloud as a provider plugin of Pulumi.

The Pulumi CLI runs it as `pulumi-resource-sim`. The stack's configuration key `sim:path` has the
path of the cloud's file.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.server import main as serve
from pydantic import ValidationError

from fleet.clock import SystemClock
from fleet.clouds.sim.machines import SimCloud
from fleet.errors import FleetError, SourceUnreachable
from fleet.model.facts import WorkerInputs

VERSION = "0.1.0"
IN_PLACE = frozenset({"labels", "settings"})
USER_DATA = "userData"


class SimResourceProvider(api.Provider):
    """Pulumi provider that creates, reads and deletes simulated machines."""

    def __init__(self) -> None:
        self._path: Path | None = None

    async def configure(self, request: api.ConfigureRequest) -> api.ConfigureResponse:
        """Store the path of the simulated cloud's file."""
        path = _plain(request.args).get("path") or request.variables.get("sim:config:path")
        self._path = Path(path) if path else None
        return await super().configure(request)

    async def check(self, request: api.CheckRequest) -> api.CheckResponse:
        """Report a failure for each invalid input of a worker."""
        try:
            _worker(_plain(request.new_inputs))
        except ValidationError as error:
            failures = [
                api.CheckFailure(".".join(map(str, each["loc"])), each["msg"])
                for each in error.errors()
            ]
            return api.CheckResponse(inputs=request.new_inputs, failures=failures)
        return api.CheckResponse(inputs=request.new_inputs)

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        """Return the changed inputs. All except labels and settings require a replacement."""
        before, after = _plain(request.old_state), _plain(request.new_inputs)
        changed = sorted(key for key in after if after[key] != before.get(key))
        return api.DiffResponse(
            changes=bool(changed),
            diffs=changed,
            replaces=[key for key in changed if key not in IN_PLACE],
        )

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        """Create a machine. In a preview, do nothing."""
        if request.preview:
            return api.CreateResponse(resource_id="", properties=request.properties)
        given = _plain(request.properties)
        machine_id = await self._run_in_thread(
            lambda cloud: cloud.create(_worker(given), given.get(USER_DATA, ""))
        )
        return api.CreateResponse(resource_id=machine_id, properties=request.properties)

    async def read(self, request: api.ReadRequest) -> api.ReadResponse:
        """Return a machine's inputs; an empty id if the machine does not exist."""
        inputs = await self._run_in_thread(lambda cloud: cloud.read(request.resource_id))
        if inputs is None:
            return api.ReadResponse(resource_id="")
        values = {key: _value(each) for key, each in inputs.model_dump(mode="json").items()}
        return api.ReadResponse(
            resource_id=request.resource_id, properties=values, inputs=dict(values)
        )

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        """Accept a preview, but refuse an update, because machines keep their recorded inputs."""
        if request.preview:
            return api.UpdateResponse(properties=request.news)
        raise SourceUnreachable(f"{request.name}: a simulated machine cannot be changed in place")

    async def delete(self, request: api.DeleteRequest) -> None:
        """Delete a machine. Do nothing if it does not exist."""
        await self._run_in_thread(lambda cloud: cloud.delete(request.resource_id))

    async def _run_in_thread(self, act: Any) -> Any:  # noqa: ANN401 - returns what `act` returns
        if self._path is None:
            raise SourceUnreachable("set `sim:path` in the stack's configuration to the file")
        # A change locks the file, and waiting for the lock must not block other calls.
        return await asyncio.to_thread(act, SimCloud(self._path, SystemClock()))


def main() -> None:
    """Serve the engine that started this process, until the engine exits."""
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    serve(sys.argv[1:], VERSION, SimResourceProvider())


def _exit_with_parent(parent: int) -> None:
    """Exit when the engine exits, even if it was killed, since no other process stops this one."""
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(0.5)
    os._exit(0)


def _worker(given: Mapping[str, Any]) -> WorkerInputs:
    """Parse the inputs of a machine, without its user data."""
    return WorkerInputs.model_validate(
        {key: value for key, value in given.items() if key != USER_DATA}
    )


def _plain(values: Mapping[str, PropertyValue]) -> dict[str, Any]:
    return {key: _unwrap(each) for key, each in values.items() if not key.startswith("__")}


def _unwrap(value: Any) -> Any:  # noqa: ANN401 - any property
    inner = value.value if isinstance(value, PropertyValue) else value
    if isinstance(inner, Mapping):
        return {key: _unwrap(each) for key, each in inner.items()}
    return inner


def _value(value: object) -> PropertyValue:
    if isinstance(value, Mapping):
        return PropertyValue({key: _value(each) for key, each in value.items()})
    return PropertyValue(str(value))


if __name__ == "__main__":
    try:
        main()
    except FleetError as error:
        sys.exit(str(error))
