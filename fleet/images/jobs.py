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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import IO, NamedTuple, cast

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
_WORKER = "debusine-worker"
_INCUS_SETUP = "/usr/local/sbin/debusine-worker-incus"


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
    able = {
        name for name, there in (("kvm", _has_kvm()), ("vhost-vsock", _VSOCK.exists())) if there
    }
    return _run_jobs(Here(), recipe, _Site("this computer", able, str(root), log), tell)


def prove_on(machine: RootShell, recipe: ImageRecipe, log: Path, tell: Tell) -> Test:
    """Run the test jobs of an image on the rented machine before its snapshot is taken."""
    able = {*machine.run(ABLE).split()}
    top = machine.run(COPY_ROOT).strip()
    try:
        return _run_jobs(machine, recipe, _Site("the machine", able, f"{top}/root", log), tell)
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


class _Site(NamedTuple):
    """The computer that runs jobs: its name, its devices for virtual machines, the copied root."""

    name: str
    able: Collection[str]
    root: str
    log: Path


def _run_jobs(machine: RootShell, recipe: ImageRecipe, site: _Site, tell: Tell) -> Test:
    """Run the test jobs of a recipe that the site can run; return a test with all results."""
    at, began = utc_now(), time.monotonic()
    wanted = jobs_of(recipe)
    found = {
        each: ImageTestJob(name=each, unproven=why)
        for each in wanted
        if (why := _explain_unproven(each, recipe, site))
    }
    left = [each for each in wanted if each not in found]
    if "task:mmdebstrap" not in left and set(left) & _NEEDS_TARBALL:
        left.insert(0, "task:mmdebstrap")
    reported: tuple[str, ...] = ()
    for told in _run_all_networks(machine, recipe, site, left):
        if not isinstance(told, ImageTestJob):
            reported = reported or told
            continue
        found[told.name] = told
        if not told.unproven:
            ended = "proven" if told.name in wanted else "made a root for the other jobs"
            tell(f"{told.name}: {told.problem or ended} after {told.seconds:.0f} s")
    problem = f"it did not end: {_last_log_line(site.log)} ({site.log})"
    jobs = tuple(found.get(each, ImageTestJob(name=each, problem=problem)) for each in wanted)
    good = {each.name for each in jobs if each.is_proven}
    executors = {f"worker:{each}" for each in good if each.startswith("executor:")}
    tags = {tag for tag in reported if (of_it := job_of_tag(tag)) is None or good & {*of_it}}
    return Test(
        kind="jobs",
        at=at,
        seconds=round(time.monotonic() - began, 1),
        problems=tuple(f"{each.name} failed: {each.problem}" for each in jobs if each.problem),
        provides=tuple(sorted(tags | executors)) if reported else (),
        jobs=jobs,
    )


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


def _explain_unproven(job: str, recipe: ImageRecipe, site: _Site) -> str:
    """Return the reason why the site cannot run a test job; empty if it can."""
    if job in ("executor:qemu", "executor:incus-vm"):
        if "kvm" not in site.able:
            return f"{site.name} has no KVM that works"
        if "simplesystemimagebuild" not in recipe.enable_tasks:
            return "task simplesystemimagebuild, which makes a machine for it, is not enabled"
    if job == "executor:incus-vm" and "vhost-vsock" not in site.able:
        return f"{site.name} has no {_VSOCK}"
    if job in _TASKS_IN_EXECUTOR and not _executor_of_tasks(recipe):
        return f"no executor is enabled in which it would run here: {' or '.join(_TASK_EXECUTORS)}"
    return ""


_TASKS_IN_EXECUTOR = ("task:sbuild", "task:autopkgtest")
_TASK_EXECUTORS = ("unshare", "incus-lxc")
"""Executors that build and test a package without a virtual machine, the fastest first."""


def _executor_of_tasks(recipe: ImageRecipe) -> str:
    """Return the executor for sbuild and autopkgtest: unshare, else incus-lxc, else ""."""
    enabled = executors_of(recipe.enable_backends)
    return next((each for each in _TASK_EXECUTORS if each in enabled), "")


def _has_kvm() -> bool:
    try:
        return Path("/dev/kvm").exists() and choose_accelerator() == "kvm"
    except FleetError:
        return False


_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    **ENVIRONMENT,
}
ABLE = """
test ! -w /dev/kvm || echo kvm
test ! -e /dev/vhost-vsock || echo vhost-vsock
"""
COPY_ROOT = """set -e
top=$(mktemp -d /var/tmp/fleet-jobs-XXXXXX)
mkdir "$top/root"
tar -C / --one-file-system --exclude='./var/tmp/fleet-jobs-*' --xattrs -cf - . |
    tar -C "$top/root" --numeric-owner --xattrs --xattrs-include='*' -xpf -
echo "$top"
"""


def _run_all_networks(
    machine: RootShell, recipe: ImageRecipe, site: _Site, jobs: Sequence[str]
) -> "Iterator[ImageTestJob | tuple[str, ...]]":
    """Run jobs in a root file system. Yield the worker's tags, and the result of each job.

    Jobs with incus get a new network.
    """
    program = Path(__file__).with_name("jobs_inside.py").read_bytes()
    for name, content, mode in ((f"{_HOME}/jobs.py", program, 644), (_XZ, _FAST_XZ, 755)):
        path = quote(site.root + name)
        machine.run(f"cat >{path} && chmod {mode} {path}", content)
    with_incus = _TASKS_IN_EXECUTOR if _executor_of_tasks(recipe) == "incus-lxc" else ()
    incus = [each for each in jobs if each.startswith("executor:incus") or each in with_incus]
    shared = [each for each in jobs if each not in incus]
    lent = shared == ["task:mmdebstrap"] and "mmdebstrap" not in recipe.enable_tasks
    why = ""
    for each in _run_in_root(machine, recipe, site, shared, LEND_MMDEBSTRAP if lent else _RUN):
        if lent and isinstance(each, ImageTestJob) and each.problem:
            why = f"mmdebstrap made no root for it: {each.problem}"
        yield each
    if incus and (why := why or _explain_missing_network(machine, site.log)):
        yield from (ImageTestJob(name=each, unproven=why) for each in incus)
    elif incus:
        yield from _run_in_root(machine, recipe, site, incus, _START_INCUS)


def _explain_missing_network(machine: RootShell, log: Path) -> str:
    """Return the error if the machine cannot create a bridge for containers; empty if it can."""
    made = "ip link add b0 type bridge && ip link add v0 type veth peer name v1"
    with machine.start(as_script("unshare", "--net", "sh", "-euc", made), log) as child:
        _, _ = child.communicate()
    return f"no bridge for incus can be made: {_last_log_line(log)}" if child.returncode else ""


# unshare(2) maps no users within a chroot, so pivot_root makes the copy the root of the mount
# namespace; pivot_root requires a mount. Process 1 stays a shell of root: a process that changes
# its user loses its parent-death signal, but the kernel kills all processes with process 1.
ENTER = """
root=$1; own=$2; shift 2
mount --bind "$root" "$root"; cd "$root"
mount -t proc proc proc; mount -t sysfs sysfs sys; mount --rbind /dev dev
mount -t tmpfs tmpfs run; mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p run/systemd/resolve; cat /etc/resolv.conf >run/systemd/resolve/stub-resolv.conf
if test "$own" = own; then ip link set lo up; mount -t cgroup2 cgroup sys/fs/cgroup; fi
pivot_root . mnt
exec /usr/sbin/chroot . /bin/sh -euc 'umount -l /mnt; "$@"; exit' sh "$@"
"""
_RUN = 'exec "$@"'
# An image whose only executor is incus has no mmdebstrap, and its jobs need a tarball.
LEND_MMDEBSTRAP = """
export DEBIAN_FRONTEND=noninteractive
list() { dpkg-query --show --showformat='${Package}\\n'; }
before=$(list)
apt-get -q -o Acquire::Check-Valid-Until=false update </dev/null >&2
apt-get -qy --no-install-recommends install arch-test mmdebstrap uidmap </dev/null >&2
"$@"
list | grep -vxF "$before" | xargs -r apt-get -qy purge >&2
"""
# No systemd runs in the root, so start the daemon of incus with the command of its unit.
_START_INCUS = f"""
mkdir -p /run/incus /var/lib/incus /var/log/incus
/usr/libexec/incus/incusd --group incus-admin >/var/log/incus/incusd.log 2>&1 </dev/null &
incus admin waitready --timeout 120 </dev/null >&2
{_INCUS_SETUP} </dev/null >&2
exec "$@"
"""
_XZ = "/usr/local/bin/xz"
_FAST_XZ = b'#!/bin/sh\nexec /usr/bin/xz -0 "$@"\n'
"""Wrapper that compresses at the lowest level, because the jobs read a tarball only once."""


def _run_in_root(
    machine: RootShell,
    recipe: ImageRecipe,
    site: _Site,
    jobs: Sequence[str],
    script: str,
) -> "Iterator[ImageTestJob | tuple[str, ...]]":
    """Run jobs in a root file system as the worker's user. `script` prepares this root.

    Jobs with incus run in a new network, other jobs in the machine's network.
    """
    own_network = script == _START_INCUS
    worker = (
        *("setpriv", f"--reuid={_WORKER}", f"--regid={_WORKER}", "--init-groups", "--"),
        *("env", f"HOME={_HOME}", "python3", f"{_HOME}/jobs.py"),
    )
    apart = ("--net",) if own_network else ()
    command = as_script(
        *("unshare", "--mount", "--propagation=private", "--pid", "--fork"),
        *("--kill-child=KILL", *apart, "--mount-proc", "--", "sh", "-euc", ENTER, "sh"),
        *(site.root, "own" if own_network else "shared", "sh", "-euc", script, "sh", *worker),
    )
    wanted = {
        "jobs": jobs,
        "suite": recipe.suite,
        "architecture": recipe.architecture,
        "backend": _executor_of_tasks(recipe),
    }
    with machine.start(command, site.log) as child:
        limit = threading.Timer(_TIMEOUT_SECONDS, child.kill)
        limit.start()
        stdin, stdout = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
        try:
            with suppress(BrokenPipeError):  # the child exited already; the log has the reason
                stdin.write(json.dumps(wanted).encode())
                stdin.close()
            for told in map(json.loads, stdout):
                is_job = "name" in told
                yield ImageTestJob.model_validate(told) if is_job else tuple(told["tags"])
            child.wait()
        finally:
            limit.cancel()
            child.kill()
    if child.returncode:
        what = "incus was not set up" if own_network else "the worker's code cannot be run"
        for name in jobs:
            yield ImageTestJob(name=name, problem=f"{what}: {_last_log_line(site.log)}")


def as_script(*command: str) -> str:
    """Return a script that runs a command in a minimal environment, with proxy variables."""
    proxies = [f'${{{name}+{name}="${name}"}}' for name in PROXIES]
    settings = [f"{name}={value}" for name, value in _ENVIRONMENT.items()]
    return " ".join(["exec env -i", *proxies, *map(quote, (*settings, *command))])


def _last_log_line(log: Path) -> str:
    return last_line(log.read_bytes())
