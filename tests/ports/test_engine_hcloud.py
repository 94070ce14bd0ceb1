"""What Hetzner's real provider makes of the stacks, and what plain `pulumi` finds in them."""

import json
import os
import runpy
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pulumi import automation

from fleet.engines.pulumi_cli import find_cli
from fleet.errors import StackFailed
from fleet.model.facts import Base, Stack
from fleet.ports import StackStep
from fleet.state.storage import shipped_folder
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from simulators.hetzner.servers import act_on_server
from tests.ports.engines import a_sim_worker, id_in, quiet, read
from tests.ports.hcloud_rig import NOTES, HcloudRig, skip_without_plugin
from tests.ports.test_shared_stack_engine import PARTS, hetzner_base
from tests.ports.test_shared_stack_engine import REF as BASE
from tests.rigs.hetzner import a_server

pytestmark = pytest.mark.engine
ONE, TWO = a_sim_worker("debian-builders-0001"), a_sim_worker("debian-builders-0002")
GIVEN = {each.name: f"#cloud-config token of {each.name}" for each in (ONE, TWO)}
LATER = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[HcloudRig]:
    skip_without_plugin()
    with SimulatedHetzner() as api:
        yield HcloudRig(tmp_path, api)


def by_hand(rig: HcloudRig) -> automation.Stack:
    """Return the stack as a person has it who runs `pulumi` in the project's folder.

    A CLI that was built here lacks the host that would run `__main__.py`; this process is it.
    """
    home = rig.folder / "home"
    project = shipped_folder("stacks") / "hcloud"

    def main() -> None:
        sys.path.insert(0, str(project))
        try:
            runpy.run_path(str(project / "__main__.py"))
        finally:
            sys.path.remove(str(project))
            sys.modules.pop("program", None)

    environment = {
        "PULUMI_BACKEND_URL": f"file://{rig.folder / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "a passphrase for tests",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "HCLOUD_TOKEN": rig.api.token,
        "HCLOUD_ENDPOINT": rig.api.endpoint,
        "PATH": os.pathsep.join((os.environ.get("FLEET_PULUMI_PLUGINS", ""), os.environ["PATH"])),
    }
    workspace = automation.LocalWorkspace(
        work_dir=str(home / "work" / "fleet-hcloud"),
        pulumi_home=str(home / "cli"),
        program=main,
        env_vars=environment,
        pulumi_command=automation.PulumiCommand(str(find_cli().parent.parent)),
    )
    return automation.Stack.select(rig.ref.name, workspace)


@pytest.mark.parametrize("lost", [{"answer_lost": True}, {"status": 504, "done": True}])
def test_server_with_unconfirmed_deletion_leaves_the_stack(
    rig: HcloudRig, lost: dict[str, Any]
) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet, GIVEN)
    rig.api.fail(Fault("DELETE", "/servers/*", **lost, count=1))
    # That it is gone is not told to who asks for this one server.
    number = read(rig.engine, rig.ref).ids[ONE.name]
    rig.api.fail(Fault("*", f"/servers/{number}", status=500, after=1, count=None))

    steps = rig.engine.up(rig.ref, [TWO], quiet)

    assert steps == (StackStep(worker=ONE.name, operation="delete"),)
    assert rig.machines() == [TWO.name]
    assert sorted(read(rig.engine, rig.ref).ids) == [TWO.name]


def test_server_stays_in_stack_when_its_deletion_failed(rig: HcloudRig) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet, GIVEN)
    rig.api.fail(Fault("DELETE", "/servers/*", status=500, count=None))

    with pytest.raises(StackFailed) as caught:
        rig.engine.up(rig.ref, [TWO], quiet)

    assert list(caught.value.failed) == [ONE.name]
    assert sorted(read(rig.engine, rig.ref).ids) == rig.machines() == [ONE.name, TWO.name]


def test_other_failure_next_to_a_lost_reply_is_reported(rig: HcloudRig) -> None:
    rig.refuse(ONE.name)
    rig.api.fail(Fault("POST", "/servers", answer_lost=True, count=None))

    with pytest.raises(StackFailed) as caught:
        rig.engine.up(rig.ref, [ONE, TWO], quiet, GIVEN)

    assert list(caught.value.failed) == [ONE.name]
    assert caught.value.done == (TWO.name,)
    assert sorted(read(rig.engine, rig.ref).ids) == [TWO.name]


def test_servers_with_lost_record_are_imported_unchanged(
    rig: HcloudRig,
) -> None:
    rig.engine.up(rig.ref, [ONE, TWO], quiet, GIVEN)
    ids = {name: id_in(rig.cloud, name) for name in GIVEN}
    for folder in ("state", "home"):
        (rig.folder / folder).rename(rig.folder / f"old-{folder}")
    before = len(rig.api.requests)

    rig.engine.up(rig.ref, [ONE, TWO], quiet, dict.fromkeys(GIVEN, ""))

    stack = rig.engine.read(rig.ref)
    assert isinstance(stack, Stack)
    assert stack.ids == ids
    assert {each.method for each in rig.api.requests[before:]} == {"GET"}
    assert rig.engine.preview(rig.ref, stack.workers) == ()


def test_failed_adoption_shows_no_token(rig: HcloudRig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet, GIVEN)
    rig.die_making(TWO.name, [ONE, TWO])
    rig.api.fail(Fault("GET", "/servers/*", status=422, code=rig.api.token, count=None))

    with pytest.raises(StackFailed, match=r"\*\*\*: this failure was ordered") as caught:
        rig.engine.up(rig.ref, [ONE], quiet)

    assert rig.api.token not in f"{caught.value} {caught.value.failed}"


def test_unstarted_server_does_not_stop_other_creations(rig: HcloudRig) -> None:
    rig.api.fail(Fault("POST", "/servers", action_fails=True, count=1))
    with pytest.raises(StackFailed, match="action_failed") as caught:
        rig.engine.up(rig.ref, [ONE], quiet, GIVEN)

    previewed = rig.engine.preview(rig.ref, [ONE, TWO])
    steps = rig.engine.up(rig.ref, [ONE, TWO], quiet, GIVEN)

    assert list(caught.value.failed) == [ONE.name]
    assert previewed == steps == (StackStep(worker=TWO.name, operation="create"),)
    assert rig.machines() == [ONE.name, TWO.name]


def test_change_of_failed_server_is_detected(rig: HcloudRig) -> None:
    rig.api.fail(Fault("POST", "/servers", action_fails=True, count=1))
    with pytest.raises(StackFailed):
        rig.engine.up(rig.ref, [ONE], quiet, GIVEN)
    with_errors(rig)

    unchanged = rig.engine.preview(rig.ref, [ONE])
    (step,) = rig.engine.preview(rig.ref, [ONE.altered(type="ccx43")])
    steps = rig.engine.up(rig.ref, [ONE], quiet)

    assert unchanged == steps == ()
    assert (step.worker, step.operation) == (ONE.name, "update")
    assert "serverType" in step.detail


def with_errors(rig: HcloudRig) -> None:
    """Record of every server that its creation failed, as a run leaves it that is killed."""
    (path,) = (rig.folder / "state").rglob("debian-builders.json")
    file = json.loads(path.read_text())
    for each in file["checkpoint"]["latest"]["resources"]:
        if each["type"].startswith("hcloud:"):
            each["initErrors"] = ["it did not start"]
    path.write_text(json.dumps(file))


def has_no_difference(rig: HcloudRig) -> bool:
    """Say whether Pulumi by hand finds nothing to change, before and after it looks."""
    stack = by_hand(rig)
    preview = stack.preview()
    refresh = stack.refresh()
    found = {*preview.change_summary, *stack.preview().change_summary}
    return found == {automation.OpType.SAME} and {*(refresh.summary.resource_changes or {})} == {
        "same"
    }


def test_server_has_its_labels_and_later_runs_change_none(rig: HcloudRig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet, GIVEN)
    assert rig.labels(ONE.name) == ONE.labels | NOTES | {"architecture": "amd64"}
    rig.cloud.extend([id_in(rig.cloud, ONE.name)], LATER)

    steps = rig.engine.up(rig.ref, [ONE, TWO], quiet, GIVEN)
    no_difference = has_no_difference(rig)
    up = by_hand(rig).up()

    assert steps == (StackStep(worker=TWO.name, operation="create"),)
    assert (no_difference, set(up.summary.resource_changes or {})) == (True, {"same"})
    assert rig.labels(ONE.name)["expires"] == "20261201T000000Z"
    assert rig.engine.preview(rig.ref, read(rig.engine, rig.ref).workers) == ()


def test_adopted_server_equals_created_one(rig: HcloudRig) -> None:
    rig.engine.up(rig.ref, [ONE], quiet, GIVEN)
    rig.die_making(TWO.name, [ONE, TWO])

    rig.engine.up(rig.ref, [ONE, TWO], quiet, {TWO.name: ""})

    assert has_no_difference(rig)
    assert read(rig.engine, rig.ref).workers == (ONE, TWO)


def test_server_uses_its_snapshot_and_base_without_difference(rig: HcloudRig) -> None:
    source = a_server(rig.api, name="baked", labels={})
    made = act_on_server(rig.api.state, source, "create_image", {"type": "snapshot"})
    assert made.content is not None
    rig.api.state.settle()
    base = hetzner_base(rig.folder, rig.api)
    base.up(BASE, PARTS, quiet)
    laid = base.read(BASE)
    assert isinstance(laid, Base)
    ids = {key.partition("/")[0]: each for key, each in laid.ids.items()}
    settings = {
        "location": "fsn1",
        "network_ids": ids["network"],
        "firewall_ids": ids["firewall"],
        "ssh_keys": ids["ssh_key"],
        "placement_group_id": ids["placement_group"],
    }
    image = str(made.content["image"]["id"])
    worker = a_sim_worker(ONE.name, image=image, settings=settings)

    rig.engine.up(rig.ref, [worker], quiet, GIVEN)

    assert has_no_difference(rig)
    assert rig.engine.preview(rig.ref, [worker]) == ()
    assert read(rig.engine, rig.ref).workers == (worker,)
