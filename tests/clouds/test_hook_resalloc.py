"""Commands that Resalloc ran make machines: their environment, their output, their names."""

import base64
import fcntl
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from fleet.clouds.hooks.machines import HookMachines
from fleet.errors import CreationRefused, DeletionPending, SourceUnreachable
from fleet.model.facts import MachineState, Unknown
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.ports.engines import a_sim_worker
from tests.rigs.hook_machines import hooks_among, listed, write_hooks

NEW = """\
set -eu
env | grep ^RESALLOC_ | sort > told
mkdir -p machines
echo "$RESALLOC_NAME" > "machines/$RESALLOC_NAME"
echo "host: $RESALLOC_NAME.example.org"
echo "ssh_port: 2222"
"""
DELETE = 'env | grep ^RESALLOC_ | sort > told; rm -f "machines/$RESALLOC_NAME"'
LIST = "mkdir -p machines; ls machines"
ONE, TWO, THREE = (f"builders_f{number:04}" for number in (1, 2, 3))


def a_cloud(
    folder: Path,
    more: Mapping[str, object] = MappingProxyType({}),
    *,
    provider: str = "desk",
    **scripts: str,
) -> HookMachines:
    for name, script in ({"new": NEW, "delete": DELETE, "list": LIST} | scripts).items():
        (folder / f"{name}.sh").write_text(script, encoding="utf-8")
    keys = {"interface": "resalloc", "livecheck": None, "named_counters": ["ip"]}
    return hooks_among({}, folder, NOW, {**keys, **more}, provider)


def made(cloud: HookMachines, *names: str) -> None:
    for name in names:
        cloud.create(a_sim_worker(name))


def told(folder: Path) -> list[str]:
    return (folder / "told").read_text(encoding="utf-8").splitlines()


def test_new_command_receives_resalloc_numbers_and_names(tmp_path: Path) -> None:
    made(a_cloud(tmp_path), ONE)

    assert told(tmp_path) == [
        "RESALLOC_ID=1",
        "RESALLOC_ID_IN_POOL=0",
        f"RESALLOC_NAME={ONE}",
        "RESALLOC_NAMED_COUNTER_ip=0",
        "RESALLOC_POOL_ID=builders",
    ]


def test_braces_in_a_command_are_passed_to_its_shell(tmp_path: Path) -> None:
    new = ["sh", "-c", "name=mine; echo ${name} > said"]
    keys = {"interface": "resalloc", "new": new, "list": ["true"], "delete": ["true"]}

    hooks_among({}, tmp_path, NOW, keys).create(a_sim_worker(ONE))

    assert (tmp_path / "said").read_text(encoding="utf-8") == "mine\n"


def test_delete_command_receives_output_of_new(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path)
    made(cloud, ONE)

    cloud.delete(ONE)

    data = base64.b64encode(f"host: {ONE}.example.org\nssh_port: 2222\n".encode()).decode()
    assert f"RESALLOC_RESOURCE_DATA={data}" in told(tmp_path)
    assert listed(cloud) == ()


def test_listed_machine_has_recorded_inputs_and_data(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path)
    made(cloud, ONE)

    (machine,) = listed(cloud)

    assert (machine.name, machine.id, machine.pool, machine.state, machine.digest) == (
        ONE,
        ONE,
        "builders",
        MachineState.RUNNING,
        "0123456789abcdef",
    )
    assert cloud.particulars(machine) == {"data": f"host: {ONE}.example.org\nssh_port: 2222"}


def test_smallest_free_numbers_are_reused_but_no_id(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path)
    made(cloud, ONE, TWO)
    cloud.delete(ONE)

    made(cloud, THREE)

    given = told(tmp_path)
    assert given[:2] == ["RESALLOC_ID=3", "RESALLOC_ID_IN_POOL=0"]
    assert "RESALLOC_NAMED_COUNTER_ip=0" in given


def test_counter_is_shared_by_the_pools_of_all_providers(tmp_path: Path) -> None:
    made(a_cloud(tmp_path), ONE)

    made(a_cloud(tmp_path, provider="attic"), TWO)

    assert "RESALLOC_NAMED_COUNTER_ip=1" in told(tmp_path)


def test_failed_creation_releases_its_numbers(tmp_path: Path) -> None:
    with pytest.raises(CreationRefused):
        made(a_cloud(tmp_path, new="exit 1"), ONE)

    made(a_cloud(tmp_path), TWO)

    assert "RESALLOC_NAMED_COUNTER_ip=0" in told(tmp_path)


def test_machine_of_failed_new_command_is_listed_as_failed(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path, new=f"{NEW}exit 1")

    with pytest.raises(SourceUnreachable, match=f"{ONE}.*adopts"):
        made(cloud, ONE)

    assert [machine.state for machine in listed(cloud)] == [MachineState.FAILED]


def test_machine_is_starting_while_command_new_of_killed_run_runs(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path, new=f"{NEW}exit 1")
    with pytest.raises(SourceUnreachable):
        made(cloud, ONE)

    with (tmp_path / f"state/{ONE}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        states = [machine.state for machine in listed(cloud)]

    assert states == [MachineState.STARTING]


def test_unrecorded_machine_is_listed_in_pool_of_its_name(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path)
    made(cloud, ONE)
    (tmp_path / "hook-machines.json").unlink()

    (machine,) = listed(cloud)

    assert (machine.name, machine.pool, machine.type, machine.digest) == (
        ONE,
        "builders",
        "own",
        None,
    )


def test_unrecorded_machine_can_be_deleted(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path)
    made(cloud, ONE)
    (tmp_path / "hook-machines.json").unlink()

    cloud.delete(ONE)

    assert told(tmp_path) == [f"RESALLOC_NAME={ONE}", "RESALLOC_POOL_ID=builders"]
    assert listed(cloud) == ()


@pytest.mark.parametrize(
    "name",
    ["builders_00010001_20261122_181715", "debian-builders", "builders_f1_2", "others_f0001"],
)
def test_machine_with_foreign_name_is_not_listed(tmp_path: Path, name: str) -> None:
    assert listed(a_cloud(tmp_path, list=f"echo {name}")) == ()


def test_machine_with_old_name_is_listed_in_its_pool(tmp_path: Path) -> None:
    (machine,) = listed(a_cloud(tmp_path, list="echo debian-builders-12"))

    assert (machine.name, machine.pool) == ("debian-builders-12", "builders")


def test_list_command_receives_pool_and_empty_machine_values(tmp_path: Path) -> None:
    listed(a_cloud(tmp_path, list=f"env | grep ^RESALLOC_ | sort > told; {LIST}"))

    assert told(tmp_path) == [
        "RESALLOC_ID=0",
        "RESALLOC_ID_IN_POOL=None",
        "RESALLOC_NAME=None",
        "RESALLOC_POOL_ID=builders",
    ]


def test_removed_pool_is_listed_while_it_has_machines(
    tmp_path: Path,
) -> None:
    cloud = a_cloud(tmp_path, list='ls machines | grep "^$RESALLOC_POOL_ID"')
    made(cloud, ONE)
    cloud.create(a_sim_worker("gone_f0001", labels={"fleet": "debian", "pool": "gone"}))

    assert [machine.name for machine in listed(cloud)] == [ONE, "gone_f0001"]


GREP = 'mkdir -p machines; ls machines | grep "^$RESALLOC_POOL_ID"'


def test_first_list_that_exits_1_without_output_is_unknown(tmp_path: Path) -> None:
    assert isinstance(a_cloud(tmp_path, list=GREP).list("debian"), Unknown)


def test_list_that_exits_1_is_empty_when_fleet_yaml_permits_it(tmp_path: Path) -> None:
    assert listed(a_cloud(tmp_path, {"list_exit": "ignored"}, list=GREP)) == ()


def test_list_that_exits_1_is_empty_after_it_has_worked(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path, list=GREP)
    made(cloud, ONE)
    cloud.delete(ONE)

    assert listed(cloud) == ()


@pytest.mark.parametrize("exits", ["believed", "ignored"])
def test_list_that_exits_1_is_unknown_while_a_machine_exists(tmp_path: Path, exits: str) -> None:
    cloud = a_cloud(tmp_path, {"list_exit": exits}, list=GREP)
    made(cloud, ONE)
    (tmp_path / "machines" / ONE).unlink()

    assert isinstance(cloud.list("debian"), Unknown)


@pytest.mark.parametrize(
    ("script", "exits"),
    [
        ("echo no cable >&2; exit 1", "believed"),
        ("echo half; exit 1", "ignored"),
        ("kill -9 $$", "ignored"),
    ],
    ids=["complains", "prints", "is killed"],
)
def test_list_with_other_failure_is_unknown(tmp_path: Path, script: str, exits: str) -> None:
    made(a_cloud(tmp_path), ONE)
    a_cloud(tmp_path).delete(ONE)

    listing = a_cloud(tmp_path, {"list_exit": exits}, list=script).list("debian")

    assert isinstance(listing, Unknown)


def test_delete_by_name_prefix_deletes_no_other_machine(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path, delete='rm -f "machines/$RESALLOC_NAME"*')
    names = [f"builders_f{number:04}" for number in range(1, 21)]
    made(cloud, *names)

    cloud.delete(names[0])

    assert [machine.name for machine in listed(cloud)] == names[1:]


def test_long_list_is_read_completely(tmp_path: Path) -> None:
    cloud = a_cloud(
        tmp_path, list=f"seq -f 'aws_x86_64_powerful_%08.0f_20261121_080000' 20000; {LIST}"
    )
    made(cloud, ONE)

    assert [machine.name for machine in listed(cloud)] == [ONE]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo name!", ("list", "'name!'")),
        ("exit 1", ("list", "status 1")),
        ("yes machine", ("16777216 bytes",)),
    ],
)
def test_listing_is_unknown_when_list_output_is_invalid(
    tmp_path: Path, script: str, says: tuple[str, ...]
) -> None:
    listing = a_cloud(tmp_path, list=script).list("debian")

    assert isinstance(listing, Unknown)
    assert tells(listing.unknown, *says)


def test_listing_is_unknown_when_machine_records_are_damaged(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path)
    (tmp_path / "hook-machines.json").write_text("{")

    listing = cloud.list("debian")

    assert isinstance(listing, Unknown)
    assert tells(listing.unknown, "fleet-hook-machines-1")


def test_damaged_machine_records_stop_delete_and_clean(tmp_path: Path) -> None:
    keys = {"named_counters": ["ip"], "release": ["touch", "released"]}
    write_hooks(tmp_path, delete="touch deleted")
    cloud = hooks_among({}, tmp_path, NOW, keys)
    cloud.create(a_sim_worker(ONE))
    (machine,) = listed(cloud)
    (tmp_path / "hook-machines.json").write_text("{")

    with pytest.raises(SourceUnreachable, match=rf"{ONE}: .*record"):
        cloud.delete(machine.id)
    trouble, begun = cloud.clean(machine)
    assert not begun
    assert tells(trouble, "hook-machines.json", "fleet-hook-machines-1")
    assert not {"deleted", "released"} & {path.name for path in tmp_path.iterdir()}


def test_unwritable_record_is_an_error_of_its_machine(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path)
    made(cloud, ONE)
    (tmp_path / "hook-machines.lock").unlink()
    (tmp_path / "hook-machines.lock").mkdir()

    with pytest.raises(SourceUnreachable, match=rf"{ONE}: .*Is a directory"):
        cloud.delete(ONE)
    with pytest.raises(SourceUnreachable, match=rf"{TWO}: .*Is a directory"):
        made(cloud, TWO)


def test_deleted_machine_is_deleting_while_still_listed(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path, delete="true")
    made(cloud, ONE)

    with pytest.raises(DeletionPending, match=ONE):
        cloud.delete(ONE)

    (machine,) = listed(cloud)
    assert machine.deleting_since == NOW


def test_list_without_output_is_empty_after_last_deletion(tmp_path: Path) -> None:
    cloud = a_cloud(tmp_path, list="ls machines | grep builders")
    made(cloud, ONE)

    cloud.delete(ONE)

    assert listed(cloud) == ()
