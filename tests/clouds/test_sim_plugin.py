"""The plugin answers the real engine as the simulated cloud would."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental.property_value import PropertyValue

from fleet.clouds.sim.machines import SimCloud
from fleet.clouds.sim.plugin import SimResourceProvider
from fleet.errors import CreationRefused, SourceUnreachable
from tests.builders import NOW
from tests.fakes.engine import FixedClock
from tests.ports.engines import MENU, a_sim_worker, names_in

ONE = a_sim_worker("debian-builders-0001")
URN = f"urn:pulumi:s::fleet-sim::sim:index:Machine::{ONE.name}"


def properties(**overrides: object) -> dict[str, PropertyValue]:
    inputs: dict[str, Any] = ONE.model_dump(mode="json") | overrides
    return {key: wrapped(value) for key, value in inputs.items()}


def wrapped(value: Any) -> PropertyValue:  # noqa: ANN401 - any property
    if isinstance(value, dict):
        return PropertyValue({key: wrapped(each) for key, each in value.items()})
    return PropertyValue(value)


@pytest.fixture
def cloud(tmp_path: Path) -> SimCloud:
    cloud = SimCloud(tmp_path / "sim.json", FixedClock(NOW))
    cloud.configure(MENU)
    return cloud


@pytest.fixture
def plugin(cloud: SimCloud) -> SimResourceProvider:
    plugin = SimResourceProvider()
    path = {"path": PropertyValue(str(cloud.path))}
    asyncio.run(plugin.configure(api.ConfigureRequest({}, path, True, True)))
    return plugin


def create(plugin: SimResourceProvider, *, preview: bool = False) -> api.CreateResponse:
    return asyncio.run(plugin.create(api.CreateRequest(URN, properties(), 0.0, preview)))


def diff(plugin: SimResourceProvider, **overrides: object) -> api.DiffResponse:
    request = api.DiffRequest(URN, "sim-1", properties(), properties(**overrides), [])
    return asyncio.run(plugin.diff(request))


def test_update_of_machine_is_previewed_and_refused(plugin: SimResourceProvider) -> None:
    def update(*, preview: bool) -> api.UpdateResponse:
        request = api.UpdateRequest(URN, "sim-1", {}, properties(), 0.0, [], preview)
        return asyncio.run(plugin.update(request))

    assert update(preview=True).properties == properties()
    with pytest.raises(SourceUnreachable, match=f"^{ONE.name}: "):
        update(preview=False)


def test_invalid_inputs_are_refused_by_name(plugin: SimResourceProvider) -> None:
    request = api.CheckRequest(URN, {}, properties(image=7.0), b"")

    answer = asyncio.run(plugin.check(request))

    assert [failure.property for failure in answer.failures or ()] == ["image"]


def test_creation_is_refused_without_file() -> None:
    with pytest.raises(SourceUnreachable, match="sim:path"):
        create(SimResourceProvider())


def test_plugin_creates_reads_and_deletes_a_machine(
    plugin: SimResourceProvider, cloud: SimCloud
) -> None:
    create(plugin, preview=True)
    assert names_in(cloud) == []

    created = create(plugin)
    with pytest.raises(CreationRefused, match="uniqueness_error"):
        create(plugin)
    found, missing = (
        asyncio.run(plugin.read(api.ReadRequest(URN, name, {}, {}))) for name in ("sim-1", "sim-9")
    )
    assert (created.resource_id, cloud.read("sim-1")) == ("sim-1", ONE)
    assert (found.resource_id, found.inputs) == ("sim-1", properties())
    assert missing.resource_id == ""

    asyncio.run(plugin.delete(api.DeleteRequest(URN, "sim-1", {}, 0.0)))
    assert names_in(cloud) == []


@pytest.mark.parametrize(
    ("inputs", "diffs", "replaces"),
    [
        ({}, [], []),
        ({"type": "ccx63"}, ["type"], ["type"]),
        ({"labels": {"fleet": "debian"}}, ["labels"], []),
    ],
)
def test_diff_has_changed_inputs_and_replacing_ones(
    plugin: SimResourceProvider, inputs: dict[str, object], diffs: list[str], replaces: list[str]
) -> None:
    answer = diff(plugin, **inputs)

    assert (answer.changes, answer.diffs or [], answer.replaces or []) == (
        bool(diffs),
        diffs,
        replaces,
    )
