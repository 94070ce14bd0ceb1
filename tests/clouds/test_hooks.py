"""Commands of a person's own make machines: what they are told, and what is made of a failure.

A step of a case: `create`, `delete` and `list` do so, of the first machine unless a name follows;
`is ID` is what `create` returns, and `refused`, `unreachable`, `pending` or `unknown` with words
is how a step fails; `deleting` is what a listed machine is; `sh` runs a script in the folder, `at`
goes on as another provider, and `lock` holds the lock of the first machine from then on.
"""

import fcntl
import json
import re
import shlex
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.clouds.hooks.machines import HookMachines
from fleet.errors import CreationRefused, DeletionPending, SourceUnreachable
from fleet.model.facts import Listing, Machine, Unknown
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.ports.engines import a_sim_worker
from tests.rigs.hook_machines import a_hook_cloud, hooks_among, hooks_over, listed, write_hooks

NAME, RESALLOC_NAME = "debian-builders-0001", "builders_f0001"
SIZES = {"cores": "48", "memory_mib": "262144", "swap_mib": "131072"}
ONE = a_sim_worker(NAME, settings=SIZES)
TOKEN = "5ec4e7" * 10
RESALLOC = {
    "new": """\
set -eu
env | grep ^RESALLOC_ | sort > told
mkdir -p machines
echo "$RESALLOC_NAME" > "machines/$RESALLOC_NAME"
echo "host: $RESALLOC_NAME.example.org"
echo "ssh_port: 2222"
""",
    "delete": 'env | grep ^RESALLOC_ | sort > told; rm -f "machines/$RESALLOC_NAME"',
    "list": "mkdir -p machines; ls machines",
}
RESALLOC_KEYS = {"interface": "resalloc", "livecheck": None, "named_counters": ["ip"]}
FAILURES = {
    "refused": CreationRefused,
    "unreachable": SourceUnreachable,
    "pending": DeletionPending,
}
CASES = [
    pytest.param(case, path.stem == "resalloc", id=f"{path.stem}: {case['case']}")
    for path in sorted((Path(__file__).parent / "hooks").glob("*.yml"))
    for case in yaml.safe_load(path.read_text("utf-8"))
]


@pytest.mark.parametrize(("case", "is_resalloc"), CASES)
def test_commands_make_machines_as_in_their_case(
    case: dict[str, Any], tmp_path: Path, *, is_resalloc: bool
) -> None:
    story = Story(tmp_path, case, is_resalloc=is_resalloc)
    with ExitStack() as held:
        for step in case.get("steps", ()):
            story.play(step, held)

        if "machines" in case:
            assert [*map(described, listed(story.cloud))] == case["machines"]
    if "told" in case:
        told = tmp_path / "told"
        assert (told.read_text("utf-8") if told.exists() else None) == case["told"]


class Story:
    """A provider whose commands are those of a case."""

    def __init__(self, folder: Path, case: dict[str, Any], *, is_resalloc: bool) -> None:
        self.folder, self.case = folder, case
        self.name = RESALLOC_NAME if is_resalloc else NAME
        self.keys = (RESALLOC_KEYS if is_resalloc else {}) | case.get("keys", {})
        usual = RESALLOC if is_resalloc else {}
        write_hooks(folder, **usual | {key: case[key] for key in RESALLOC if key in case})
        (folder / "usual.sh").write_text(RESALLOC["new"])
        self.cloud = hooks_among({}, folder, NOW, self.keys)

    def play(self, step: str, held: ExitStack) -> None:
        verb, _, rest = step.partition(" ")
        ends = re.search(
            r"(?:^|\s)(is|deleting|unknown|refused|unreachable|pending)\b ?(.*)", rest
        )
        name = (rest[: ends.start()] if ends else rest) or self.name
        match verb:
            case "sh":
                subprocess.run(["sh", "-c", rest.strip("'")], cwd=self.folder, check=True)
            case "at":
                self.cloud = hooks_among({}, self.folder, NOW, self.keys, rest)
            case "lock":
                lock = held.enter_context((self.folder / f"state/{self.name}.lock").open("a"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            case "list":
                assert ends is not None
                self._list(ends[1], ends[2])
            case _ if ends and ends[1] in FAILURES:
                with pytest.raises(FAILURES[ends[1]]) as failed:
                    self._do(verb, name)
                assert tells(str(failed.value), *shlex.split(ends[2]))
            case _:
                done = self._do(verb, name)
                assert not ends or done == ends[2]

    def _do(self, verb: str, name: str) -> str | None:
        if verb == "delete":
            self.cloud.delete(name)
            return None
        pool = name.partition("_")[0] if "_f" in name else "builders"
        labels = {"fleet": "debian", "pool": pool} if pool != "builders" else None
        made = a_sim_worker(name, settings=SIZES, **({"labels": labels} if labels else {}))
        return self.cloud.create(made.altered(image=self.case.get("image", made.image)))

    def _list(self, how: str, words: str) -> None:
        listing = self.cloud.list("debian")
        if how == "deleting":
            assert isinstance(listing, Listing)
            assert [machine.deleting_since for machine in listing.machines] == [NOW]
        else:
            assert isinstance(listing, Unknown)
            assert tells(listing.unknown, *shlex.split(words))


def described(machine: Machine) -> str:
    assert machine.deleting_since is None
    ids = [machine.id] if machine.id != machine.name else []
    parts = [machine.name, *ids, machine.state, machine.type, "of", machine.pool]
    parts += [machine.digest] if machine.digest else []
    parts += ["at", machine.address] if machine.address else []
    parts += ["from", machine.image] if machine.image not in (None, "debian-13") else []
    return " ".join(map(str, parts))


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


def test_user_data_is_only_on_standard_input(tmp_path: Path) -> None:
    script = "cat > input; cat /proc/$$/environ /proc/$$/cmdline > seen"
    complain = "; echo cannot do: $(cat input) >&2; exit 1"
    cloud = a_hook_cloud(tmp_path, new=script + complain)

    with pytest.raises(CreationRefused) as refused:
        cloud.create(ONE, f"token: {TOKEN}\n")

    assert (tmp_path / "input").read_text() == f"token: {TOKEN}\n"
    assert TOKEN not in (tmp_path / "seen").read_text()
    said = str(refused.value)
    assert tells(said, NAME, "new", "1", "cannot do: token: ***", f"hooks/{NAME}/new.log")
    assert TOKEN not in said + (tmp_path / f"hooks/{NAME}/new.log").read_text()


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


def test_machine_is_kept_while_command_new_of_a_killed_run_runs(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path)
    (tmp_path / "state").mkdir()
    with (tmp_path / f"state/{NAME}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SourceUnreachable, match="`new`"):
            cloud.create(ONE)
        with pytest.raises(SourceUnreachable, match=f"{NAME}.*`new`"):
            cloud.delete(NAME)
    cloud.delete(NAME)
    assert listed(cloud) == ()

    cloud.create(ONE)
    with (tmp_path / f"state/{NAME}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cloud.delete(NAME)
        with pytest.raises(SourceUnreachable, match=f"^{NAME}: `new` "):
            cloud.create(ONE)

    cloud.delete(NAME)
    assert cloud.create(ONE) == NAME


@pytest.mark.parametrize("name", ["../away", ".hidden", "a/b", "-x", "a b"])
def test_unsafe_machine_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CreationRefused, match="invalid_input"):
        a_hook_cloud(tmp_path).create(ONE.altered(name=name))


def test_listing_reports_that_hooks_store_no_expiry(tmp_path: Path) -> None:
    cloud = a_hook_cloud(tmp_path)
    cloud.extend([cloud.create(ONE)], NOW)

    listing = cloud.list("debian")

    assert isinstance(listing, Listing)
    assert not listing.notes_expiry
    assert [machine.expires for machine in listing.machines] == [None]


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
        ({"created_at": "2026-11-21T08:00:00"}, "1.created_at"),
        ({"state": "sleeping"}, "1.state"),
        ({"label": {}}, "1.label"),
        ({"labels": {"fleet": 1}}, "1.labels.fleet"),
        ({"name": "../away"}, "1.name"),
        ({"id": ""}, "1.id"),
        ({"id": "i-2"}, f"list name {NAME} once"),
        ({"id": "i-1", "name": "debian-builders-0002"}, "list id i-1 once"),
    ],
)
def test_listing_is_unknown_when_one_machine_is_invalid(
    tmp_path: Path, said: dict[str, object], says: str
) -> None:
    assert listed(printing(tmp_path)) == ()
    cloud = printing(tmp_path, a_printed_machine(id="i-1"), a_printed_machine(**said))

    assert tells(unknown(cloud), *says.split())


def test_damaged_machine_records_stop_delete_and_clean(tmp_path: Path) -> None:
    write_hooks(tmp_path)
    keys = {"named_counters": ["ip"], "release": ["touch", "released"]}
    cloud = hooks_among({}, tmp_path, NOW, keys)
    cloud.create(ONE)
    (machine,) = listed(cloud)
    (tmp_path / "hook-machines.json").write_text("{")

    with pytest.raises(SourceUnreachable, match=f"{NAME}.*record"):
        cloud.delete(machine.id)
    trouble, begun = cloud.clean(machine)

    assert not begun
    assert tells(trouble, "hook-machines.json", "fleet-hook-machines-1")
    assert not (tmp_path / "released").exists()
