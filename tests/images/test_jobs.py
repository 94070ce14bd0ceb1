"""What the jobs of an image prove, and which tags of its worker count because of that."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fleet.images import programs
from fleet.images.checks import open_disk, workplace
from fleet.images.jobs import (
    Here,
    as_script,
    jobs_of,
    prove_nothing,
    prove_on,
    refuted_claims,
    why_not,
)
from fleet.images.programs import ENVIRONMENT, PROXIES, root_script
from fleet.images.records import after_tests
from fleet.model import images as model
from fleet.model.images import executors_of, is_open, job_of_tag
from fleet.schema.model import ImageRecipe
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.versioning import a_version
from tests.rigs.image_disks import a_disk, a_root, needs_programs

REPORTED = (
    "worker:build-arch:amd64",
    "worker:cap:autopkgtest",
    "worker:cap:mmdebstrap",
    "worker:cap:sbuild",
    "worker:task:worker:autopkgtest:version:1",
    "worker:task:worker:mmdebstrap:version:1",
    "worker:task:worker:noop:version:1",
    "worker:task:worker:sbuild:version:1",
    "worker:type:external",
)
SBUILD = ("worker:cap:sbuild", "worker:task:worker:sbuild:version:1")


def recipe(**keys: object) -> ImageRecipe:
    return ImageRecipe.model_validate({"suite": "trixie", "architecture": "amd64", **keys})


class Bench:
    """A computer whose jobs end so; all others succeed."""

    def __init__(self, ended: dict[str, str], reported: tuple[str, ...]) -> None:
        self._ended = ended
        self._reported = reported

    def run(self, script: str, sent: bytes = b"") -> str:  # noqa: ARG002 - as a machine takes it
        return "/srv/copy" if script == root_script("copy_root") else ""

    def start(self, script: str, log: Path) -> "subprocess.Popen[bytes]":
        network = "own" if "/srv/copy/root own " in script else "shared"
        told = json.dumps([self._reported, self._ended, network])
        program = (sys.executable, "-c", _ENDED, told)
        with log.open("ab") as errors:
            pipe = subprocess.PIPE
            return subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=errors)


_ENDED = """
import json, sys
tags, ended, network = json.loads(sys.argv[1])
order = json.loads(sys.stdin.read() or "{}")
if order:
    print(json.dumps({"tags": tags}))
    print(network, order["backend"], *order["jobs"], file=sys.stderr)
for name in order.get("jobs", ()):
    print(json.dumps({"name": name, "seconds": 2, "problem": ended.get(name, "")}))
"""


def proven(
    tmp_path: Path,
    ended: dict[str, str] | None = None,
    reported: tuple[str, ...] = REPORTED,
    **keys: object,
) -> model.Test:
    """Prove an image on a machine without KVM, whose jobs fail so; all others succeed."""
    log = tmp_path / "log"
    log.touch()
    return prove_on(Bench(ended or {}, reported), recipe(**keys), log, lambda _: None)


def test_jobs_cover_each_executor_and_task_of_a_recipe() -> None:
    everything = recipe(
        enable_backends=["qemu", "incus", "unshare"],
        enable_tasks=["simplesystemimagebuild", "sbuild", "mmdebstrap", "autopkgtest"],
    )

    assert jobs_of(everything) == (
        *("task:mmdebstrap", "task:simplesystemimagebuild"),
        *("executor:unshare", "executor:incus-lxc", "executor:incus-vm", "executor:qemu"),
        *("task:sbuild", "task:autopkgtest"),
    )
    assert jobs_of(recipe(enable_backends=["incus-lxc"], enable_tasks=[])) == (
        "executor:incus-lxc",
    )


@pytest.mark.parametrize(
    ("backends", "executors"),
    [
        (["incus"], ("incus-lxc", "incus-vm")),
        (["incus-vm", "incus"], ("incus-lxc", "incus-vm")),
        (["qemu", "unshare"], ("unshare", "qemu")),
        ([], ()),
    ],
)
def test_executors_have_the_names_of_debusine(backends: list[str], executors: object) -> None:
    assert executors_of(backends) == executors


def test_jobs_that_succeed_prove_their_tags(tmp_path: Path) -> None:
    test = proven(tmp_path)

    assert set(test.provides) == {
        "worker:executor:unshare",
        *REPORTED,
    } - {"worker:cap:mmdebstrap", "worker:task:worker:mmdebstrap:version:1"}
    assert (test.problems, test.unproven) == ((), ())
    assert proven(tmp_path, reported=()).provides == ()


@pytest.mark.parametrize(
    ("failed", "keys"),
    [
        ({"task:sbuild": "the task ended with failure"}, {}),
        (
            {"executor:incus-lxc": "no bridge", "task:sbuild": "no instance"},
            {"enable_backends": ["incus-lxc"]},
        ),
    ],
)
def test_failed_job_is_a_problem_and_proves_no_tag(
    tmp_path: Path, failed: dict[str, str], keys: dict[str, Any]
) -> None:
    test = proven(tmp_path, failed, **keys)

    assert [each.split()[0].rstrip(":") for each in test.problems] == [*failed]
    assert set(SBUILD).isdisjoint(test.provides)


@pytest.mark.parametrize("backend", ["qemu", "incus-vm"])
def test_virtual_machines_are_unproven_when_kvm_is_missing(tmp_path: Path, backend: str) -> None:
    test = proven(tmp_path, enable_backends=["unshare", backend])

    assert test.problems == ()
    assert test.unproven == (f"executor:{backend}",)
    assert f"worker:executor:{backend}" not in test.provides
    assert "worker:executor:unshare" in test.provides


@pytest.mark.parametrize("backends", [["qemu"], ["incus-vm"], ["qemu", "incus-vm"], []])
def test_sbuild_is_unproven_without_an_executor_that_runs_it(
    tmp_path: Path, backends: list[str]
) -> None:
    test = proven(tmp_path, enable_backends=backends)

    assert {"task:sbuild", "task:autopkgtest"} <= {*test.unproven}
    assert set(SBUILD).isdisjoint(test.provides)


@pytest.mark.parametrize(
    ("backends", "runs"),
    [
        (["unshare"], ["shared unshare MAKE executor:unshare TASKS"]),
        (["incus-lxc"], ["shared incus-lxc MAKE", "own incus-lxc executor:incus-lxc TASKS"]),
        (["incus"], ["shared incus-lxc MAKE", "own incus-lxc executor:incus-lxc TASKS"]),
        (
            ["qemu", "incus-lxc"],
            ["shared incus-lxc MAKE", "own incus-lxc executor:incus-lxc TASKS"],
        ),
        (
            ["incus-lxc", "unshare"],
            ["shared unshare MAKE executor:unshare TASKS", "own unshare executor:incus-lxc"],
        ),
    ],
)
def test_builds_run_in_unshare_or_in_a_container_of_incus(
    tmp_path: Path, backends: list[str], runs: list[str]
) -> None:
    test = proven(tmp_path, enable_backends=backends)

    names = {"MAKE": "task:mmdebstrap", "TASKS": "task:sbuild task:autopkgtest"}
    expected = [" ".join(names.get(word, word) for word in each.split()) for each in runs]
    assert (tmp_path / "log").read_text(encoding="utf-8").splitlines() == expected
    assert {*SBUILD} <= {*test.provides}
    assert test.problems == ()


@pytest.mark.parametrize("backends", [["incus"], ["incus-lxc"], ["incus-lxc", "qemu"]])
def test_jobs_are_unproven_when_the_image_cannot_create_their_root(
    tmp_path: Path, backends: list[str]
) -> None:
    test = proven(tmp_path, {"task:mmdebstrap": "no archive"}, enable_backends=backends)

    assert test.problems == ()
    assert {"executor:incus-lxc", "task:sbuild", "task:autopkgtest"} <= {*test.unproven}
    assert all(
        tells(each.unproven, "no archive")
        for each in test.jobs
        if "qemu" not in each.name and "vm" not in each.name
    )


@pytest.mark.parametrize("installed", [["apt"], ["apt", "uidmap"], ["arch-test", "apt", "uidmap"]])
def test_lent_programs_are_removed_after_creation_of_the_root(
    tmp_path: Path, installed: list[str]
) -> None:
    packages, programs = tmp_path / "packages", tmp_path / "bin"
    packages.write_text("".join(f"{each}\n" for each in installed), encoding="utf-8")
    programs.mkdir()
    for name, script in (("dpkg-query", _DPKG_QUERY), ("apt-get", _APT_GET)):
        (programs / name).write_text(script, encoding="utf-8")
        (programs / name).chmod(0o755)
    command = ("sh", "-euc", root_script('lend_mmdebstrap "$@"'), "sh", "cat", str(packages))

    ran = subprocess.run(
        command,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "PACKAGES": str(packages)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert sorted(ran.stdout.split()) == sorted({*installed, "arch-test", "mmdebstrap", "uidmap"})
    assert sorted(packages.read_text(encoding="utf-8").split()) == sorted(installed)


_DPKG_QUERY = '#!/bin/sh\ncat "$PACKAGES"\n'
_APT_GET = """#!/bin/sh
for word; do
    case $word in
    install|purge) what=$word;;
    arch-test|mmdebstrap|uidmap|apt)
        grep -vxF "$word" "$PACKAGES" >"$PACKAGES.new"; mv "$PACKAGES.new" "$PACKAGES"
        test "$what" = purge || echo "$word" >>"$PACKAGES";;
    esac
done
"""


@pytest.mark.parametrize(
    "keys",
    [
        {"enable_backends": ["incus-lxc"], "enable_tasks": ["mmdebstrap"]},
        {"enable_backends": ["incus-lxc", "unshare"], "enable_tasks": []},
        {"enable_backends": ["unshare"]},
    ],
)
def test_image_fails_when_its_mmdebstrap_creates_no_root(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    failed = {
        "task:mmdebstrap": "no archive",
        "executor:unshare": "no root",
        "executor:incus-lxc": "no root",
    }

    assert proven(tmp_path, failed, **keys).problems


@pytest.mark.parametrize(
    ("claim", "refutes"),
    [
        ("worker:executor:unshare", 0),
        ("worker:executor:qemu", 0),  # unproven: the recipe's word counts
        ("worker:executor:incus-lxc", 1),
        ("worker:task:worker:sbuild:version:1", 0),
        ("worker:task:worker:sbuild:version:2", 1),
        ("worker:cap:mmdebstrap", 1),
        ("worker:task:worker:lintian:version:9", 1),
        ("team:kernel", 0),
    ],
)
def test_claim_is_refuted_when_a_job_could_have_proven_it(
    tmp_path: Path, claim: str, refutes: int
) -> None:
    keys: dict[str, Any] = {"enable_backends": ["unshare", "qemu"], "provides": [claim]}
    test = proven(tmp_path, **keys)

    assert refuted_claims(recipe(**keys), test) == (claim,) * refutes
    nothing_run = prove_nothing(recipe(**keys), "only root runs jobs")
    assert refuted_claims(recipe(**keys), nothing_run) == ()


@pytest.mark.parametrize(
    ("tag", "names"),
    [
        ("worker:executor:incus-vm", ("executor:incus-vm",)),
        ("worker:cap:mmdebstrap", ("task:mmdebstrap", "task:simplesystemimagebuild")),
        ("worker:task:worker:sbuild:version:12", ("task:sbuild",)),
        ("worker:task:worker:noop:version:1", None),
        ("worker:build-arch:amd64", None),
        ("team:kernel", None),
    ],
)
def test_tag_has_the_jobs_that_prove_it(tag: str, names: object) -> None:
    assert job_of_tag(tag) == names


def test_tag_is_open_when_its_job_could_not_be_run() -> None:
    assert is_open("worker:executor:qemu", ("executor:qemu",))
    assert not is_open("worker:executor:qemu", ("executor:incus-vm",))
    assert is_open("worker:task:worker:noop:version:1", ("worker",))
    assert not is_open("team:kernel", ("worker",))


def job_test(*provides: str, **said: object) -> model.Test:
    return model.Test.model_validate(
        {"kind": "jobs", "at": NOW, "seconds": 1, "provides": provides, **said}
    )


def boot_test(*provides: str) -> model.Test:
    return model.Test(kind="boot", at=NOW, seconds=1, provides=provides)


@pytest.mark.parametrize(
    ("jobs", "decided"),
    [
        (job_test("worker:executor:incus-lxc"), (("worker:executor:incus-lxc",), ())),
        (job_test(nothing_run="only root runs jobs"), (("worker:executor:qemu",), ("worker",))),
    ],
)
def test_boot_decides_about_tags_only_when_no_job_was_run(
    jobs: model.Test, decided: object
) -> None:
    after = after_tests(a_version(state="built"), (jobs, boot_test("worker:executor:qemu")), NOW)

    assert (after.provides, after.unproven) == decided


@needs_programs
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs")
@pytest.mark.parametrize(
    "refuses",
    [
        ["unshare", "--mount", "--map-users", "no"],
        ["sh", "-c", "echo unshare failed: Operation not permitted >&2; exit 1"],
        ["setpriv", "--bounding-set=-sys_admin", "--", "unshare", "--mount", "true"],
    ],
)
def test_no_job_is_run_when_root_cannot_create_a_namespace(
    monkeypatch: pytest.MonkeyPatch, refuses: list[str]
) -> None:
    """Root of a container may not: that says nothing of the image."""
    monkeypatch.setattr(programs, "isolated", lambda *_: refuses)

    assert tells(why_not(recipe()), "no namespaces", "unshare")


@needs_programs
@pytest.mark.skipif(os.geteuid() != 0, reason="only root keeps the owners of files")
def test_copied_root_keeps_owners_modes_and_links(tmp_path: Path) -> None:
    root = a_root(tmp_path / "root")
    for name, mode in (("usr/bin/newuidmap", 0o4755), ("usr/bin/sbuild", 0o755)):
        (root / name).chmod(mode)
    for name, mode in (("tmp", 0o1777), ("var/mail box", 0o2775)):
        (root / name).mkdir()
        (root / name).chmod(mode)
    os.chown(root / "usr/bin/ip", 989, 988)
    copied = tmp_path / "copied"
    copied.mkdir()

    with open_disk(a_disk(tmp_path / "disk.qcow2", root)) as disk:
        disk.copy(copied)

    for path in root.rglob("*"):
        found, expected = (copied / path.relative_to(root)).lstat(), path.lstat()
        assert (found.st_mode, found.st_uid, found.st_gid) == (
            expected.st_mode,
            expected.st_uid,
            expected.st_gid,
        ), path
    assert (copied / "bin").readlink() == Path("usr/bin")


def test_copy_is_deleted_when_its_run_is_dead(tmp_path: Path) -> None:
    dead = tmp_path / ".jobs-dead"
    (dead / "root/etc").mkdir(parents=True)

    with workplace(tmp_path) as made:
        assert not dead.exists()
        assert made.exists()

    assert list(tmp_path.glob(".jobs-*")) == []


def test_job_gets_only_proxies_from_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example.org:3128/?a='b c'")
    monkeypatch.setenv("FLEET_TEST_SECRET", "secret")

    told = dict(line.split("=", 1) for line in Here().run(as_script("env")).splitlines())

    assert told["https_proxy"] == "http://proxy.example.org:3128/?a='b c'"
    assert told.keys() == {"https_proxy", *ENVIRONMENT, "PATH"} | ({*PROXIES} & {*os.environ})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a root the top of a namespace")
def test_job_processes_end_with_their_runner(tmp_path: Path) -> None:
    """A process that became another user is not ended with its parent by the kernel."""
    top = tmp_path / "root"
    top.mkdir()
    other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
    sleeps = ("sleep", str(10**6 + os.getpid()))
    enter = root_script('enter_root "$@"')
    script = as_script(
        *("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child=KILL"),
        *("--mount-proc", "sh", "-euc", f"mount --rbind / {top}\n{enter}", "sh"),
        *(str(top), "shared", *other, *sleeps),
    )

    with Here().start(script, tmp_path / "log") as child:
        wait_until(lambda: running(sleeps), tmp_path / "log")
        child.kill()

    wait_until(lambda: not running(sleeps), tmp_path / "log")


def running(command: tuple[str, ...]) -> bool:
    """Say whether a process of any namespace runs a command."""
    line = "\0".join((*command, "")).encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return line in found


def wait_until(is_so: Callable[[], bool], log: Path) -> None:
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until, log.read_text(encoding="utf-8")
        time.sleep(0.05)
