"""What commands refuse alike: wrong words, unknown names, no store, a lock, no place to write."""

import shlex

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import ONE, TWO, Trial, fleet_yaml

WHY = "--for 2h --reason 'disk full'"
APPROVE = "approve delete --pool builders"
SET = "simulate --history h --set"
USAGE = {
    "ticket list": ("fleet.yaml", "tickets", "`queues`"),
    "apply --for 14m": "--every",
    "apply --until-quiet": "--every",
    "apply --every often": ("60s", "14m"),
    "apply --every 60s --for 0m": ("60s", "14m"),
    "apply p.json --every 60s": "--every",
    "status --heartbeat --world world.json": "--heartbeat",
    "status --heartbeat --site site": "--heartbeat",
    "status --heartbeat --metrics x": "--heartbeat",
    **{f"image promote trixie --candidate {each}": "--candidate" for each in ("0%", "101", "all")},
    "image build trixie --at desk --raw": "--at excludes",
    "image publish trixie": "images.trixie.publish",
    "image test trixie --queue work": ("--queue", "--boot"),
    **{
        f"report --merge-request {each} plan.json": "--merge-request"
        for each in ("0", "-3", "x", "3/notes", "03")
    },
    "report --most 10 plan.json": "--most",
    **{
        f"report --month {each}": "--month"
        for each in ("2026", "2026-13", "november", "2026-00", "2199-01")
    },
    "report --json plan.json": "--month",
    "simulate --from yesterday": "--from",
    "simulate --seed luck": "--seed",
    f"{SET} cadence": "--set",
    f"{SET} =1h": "--set",
    f"{SET} .cadence=1h": "--set",
    f"{SET} 'a b=1'": "--set",
    f"{SET} -=5": "--set",
    f"{SET} 'cadence=1h\nfleet: x'": "--set",
    f"{SET} a{99 * '.a'}=1": "--set",
    "explain": ("request", "pool", "worker"),
    "explain request": "`request --all`",
    "explain pool --all": "`request --all`",
    "explain request 1 --all": "`request --all`",
    "explain pol builders": ("pol", "request", "pool", "worker", "image", "rule", "tag"),
    "explain powerful x": "powerful",
    "explain powerful --all": "no name",
    "explain powerful --world w --history h": "--history",
    "explain pool --history h": "--history",
    "tags explain": "(OWNER/PROJECT/CHROOT/PACKAGE) or --request ID",
    "tags explain a/b": "a/b: ",
    "tags explain a/b/c/d --tag ''": ("--tag", "empty text"),
    "tags explain --request 7 --user bob": "a --request has its own",
    "tags explain --request 7 --task sbuild": "--task",
    "freeze --for 0s --reason full": "--for",
    "freeze --for 31d --reason full": "--for",
    "freeze --for 2h --reason ' '": "--reason",
    f"freeze --end {WHY}": "--end",
    f"hold {ONE} --end --for 2h": "--end",
    **{f"{APPROVE} {WHY} --count={each}": "--count" for each in ("0", "-1", "10001", "many")},
    f"{APPROVE} {WHY}": "--count",
    f"{APPROVE} --count 2": "--for",
    f"{APPROVE} --count 1 --end --for 2h": "--end",
    **{
        f"machine delete {each} --apply".replace("  ", " "): ("--pool", "NAME", "--expired")
        for each in (
            *("", "--pool builders", "--all", "--unused", "--pool builders --expired"),
            *(f"{ONE} {more}" for more in ("--expired", "--pool builders", "--all", "--since 1h")),
        )
    },
    "log --verify 12": "--verify",
    "log --since yesterday": "--since",
    "observe --since 2h": "--kept",
    "adopt --select rack --pool builders": "expected KEY=VALUE",
    "adopt --select =a --pool builders": "expected KEY=VALUE",
    "completion cmd.exe": ("'cmd.exe'", "'bash'", "'zsh'", "'tcsh'"),
    **{
        f"import debusine{each}": ("POOLS.YAML", "--dsn-env", "VARIABLE", "--admin", "COMMAND")
        for each in ("", " --admin", " x.yaml --admin true", " x.yaml --dsn-env DSN")
    },
    "import copr x.conf --fleet 'My Fleet'": ("--fleet My Fleet", "debian-ci"),
}


@pytest.mark.parametrize(("words", "parts"), USAGE.items(), ids=USAGE)
def test_wrong_usage_is_refused_with_the_option(
    trial: Trial, run_fleet: RunFleet, words: str, parts: str | tuple[str, ...]
) -> None:
    before = trial.files()

    refused = run_fleet(*shlex.split(words))

    assert (refused.returncode, refused.stdout) == (2, "")
    assert tells(refused.stderr, *([parts] if isinstance(parts, str) else parts))
    assert trial.files() == before


NAMES = {
    f"freeze --pool bilders {WHY}": "builders",
    f"hold trial-builders-0009 {WHY}": ONE,
    f"hold trial-bilders-0001 {WHY}": ONE,
    "machine list --pool bilders": ("pool bilders", "builders"),
    f"machine delete {TWO} trial-builders-002 --apply": ("machine trial-builders-002", TWO),
    "machine console trial-builders-0009": ONE,
    "image show sid": ("image sid", "trixie"),
    "image promote sid": ("image sid", "fleet.yaml", "trixie"),
    "image publish sid": ("image sid", "trixie"),
    "image build sid": ("sid", "trixie"),
    "image test sid": ("image sid", "trixie"),
    "state init --forget-stack trial-nope": ("store", "stack", "trial-nope", "trial-builders"),
    "explain bilders": "'builders'?",
    "explain pool bilders": "'builders'? known: builders",
    "explain worker nope": ("worker nope", ONE),
    "explain worker trial-bilders-0001": f"'{ONE}'? known: {ONE}",
    "tags explain --request 99": "request 99",
}


@pytest.mark.parametrize(("words", "parts"), NAMES.items(), ids=NAMES)
def test_unknown_name_is_refused_with_known_names(
    idle: Trial, words: str, parts: str | tuple[str, ...]
) -> None:
    before = idle.cloud.path.read_bytes()

    said = idle.told(*shlex.split(words), code=1)

    named = [parts] if isinstance(parts, str) else parts
    assert tells(said.splitlines()[-1], "fleet: error", *named)
    assert idle.cloud.path.read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        *("plan", "status", "doctor", "machine list", "image list"),
        *("explain pool builders", "explain request 1", "explain worker trial-builders-0001"),
    ],
)
def test_missing_store_is_reported(trial: Trial, command: str) -> None:
    trial.wait_for("1")
    (trial.folder / ".fleet/store.db").unlink()

    _, said = trial.do(*command.split())

    assert tells(" ".join(said.split()), "there is no store at")


@pytest.mark.parametrize(
    "command",
    [
        "ticket open --tag big",
        "serve --listen 127.0.0.1:0",
        "adopt --select rack=a --pool builders",
    ],
)
def test_command_needs_state_init_when_store_is_missing(
    project_trial: Trial, command: str
) -> None:
    project_trial.write(fleet_yaml(queue="{kind: tickets}"))

    assert "fleet state init" in project_trial.told(*command.split(), code=4)


@pytest.mark.parametrize(
    "command",
    ["state export --out state.json", f"machine delete {TWO} --apply", "image prune"],
)
def test_command_is_refused_while_another_run_holds_the_lock(idle: Trial, command: str) -> None:
    with idle.locked():
        said = idle.told(*command.split(), code=1)

    assert tells(said, "lock", "fleet trial", "somebody else")
    assert idle.machines() == [ONE, TWO]
    assert not (idle.folder / "state.json").exists()


UNWRITABLE = {
    "plan --out missing/plan.json": "there is no such file or directory",
    "plan --out /dev/full": "the disk is full",
    "plan --out .": "this is a directory, not a file",
    "plan --out fleet.yaml/plan.json": "a part of its path is not a directory",
    "observe --out /dev/full": "",
    "schema --out /dev/full": "",
    "status --site fleet.yaml": "",
    "status --metrics nowhere/fleet.prom": "",
    "validate --gitlab-code-quality none/gl.json": "",
}


@pytest.mark.parametrize(("words", "because"), UNWRITABLE.items(), ids=UNWRITABLE)
def test_unwritable_output_is_reported_with_reason(
    trial: Trial, run_fleet: RunFleet, words: str, because: str
) -> None:
    before = trial.files()
    *command, out = words.split()

    failed = run_fleet(*command, out)

    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)
    assert failed.stderr.startswith(f"fleet: error: {out}")
    assert because in failed.stderr
    assert trial.files() == before
