"""Prove what an image offers: run one small job for each executor and task that it enables.

Each runs in the root of the disk that is to be published, or of the rented machine that becomes a
snapshot, as its worker and with Debusine's own code (`jobs_inside.py`). The root is a copy: what
jobs leave there is gone afterwards. A job that this computer, or that machine, cannot run,
whatever the image holds, is unproven, and no problem.
"""

import json
import os
import platform
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple, Protocol, cast

from fleet.clock import utc_now
from fleet.errors import FleetError
from fleet.images import disk
from fleet.images.bake import in_memory_or_on_disk, unshare_mounts
from fleet.images.boot import choose_accelerator
from fleet.images.checks import last_line, open_disk
from fleet.images.programs import ENVIRONMENT, PROXIES, held, missing, need
from fleet.model.images import (
    Job,
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
_COPY = ".jobs-"
"""Name prefix of folders with a copy of a root."""
_ROOTFUL = ("unshare", "setpriv", "qemu-img", "sfdisk", "debugfs")
_SECONDS = 7200
"""The limit of all jobs: on a very busy machine of two cores they took 15 minutes."""
_VSOCK = Path("/dev/vhost-vsock")
_HOME = "/var/lib/debusine/worker"
_WORKER = "debusine-worker"
_SET_UP = "/usr/local/sbin/debusine-worker-incus"


@dataclass
class Found:
    """The tags that the worker reports, and each job with how it ended."""

    tags: tuple[str, ...] = ()
    jobs: dict[str, Job] = field(default_factory=dict)


def jobs_of(recipe: ImageRecipe) -> tuple[str, ...]:
    """Return the jobs of a recipe, each after those whose results it uses."""
    executors, tasks = executors_of(recipe.enable_backends), set(recipe.enable_tasks)
    wanted = [f"task:{each}" for each in ("mmdebstrap", "simplesystemimagebuild") if each in tasks]
    wanted += [f"executor:{each}" for each in executors]
    wanted += [f"task:{each}" for each in ("sbuild", "autopkgtest") if each in tasks]
    return tuple(wanted)


def why_not(recipe: ImageRecipe) -> str:
    """Return why no job can be run on this computer; empty: jobs can be tried."""
    if os.geteuid() != 0:
        return "only root runs jobs in the root of an image"
    machine = disk.MACHINES.get(platform.machine(), platform.machine())
    if machine != recipe.architecture:
        return f"this computer is {machine}, and the image is {recipe.architecture}"
    return missing(_ROOTFUL) or disk.why_not()


def prove(recipe: ImageRecipe, image: Path, log: Path, tell: Tell) -> Test:
    """Run the jobs of an image, and return what they proved."""
    if reason := why_not(recipe):
        return prove_nothing(recipe, reason)
    log.write_bytes(b"")
    able = {
        name for name, there in (("kvm", _has_kvm()), ("vhost-vsock", _VSOCK.exists())) if there
    }
    with workplace(image.parent.parent) as work:
        root = work / "root"

        def run() -> Test:
            root.mkdir()
            with open_disk(image) as opened:
                opened.root.copy(root)
            return _prove(Here(), recipe, _Site("this computer", able, str(root), log), tell)

        unshare_mounts(log)
        return in_memory_or_on_disk(work, log, run)


def prove_on(machine: "Machine", recipe: ImageRecipe, log: Path, tell: Tell) -> Test:
    """Run the jobs of an image on the machine that becomes it, and return what they proved."""
    able = {*machine.run(ABLE).split()}
    top = machine.run(COPY_ROOT).strip()
    try:
        return _prove(machine, recipe, _Site("the machine", able, f"{top}/root", log), tell)
    finally:
        machine.run(f"rm -rf --one-file-system {quote(top)}")


class Machine(Protocol):
    """A computer that runs scripts of sh as root: this one, or a rented one over ssh."""

    def start(self, script: str, log: Path) -> "subprocess.Popen[bytes]":
        """Start a script there; its errors go to the log."""

    def run(self, script: str, sent: bytes = b"") -> str:
        """Run a script there, and return its output."""


class Here:
    """This computer; what it runs ends with us."""

    def start(self, script: str, log: Path) -> "subprocess.Popen[bytes]":
        """Start a script; its errors go to the log."""
        with log.open("ab") as errors:
            return subprocess.Popen(  # noqa: S603 - a script of ours
                (need("setpriv"), "--pdeathsig=KILL", "--", "/bin/sh", "-c", script),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # a Ctrl-C is ours to hear
            )

    def run(self, script: str, sent: bytes = b"") -> str:
        """Run a script, and return its output."""
        command = ("/bin/sh", "-c", script)
        return subprocess.run(command, input=sent, capture_output=True, check=True).stdout.decode()  # noqa: S603 - same


class _Site(NamedTuple):
    """Where jobs run: what that computer has for virtual machines, and the copy of the root."""

    name: str
    able: Collection[str]
    root: str
    log: Path


def _prove(machine: Machine, recipe: ImageRecipe, site: _Site, tell: Tell) -> Test:
    """Return the test of a recipe's jobs; those that can be tried there are run."""
    at, began = utc_now(), time.monotonic()
    wanted = jobs_of(recipe)
    tried = {each: why for each in wanted if (why := _unproven(each, recipe, site))}
    found = Found()
    for told in _jobs_in(machine, recipe, site, [*_order_of(wanted, tried)]):
        _take(told, found, tell)
    found.jobs |= {each: Job(name=each, unproven=why) for each, why in tried.items()}
    for each in wanted:
        if each not in found.jobs:
            problem = f"it did not end: {_last(site.log)} ({site.log})"
            found.jobs[each] = Job(name=each, problem=problem)
    jobs = tuple(found.jobs[each] for each in wanted)
    return Test(
        kind="jobs",
        at=at,
        seconds=round(time.monotonic() - began, 1),
        problems=tuple(f"{each.name} failed: {each.problem}" for each in jobs if each.problem),
        provides=_proven(found, jobs),
        jobs=jobs,
    )


def prove_nothing(recipe: ImageRecipe, reason: str) -> Test:
    """Return the test of an image whose jobs cannot be run, and why."""
    jobs = tuple(Job(name=each, unproven=reason) for each in jobs_of(recipe))
    return Test(kind="jobs", at=utc_now(), seconds=0.0, jobs=jobs, nothing_run=reason)


def judge(image: str, recipe: ImageRecipe, worker: str, run: Callable[[], Test]) -> Test:
    """Return the test of jobs; `run` runs them, unless the worker is too old to report tags.

    A tag that the recipe claims by hand and that its jobs do not bear out is a problem.
    """
    is_old = is_old_worker(worker)
    test = prove_nothing(recipe, "its worker reports no tags") if is_old else run()
    refuted = [
        f"images.{image}.provides claims {tag}, which no job proved"
        for tag in refuted_claims(recipe, test)
    ]
    return test.altered(problems=(*test.problems, *refuted))


def refuted_claims(recipe: ImageRecipe, test: Test) -> tuple[str, ...]:
    """Return the tags that a recipe claims by hand and that its jobs do not bear out."""
    return tuple(
        tag
        for tag in recipe.provides
        if is_judged(tag) and tag not in test.provides and not is_open(tag, test.unproven)
    )


def _proven(found: Found, jobs: Sequence[Job]) -> tuple[str, ...]:
    """Return the tags whose job succeeded, and those of the worker that take no job."""
    good = {each.name for each in jobs if each.is_proven}
    executors = {f"worker:{each}" for each in good if each.startswith("executor:")}
    tags = {
        tag
        for tag in found.tags
        if (needed := job_of_tag(tag)) is None or any(each in good for each in needed)
    }
    return tuple(sorted(tags | executors)) if found.tags else ()


def _order_of(wanted: Sequence[str], unproven: Mapping[str, str]) -> Iterator[str]:
    """Yield the jobs to run; first one that makes a root, where another needs that."""
    left = [each for each in wanted if each not in unproven]
    if "task:mmdebstrap" not in left and set(left) & _IN_TARBALL:
        yield "task:mmdebstrap"
    yield from left


_IN_TARBALL = {"executor:unshare", "executor:incus-lxc", "task:sbuild", "task:autopkgtest"}


def _unproven(job: str, recipe: ImageRecipe, site: _Site) -> str:
    """Return why a job cannot be run there; empty: it can be tried."""
    if job in ("executor:qemu", "executor:incus-vm"):
        if "kvm" not in site.able:
            return f"{site.name} has no KVM that works"
        if "simplesystemimagebuild" not in recipe.enable_tasks:
            return "task simplesystemimagebuild, which makes a machine for it, is not enabled"
    if job == "executor:incus-vm" and "vhost-vsock" not in site.able:
        return f"{site.name} has no {_VSOCK}"
    if job in ("task:sbuild", "task:autopkgtest") and "unshare" not in recipe.enable_backends:
        return "executor unshare, in which it would run here, is not enabled"
    return ""


def _has_kvm() -> bool:
    try:
        return Path("/dev/kvm").exists() and choose_accelerator() == "kvm"
    except FleetError:
        return False


@contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """Make a folder for a copy of a root, one at a time; what a dead run left is deleted."""
    with held(folder / ".jobs.lock"):
        for left in folder.glob(f"{_COPY}*"):
            shutil.rmtree(left)
        with TemporaryDirectory(prefix=_COPY, dir=folder) as made:
            yield Path(made)


def _take(told: Mapping[str, Any], found: Found, tell: Tell) -> None:
    """Add the tags or the job of a line to the results."""
    if "tags" in told:
        found.tags = tuple(told["tags"])
    elif "here" in told:
        found.jobs |= {each: Job(name=each, unproven=told["here"]) for each in told["jobs"]}
    else:
        job = Job(name=told["job"], seconds=told["seconds"], problem=told["error"])
        found.jobs[job.name] = job
        tell(f"{job.name}: {job.problem or 'proven'} after {job.seconds:.0f} s")


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


def _jobs_in(
    machine: Machine, recipe: ImageRecipe, site: _Site, jobs: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    """Run jobs in a root, and yield what is known of each as soon as it is."""
    incus = [each for each in jobs if each.startswith("executor:incus")]
    yield from _inside(machine, recipe, site, [each for each in jobs if each not in incus])
    if incus and (why := _no_network(machine, site.log)):
        yield {"here": why, "jobs": incus}
    elif incus:
        told = _inside(machine, recipe, site, incus, own_network=True)
        yield from (each for each in told if "tags" not in each)


def _no_network(machine: Machine, log: Path) -> str:
    """Return why no network of containers can be made there; empty: it can."""
    made = "ip link add b0 type bridge && ip link add v0 type veth peer name v1"
    with machine.start(as_script("unshare", "--net", "sh", "-euc", made), log) as child:
        _, _ = child.communicate()
    return f"no bridge for incus can be made: {_last(log)}" if child.returncode else ""


# unshare(2) maps no users within a chroot, so the root becomes that of the mount namespace. For
# that it has to be a mount. A shell of root stays the first process there: who becomes another
# user does not end with its parent, and what is left of the namespace ends with the first.
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
# incus's daemon is systemd's to start, which no root has: it is started as that would.
_AS_INCUS = f"""
mkdir -p /run/incus /var/lib/incus /var/log/incus
/usr/libexec/incus/incusd --group incus-admin >/var/log/incus/incusd.log 2>&1 </dev/null &
incus admin waitready --timeout 120 </dev/null >&2
{_SET_UP} </dev/null >&2
exec "$@"
"""
_XZ = "/usr/local/bin/xz"
_QUICK = b'#!/bin/sh\nexec /usr/bin/xz -0 "$@"\n'
"""Tarballs of jobs are read once: at its usual level xz took longer than all else of a job."""


def _inside(
    machine: Machine,
    recipe: ImageRecipe,
    site: _Site,
    jobs: Sequence[str],
    *,
    own_network: bool = False,
) -> Iterator[Mapping[str, Any]]:
    """Run jobs in the root as its worker, with the machine's network or one of its own."""
    program = Path(__file__).with_name("jobs_inside.py").read_bytes()
    for name, content, mode in ((f"{_HOME}/jobs.py", program, 644), (_XZ, _QUICK, 755)):
        path = quote(site.root + name)
        machine.run(f"cat >{path} && chmod {mode} {path}", content)
    worker = (
        *("setpriv", f"--reuid={_WORKER}", f"--regid={_WORKER}", "--init-groups", "--"),
        *("env", f"HOME={_HOME}", "python3", f"{_HOME}/jobs.py"),
    )
    within = ("sh", "-euc", _AS_INCUS, "sh", *worker) if own_network else worker
    apart = ("--net",) if own_network else ()
    script = as_script(
        *("unshare", "--mount", "--propagation=private", "--pid", "--fork"),
        *("--kill-child=KILL", *apart, "--mount-proc", "--", "sh", "-euc", ENTER, "sh"),
        *(site.root, "own" if own_network else "shared", *within),
    )
    wanted = {"jobs": jobs, "suite": recipe.suite, "architecture": recipe.architecture}
    with machine.start(script, site.log) as child:
        limit = threading.Timer(_SECONDS, child.kill)
        limit.start()
        stdin, stdout = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
        try:
            with suppress(BrokenPipeError):  # why it ended already is in the log
                stdin.write(json.dumps(wanted).encode())
                stdin.close()
            yield from map(json.loads, stdout)
            child.wait()
        finally:
            limit.cancel()
            child.kill()
    if child.returncode:
        what = "incus was not set up" if own_network else "the worker's code cannot be run"
        for name in jobs:
            yield {"job": name, "seconds": 0.0, "error": f"{what}: {_last(site.log)}"}


def as_script(*command: str) -> str:
    """Return a script that becomes a command, with little of the computer's environment."""
    proxies = [f'${{{name}+{name}="${name}"}}' for name in PROXIES]
    settings = [f"{name}={value}" for name, value in _ENVIRONMENT.items()]
    return " ".join(["exec env -i", *proxies, *map(quote, (*settings, *command))])


def _last(log: Path) -> str:
    return last_line(log.read_bytes())
