"""Test an image: run one small job for each executor and task that it enables.

A job runs in a copy of the root of the disk, or of the rented machine that becomes a snapshot. It
runs as the worker's user and with Debusine's code (`jobs_inside.py`). The copy is then deleted. If
the computer or the machine cannot run a job, regardless of the image, the job is unproven. An
unproven job is not a problem of the image.
"""

import json
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import IO, cast

from fleet.clock import utc_now
from fleet.errors import FleetError
from fleet.images.boot import choose_accelerator
from fleet.images.checks import RootShell
from fleet.images.programs import (
    ENVIRONMENT,
    MACHINES,
    PROXIES,
    explain_no_namespaces,
    last_line,
    missing,
    need,
    root_script,
)
from fleet.model.images import (
    ImageTestJob,
    Test,
    executors_of,
    is_judged,
    is_old_worker,
    is_open,
    job_of_tag,
)
from fleet.ports import Tell
from fleet.schema.model import ImageRecipe

LOG = "jobs.log"
_REQUIRED_PROGRAMS = ("unshare", "setpriv", "qemu-img", "sfdisk", "debugfs")
_TIMEOUT_SECONDS = 7200
"""Time limit for all jobs. They took 15 minutes on a very busy machine with two cores."""
_VSOCK = Path("/dev/vhost-vsock")
_HOME = "/var/lib/debusine/worker"
_PROGRAM = f"{_HOME}/jobs.py"
_WORKER = "debusine-worker"


def jobs_of(recipe: ImageRecipe) -> tuple[str, ...]:
    """Return the names of a recipe's test jobs, each after the jobs whose results it uses."""
    executors, tasks = executors_of(recipe.enable_backends), set(recipe.enable_tasks)
    wanted = [f"task:{each}" for each in ("mmdebstrap", "simplesystemimagebuild") if each in tasks]
    wanted += [f"executor:{each}" for each in executors]
    wanted += [f"task:{each}" for each in ("sbuild", "autopkgtest") if each in tasks]
    return tuple(wanted)


def why_not(recipe: ImageRecipe) -> str:
    """Return the reason why this computer cannot run test jobs; empty if it can."""
    if os.geteuid() != 0:
        return "only root runs jobs in the root of an image"
    machine = MACHINES.get(platform.machine(), platform.machine())
    if machine != recipe.architecture:
        return f"this computer is {machine}, and the image is {recipe.architecture}"
    return missing(_REQUIRED_PROGRAMS) or explain_no_namespaces()


def prove(recipe: ImageRecipe, root: Path, log: Path, tell: Tell) -> Test:
    """Run the test jobs of an image on this computer, in a copy of its root file system."""
    if reason := why_not(recipe):
        return prove_nothing(recipe, reason)
    log.write_bytes(b"")
    able = {"vhost-vsock"} if _VSOCK.exists() else set[str]()
    with suppress(FleetError):  # without QEMU, no virtual machine runs
        able |= {"kvm"} if Path("/dev/kvm").exists() and choose_accelerator() == "kvm" else set()
    return _JobRun(Here(), recipe, "this computer", able, str(root), log, tell).run()


def prove_on(machine: RootShell, recipe: ImageRecipe, log: Path, tell: Tell) -> Test:
    """Run the test jobs of an image on the rented machine before its snapshot is taken."""
    able = {*machine.run(root_script("list_devices")).split()}
    top = machine.run(root_script("copy_root")).strip()
    try:
        return _JobRun(machine, recipe, "the machine", able, f"{top}/root", log, tell).run()
    finally:
        machine.run(f"rm -rf --one-file-system {quote(top)}")


class Here:
    """This computer. The kernel kills a started script when this process exits."""

    def start(self, script: str, log: Path) -> "subprocess.Popen[bytes]":
        """Start a script. Append its standard error to the log."""
        with log.open("ab") as errors:
            return subprocess.Popen(  # noqa: S603 - a script of fleet
                (need("setpriv"), "--pdeathsig=KILL", "--", "/bin/sh", "-c", script),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # only this process handles Ctrl-C
            )

    def run(self, script: str, sent: bytes = b"") -> str:
        """Run a script with `sent` as standard input; return the standard output."""
        command = ("/bin/sh", "-c", script)
        return subprocess.run(command, input=sent, capture_output=True, check=True).stdout.decode()  # noqa: S603 - same


def prove_nothing(recipe: ImageRecipe, reason: str) -> Test:
    """Return a test in which all jobs are unproven, with the reason."""
    jobs = tuple(ImageTestJob(name=each, unproven=reason) for each in jobs_of(recipe))
    return Test(kind="jobs", at=utc_now(), seconds=0.0, jobs=jobs, nothing_run=reason)


def judge(image: str, recipe: ImageRecipe, worker: str, run: Callable[[], Test]) -> Test:
    """Return the test of `run`. Do not run it if the worker is too old to report tags.

    A tag in the recipe's `provides` is a problem if its job ran and did not prove the tag.
    """
    is_old = is_old_worker(worker)
    test = prove_nothing(recipe, "its worker reports no tags") if is_old else run()
    refuted = [
        f"images.{image}.provides claims {tag}, which no job proved"
        for tag in refuted_claims(recipe, test)
    ]
    return test.altered(problems=(*test.problems, *refuted))


def refuted_claims(recipe: ImageRecipe, test: Test) -> tuple[str, ...]:
    """Return the tags in a recipe's `provides` whose jobs ran but did not prove the tag."""
    return tuple(
        tag
        for tag in recipe.provides
        if is_judged(tag) and tag not in test.provides and not is_open(tag, test.unproven)
    )


_NEEDS_TARBALL = {"executor:unshare", "executor:incus-lxc", "task:sbuild", "task:autopkgtest"}
_TASKS_IN_EXECUTOR = ("task:sbuild", "task:autopkgtest")
_TASK_EXECUTORS = ("unshare", "incus-lxc")
"""Executors that build and test a package without a virtual machine, the fastest first."""
_BRIDGE = "ip link add b0 type bridge && ip link add v0 type veth peer name v1"
_ENTER = ("--mount", "--propagation=private", "--pid", "--fork", "--kill-child=KILL")


class _JobRun:
    """The test jobs of a recipe in a copied root file system.

    The devices in `able` are necessary for virtual machines on a computer with this name.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a job depends on
        self,
        machine: RootShell,
        recipe: ImageRecipe,
        name: str,
        able: Collection[str],
        root: str,
        log: Path,
        tell: Tell,
    ) -> None:
        self._machine, self._recipe, self._name, self._able = machine, recipe, name, able
        self._root, self._log, self._tell = root, log, tell
        self._wanted = jobs_of(recipe)
        self._tags: tuple[str, ...] = ()
        enabled = executors_of(recipe.enable_backends)
        self._executor = next((each for each in _TASK_EXECUTORS if each in enabled), "")
        self._found = {
            each: ImageTestJob(name=each, unproven=why)
            for each in self._wanted
            if (why := self._explain_unproven(each))
        }

    def run(self) -> Test:
        """Run the jobs that the computer can run; return a test with all results."""
        at, began, recipe = utc_now(), time.monotonic(), self._recipe
        left = [each for each in self._wanted if each not in self._found]
        if "task:mmdebstrap" not in left and set(left) & _NEEDS_TARBALL:
            left.insert(0, "task:mmdebstrap")
        # The fast xz compresses at the lowest level, because the jobs read a tarball only once.
        program, xz = quote(f"{self._root}{_PROGRAM}"), quote(f"{self._root}/usr/local/bin/xz")
        self._machine.run(
            f"cat >{program} && chmod 644 {program} && "
            f"printf '#!/bin/sh\\nexec /usr/bin/xz -0 \"$@\"\\n' >{xz} && chmod 755 {xz}",
            Path(__file__).with_name("jobs_inside.py").read_bytes(),
        )
        in_incus = _TASKS_IN_EXECUTOR if self._executor == "incus-lxc" else ()
        incus = [each for each in left if each.startswith("executor:incus") or each in in_incus]
        shared, why = [each for each in left if each not in incus], ""
        lent = shared == ["task:mmdebstrap"] and "mmdebstrap" not in recipe.enable_tasks
        self._run_in_root(shared, "lend_mmdebstrap" if lent else "")
        made = self._found.get("task:mmdebstrap")
        if lent and made and made.problem:
            why = f"mmdebstrap made no root for it: {made.problem}"
        elif incus:
            command = as_script("unshare", "--net", "sh", "-euc", _BRIDGE)
            with self._machine.start(command, self._log) as child:
                _, _ = child.communicate()
            if child.returncode:
                why = f"no bridge for incus can be made: {self._last_line()}"
        if why:
            self._found |= {each: ImageTestJob(name=each, unproven=why) for each in incus}
        elif incus:
            self._run_in_root(incus, "with_incus")
        problem = f"it did not end: {self._last_line()} ({self._log})"
        jobs = tuple(
            self._found.get(each, ImageTestJob(name=each, problem=problem))
            for each in self._wanted
        )
        good = {each.name for each in jobs if each.is_proven}
        tags = {each for each in self._tags if (of := job_of_tag(each)) is None or good & {*of}}
        tags |= {f"worker:{each}" for each in good if each.startswith("executor:")}
        return Test(
            kind="jobs",
            at=at,
            seconds=round(time.monotonic() - began, 1),
            problems=tuple(f"{each.name} failed: {each.problem}" for each in jobs if each.problem),
            provides=tuple(sorted(tags)) if self._tags else (),
            jobs=jobs,
        )

    def _explain_unproven(self, job: str) -> str:
        """Return the reason why the computer cannot run a test job; empty if it can."""
        if job in ("executor:qemu", "executor:incus-vm"):
            if "kvm" not in self._able:
                return f"{self._name} has no KVM that works"
            if "simplesystemimagebuild" not in self._recipe.enable_tasks:
                return "task simplesystemimagebuild, which makes a machine for it, is not enabled"
        if job == "executor:incus-vm" and "vhost-vsock" not in self._able:
            return f"{self._name} has no {_VSOCK}"
        if job in _TASKS_IN_EXECUTOR and not self._executor:
            able = " or ".join(_TASK_EXECUTORS)
            return f"no executor is enabled in which it would run here: {able}"
        return ""

    def _run_in_root(self, jobs: Sequence[str], setup: str) -> None:
        """Run jobs as the worker's user. `setup` is a function of root.sh that runs them.

        Jobs with incus run in a new network, other jobs in the machine's network.
        """
        is_incus = setup == "with_incus"
        worker = (
            *("setpriv", f"--reuid={_WORKER}", f"--regid={_WORKER}", "--init-groups", "--"),
            *("env", f"HOME={_HOME}", "python3", _PROGRAM),
        )
        prepared = ("sh", "-euc", root_script(f'{setup} "$@"'), "sh") if setup else ()
        command = as_script(
            *("unshare", *_ENTER, *(("--net",) if is_incus else ()), "--mount-proc", "--"),
            *("sh", "-euc", root_script('enter_root "$@"'), "sh", self._root),
            *("own" if is_incus else "shared", *prepared, *worker),
        )
        wanted = {
            "jobs": jobs,
            "suite": self._recipe.suite,
            "architecture": self._recipe.architecture,
            "backend": self._executor,
        }
        with self._machine.start(command, self._log) as child:
            limit = threading.Timer(_TIMEOUT_SECONDS, child.kill)
            limit.start()
            stdin, stdout = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
            try:
                with suppress(BrokenPipeError):  # the child exited already; the log has the reason
                    stdin.write(json.dumps(wanted).encode())
                    stdin.close()
                for told in map(json.loads, stdout):
                    if "name" in told:
                        self._record(ImageTestJob.model_validate(told))
                    else:
                        self._tags = self._tags or tuple(told["tags"])
                child.wait()
            finally:
                limit.cancel()
                child.kill()
        what = "incus was not set up" if is_incus else "the worker's code cannot be run"
        for each in jobs if child.returncode else ():
            self._record(ImageTestJob(name=each, problem=f"{what}: {self._last_line()}"))

    def _record(self, job: ImageTestJob) -> None:
        self._found[job.name] = job
        ended = "proven" if job.name in self._wanted else "made a root for the other jobs"
        self._tell(f"{job.name}: {job.problem or ended} after {job.seconds:.0f} s")

    def _last_line(self) -> str:
        return last_line(self._log.read_bytes())


def as_script(*command: str) -> str:
    """Return a script that runs a command in a minimal environment, with proxy variables."""
    proxies = [f'${{{name}+{name}="${name}"}}' for name in PROXIES]
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    settings = [f"{name}={value}" for name, value in {"PATH": path, **ENVIRONMENT}.items()]
    return " ".join(["exec env -i", *proxies, *map(quote, (*settings, *command))])
