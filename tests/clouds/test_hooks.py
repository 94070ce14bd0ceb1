"""Commands of a person's own make machines: what they are told, and what is made of a failure."""

import fcntl
import json
from pathlib import Path

import pytest

from fleet.clouds.hooks.machines import HookMachines
from fleet.errors import CreationRefused, DeletionPending, SourceUnreachable
from fleet.model.facts import Listing, Unknown
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.ports.engines import a_sim_worker
from tests.rigs.hook_machines import a_hook_cloud, hooks_among, hooks_over, listed, write_hooks

NAME = "debian-builders-0001"
ONE = a_sim_worker(NAME, settings={"cores": "48", "memory_mib": "262144", "swap_mib": "131072"})
TOKEN = "5ec4e7" * 10
LABELS = {"fleet": "debian", "pool": "builders", "worker": NAME, "digest": "0123456789abcdef"}


def unknown(cloud: HookMachines) -> str:
    listing = cloud.list("debian")
    assert isinstance(listing, Unknown), listing
    return listing.unknown


def printing(folder: Path, *machines: object) -> HookMachines:
    """Return machines whose `list` prints these."""
    cloud = a_hook_cloud(folder, list="cat printed")
    (folder / "printed").write_text(json.dumps(machines))
    return cloud


def a_printed_machine(**overrides: object) -> dict[str, object]:
    made = {"name": NAME, "type": "own", "created_at": "2026-11-21T08:00:00Z", "labels": LABELS}
    return made | overrides


def test_new_command_receives_inputs_in_environment(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path, new="env | grep ^FLEET_ | sort > told")

    cloud.create(ONE)

    assert (tmp_path / "told").read_text().splitlines() == [
        "FLEET_ARCHITECTURE=amd64",
        "FLEET_CORES=48",
        "FLEET_HOOK=new",
        "FLEET_IMAGE=debian-13",
        f"FLEET_LABELS={json.dumps(LABELS, sort_keys=True)}",
        f"FLEET_MACHINE={NAME}",
        "FLEET_MEMORY_MIB=262144",
        "FLEET_NAME=debian",
        "FLEET_POOL=builders",
        "FLEET_PROVIDER=desk",
        "FLEET_SWAP_MIB=131072",
        "FLEET_TYPE=ccx33",
    ]


def test_placeholders_are_replaced_once(tmp_path: Path) -> None:
    write_hooks(tmp_path, new='echo "$@" > told')
    cloud = hooks_over(tmp_path, new=["sh", "new.sh", "{name}:{image}", "{id}", "{cores}x{{}}"])

    cloud.create(ONE.altered(image="{type}"))

    assert (tmp_path / "told").read_text() == f"{NAME}:{{type}} {{id}} 48x{{{{}}}}\n"


def test_user_data_is_only_on_standard_input(tmp_path: Path) -> None:
    script = "cat > input; cat /proc/$$/environ /proc/$$/cmdline > seen"
    cloud = a_hook_cloud(tmp_path, new=script)

    cloud.create(ONE, f"token: {TOKEN}\n")

    assert (tmp_path / "input").read_text() == f"token: {TOKEN}\n"
    assert TOKEN not in (tmp_path / "seen").read_text()


def test_messages_hide_token(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path, new="echo cannot do: $(cat) >&2; exit 1")

    with pytest.raises(CreationRefused) as refused:
        cloud.create(ONE, f"token: {TOKEN}\n")

    said = str(refused.value)
    assert tells(said, NAME, "new", "1", "cannot do: token: ***", f"hooks/{NAME}/new.log")
    assert TOKEN not in said
    assert TOKEN not in (tmp_path / f"hooks/{NAME}/new.log").read_text()


def test_commands_get_the_variables_that_fleet_yaml_names(tmp_path: Path) -> None:
    write_hooks(tmp_path, new="echo $RACK_KEY $OTHER_KEY > told; echo no $RACK_KEY >&2; exit 1")
    ours = {"RACK_KEY": TOKEN, "OTHER_KEY": "other"}
    cloud = hooks_among(ours, tmp_path, NOW, {"environment": ["RACK_KEY"]})

    with pytest.raises(CreationRefused, match=r"no \*\*\*; log: "):
        cloud.create(ONE)

    assert (tmp_path / "told").read_text() == f"{TOKEN}\n"


def test_unset_variable_fails_every_command(tmp_path: Path) -> None:
    write_hooks(tmp_path)
    cloud = hooks_over(tmp_path, environment=["RACK_KEY"])

    with pytest.raises(CreationRefused) as refused:
        cloud.create(ONE)

    for said in (str(refused.value), unknown(cloud)):
        assert tells(said, "RACK_KEY", "`environment`", "provider desk")


def test_machine_id_is_output_of_new_command(tmp_path: Path) -> None:
    assert a_hook_cloud(tmp_path, new="echo i-0123").create(ONE) == "i-0123"


def test_machine_id_is_its_name_when_command_new_prints_nothing(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path)

    assert cloud.create(ONE) == NAME
    assert [(each.id, each.type, each.digest) for each in listed(cloud)] == [
        (NAME, "ccx33", "0123456789abcdef")
    ]


def test_machine_is_searched_when_printed_id_has_several_words(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreachable, match=rf"^{NAME}: .*\bid\b"):
        a_hook_cloud(tmp_path, new="echo made it").create(ONE)


def test_failed_creation_without_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CreationRefused, match="resource_unavailable"):
        a_hook_cloud(
            tmp_path, new="echo resource_unavailable: the rack is full >&2; exit 1"
        ).create(ONE)


def test_failed_creation_with_machine_is_adopted(tmp_path: Path) -> None:
    write_hooks(tmp_path)
    cloud = hooks_over(tmp_path, new=["sh", "-c", ". ./new.sh; exit 1"])

    with pytest.raises(SourceUnreachable, match=r"status 1.*log"):
        cloud.create(ONE)

    assert [each.name for each in listed(cloud)] == [NAME]


def test_machine_may_appear_after_creation_timeout(tmp_path: Path) -> None:
    write_hooks(tmp_path, new="exec sleep 99")
    cloud = hooks_over(tmp_path, timeouts={"new": "1s"})

    with pytest.raises(SourceUnreachable, match="within 1s"):
        cloud.create(ONE)


@pytest.mark.slow
def test_delete_timeout_error_names_command_and_setting(
    tmp_path: Path,
) -> None:
    cloud = a_hook_cloud(tmp_path)
    cloud.create(ONE)
    write_hooks(tmp_path, delete="exec sleep 99")
    (machine,) = listed(cloud)
    slow = hooks_over(tmp_path, timeouts={"delete": "1s"})

    with pytest.raises(SourceUnreachable, match=rf"{NAME}.*delete.*1s") as failed:
        slow.delete(machine.id)

    assert tells(str(failed.value), "delete.sh", "`timeouts: {delete: …}`", "desk")


def test_failed_creation_is_unknown_when_list_also_fails(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path, new="exit 1", list="echo no answer >&2; exit 2")

    with pytest.raises(SourceUnreachable, match=r"unknown.*no answer"):
        cloud.create(ONE)


def test_name_is_not_reused_while_command_new_of_killed_run_runs(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path)
    (tmp_path / "state").mkdir()
    with (tmp_path / f"state/{NAME}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(SourceUnreachable, match="`new`"):
            cloud.create(ONE)

    assert listed(cloud) == ()


def test_lock_of_old_command_new_outlives_its_machine(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path)
    cloud.create(ONE)
    with (tmp_path / f"state/{NAME}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cloud.delete(NAME)

        with pytest.raises(SourceUnreachable, match=f"^{NAME}: `new` "):
            cloud.create(ONE)

    cloud.delete(NAME)
    assert cloud.create(ONE) == NAME


def test_command_new_holds_lock_of_its_machine_while_running(tmp_path: Path) -> None:
    script = f"flock -n state/{NAME}.lock true || echo held > told; cat > /dev/null"
    a_hook_cloud(tmp_path, new=script).create(ONE)

    assert (tmp_path / "told").read_text() == "held\n"


@pytest.mark.parametrize("name", ["../away", ".hidden", "a/b", "-x", "a b"])
def test_unsafe_machine_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CreationRefused, match="invalid_input"):
        a_hook_cloud(tmp_path).create(ONE.altered(name=name))


def test_delete_command_receives_machine_in_environment(tmp_path: Path) -> None:
    cloud = a_hook_cloud(
        tmp_path, delete='env | grep ^FLEET_ | sort > told; rm "machines/$FLEET_MACHINE"'
    )
    machine_id = cloud.create(ONE)

    cloud.delete(machine_id)

    assert (tmp_path / "told").read_text().splitlines() == [
        "FLEET_HOOK=delete",
        f"FLEET_ID={NAME}",
        "FLEET_IMAGE=debian-13",
        f"FLEET_MACHINE={NAME}",
        "FLEET_NAME=debian",
        "FLEET_POOL=builders",
        "FLEET_PROVIDER=desk",
        "FLEET_TYPE=ccx33",
    ]


def test_failed_deletion_is_an_error_when_machine_is_listed(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path, delete="echo busy >&2; exit 1")
    machine_id = cloud.create(ONE)

    with pytest.raises(SourceUnreachable, match=rf"{NAME}.*delete.*status 1.*busy.*log"):
        cloud.delete(machine_id)

    assert [each.name for each in listed(cloud)] == [NAME]


def test_failed_deletion_succeeds_when_machine_is_missing(tmp_path: Path) -> None:
    write_hooks(tmp_path)
    cloud = hooks_over(tmp_path, delete=["sh", "-c", ". ./delete.sh; exit 1"])

    cloud.delete(cloud.create(ONE))

    assert listed(cloud) == ()


def test_missing_machine_is_not_deleted_again(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path, delete="touch asked")

    cloud.delete("i-never-was")

    assert not (tmp_path / "asked").exists()


SHORT_ONCE = ["sh", "-c", "if [ -e short ]; then rm short; echo '[]'; else . ./list.sh; fi"]


def test_failed_deletion_stays_failed_after_incomplete_list(tmp_path: Path) -> None:
    write_hooks(tmp_path, delete="touch short; exit 1")
    cloud = hooks_over(tmp_path, list=SHORT_ONCE)
    machine_id = cloud.create(ONE)

    with pytest.raises(SourceUnreachable, match=r"delete.*status 1"):
        cloud.delete(machine_id)

    assert not (tmp_path / "short").exists()


def test_machine_missing_in_one_list_is_deleted(tmp_path: Path) -> None:
    write_hooks(tmp_path)
    machine_id = hooks_over(tmp_path).create(ONE)
    (tmp_path / "short").touch()

    hooks_over(tmp_path, list=SHORT_ONCE).delete(machine_id)

    assert listed(hooks_over(tmp_path)) == ()


def test_failed_creation_is_adopted_when_one_list_was_incomplete(tmp_path: Path) -> None:
    write_hooks(tmp_path)
    new = ["sh", "-c", ". ./new.sh; touch short; exit 1"]
    cloud = hooks_over(tmp_path, new=new, list=SHORT_ONCE)

    with pytest.raises(SourceUnreachable, match=r"status 1.*log"):
        cloud.create(ONE)


def test_deletion_is_unreachable_when_list_fails(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreachable):
        a_hook_cloud(tmp_path, list="exit 1").delete("i-1")


def test_listing_reports_that_hooks_store_no_expiry(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path)
    cloud.extend([cloud.create(ONE)], NOW)

    listing = cloud.list("debian")

    assert isinstance(listing, Listing)
    assert not listing.notes_expiry
    assert [machine.expires for machine in listing.machines] == [None]


def test_listing_is_empty_without_machines(tmp_path: Path) -> None:
    assert listed(printing(tmp_path)) == ()


def test_listed_machine_has_printed_state_address_and_image(tmp_path: Path) -> None:
    said = a_printed_machine(id="i-1", state="stopped", address="2001:db8::1", image="trixie-3")

    (machine,) = listed(printing(tmp_path, said))

    known = (machine.id, machine.state.value, machine.address, machine.image, machine.pool)
    assert known == ("i-1", "stopped", "2001:db8::1", "trixie-3", "builders")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 0", "nothing"),
        ("echo '[]'; exit 1", "status 1"),
        ("echo '[{'", "docs/how-to"),
        ("echo '{}'", "valid array"),
        ("""echo '[{"name": "a"}]'""", "0.type"),
        ("echo no machines", "Invalid JSON"),
        ("yes '[]'", "16777216 bytes"),
        ("printf '['; yes '[' | head -c 2000000 | tr -d '\\n'", "Invalid JSON"),
    ],
)
def test_invalid_list_is_unknown(tmp_path: Path, script: str, says: str) -> None:
    cloud = a_hook_cloud(tmp_path, list=script)

    assert says in unknown(cloud)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (
            {"created_at": "2026-11-21T08:00:00"},
            "1.created_at",
        ),
        ({"state": "sleeping"}, "1.state"),
        ({"label": {}}, "1.label"),
        ({"labels": {"fleet": 1}}, "1.labels.fleet"),
        ({"name": "../away"}, "1.name"),
        ({"id": ""}, "1.id"),
    ],
)
def test_listing_is_unknown_when_one_machine_is_invalid(
    tmp_path: Path, said: dict[str, object], says: str
) -> None:
    cloud = printing(tmp_path, a_printed_machine(), a_printed_machine(**said))

    assert says in unknown(cloud)


@pytest.mark.parametrize(("key", "value"), [("name", NAME), ("id", "i-1")])
def test_listing_is_unknown_when_a_value_is_duplicated(
    tmp_path: Path, key: str, value: str
) -> None:
    one, two = (
        a_printed_machine(id="i-1"),
        a_printed_machine(id="i-2", name="debian-builders-0002"),
    )

    said = unknown(printing(tmp_path, one, two | {key: value}))

    assert tells(said, "list", key, value, "once")


@pytest.mark.slow
def test_listing_is_unknown_when_list_command_hangs(tmp_path: Path) -> None:
    write_hooks(tmp_path, list="exec sleep 99")

    assert tells(unknown(hooks_over(tmp_path, timeouts={"list": "1s"})), "list", "1s")


def test_record_of_deletion_ends_when_its_name_is_reused(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path, delete="true")
    machine_id = cloud.create(ONE)
    with pytest.raises(DeletionPending, match=NAME):
        cloud.delete(machine_id)
    (deleting,) = listed(cloud)
    (tmp_path / "machines" / NAME).unlink()

    cloud.create(ONE)

    (machine,) = listed(cloud)
    assert (deleting.deleting_since, machine.deleting_since) == (NOW, None)


def test_list_command_runs_after_each_deletion(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path)
    names = [f"debian-builders-{number:04}" for number in (1, 2)]
    for name in names:
        cloud.create(ONE.altered(name=name))

    for name in names:
        cloud.delete(name)

    assert listed(cloud) == ()


def test_machine_is_not_forgotten_while_its_command_new_runs(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path)
    (tmp_path / "state").mkdir()

    with (tmp_path / "state" / f"{NAME}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SourceUnreachable, match=f"{NAME}.*`new`"):
            cloud.delete(NAME)

    cloud.delete(NAME)
