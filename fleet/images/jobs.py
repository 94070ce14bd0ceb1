"""Prove what an image offers: run one small job for each executor and task that it enables.

Each runs in the root of the disk that is to be published, or of the rented machine that becomes a
snapshot, as its worker and with Debusine's own code (`jobs_inside.py`). The root is a copy: what
jobs leave there is gone afterwards. A job that this computer, or that machine, cannot run,
whatever the image holds, is unproven, and no problem.

Run as a program it does so in the namespaces of its caller: it reads an Order as JSON from
standard input and writes a line of JSON for each job.
"""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import IO, Any, Literal, Protocol

from pydantic import BaseModel

from fleet.clock import utc_now
from fleet.errors import FleetError
from fleet.images.bake import in_memory_or_on_disk
from fleet.images.boot import choose_accelerator
from fleet.images.checks import last_line, open_disk
from fleet.images.disk import isolated
from fleet.images.programs import ENVIRONMENT, PROXIES, missing
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
"""The start of the names of folders with a copy of a root."""
_ROOTFUL = ("unshare", "setpriv", "qemu-img", "sfdisk", "debugfs")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64"}
_SECONDS = 7200
"""The limit of all jobs: on a very busy machine of two cores they took 15 minutes."""
_VSOCK = Path("/dev/vhost-vsock")
_HOME = "/var/lib/debusine/worker"
_WORKER = "debusine-worker"
_SET_UP = "/usr/local/sbin/debusine-worker-incus"


class Order(BaseModel):
    """The jobs to run in the root of a disk."""

    disk: Path
    log: Path
    work: Path
    """A folder that is deleted at the end."""
    jobs: tuple[str, ...]
    suite: str
    architecture: str


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
    machine = _MACHINES.get(platform.machine(), platform.machine())
    if machine != recipe.architecture:
        return f"this computer is {machine}, and the image is {recipe.architecture}"
    return missing(_ROOTFUL)


def prove(recipe: ImageRecipe, disk: Path, log: Path, tell: Tell) -> Test:
    """Run the jobs of an image, and return what they proved."""
    if reason := why_not(recipe):
        return prove_nothing(recipe, reason)

    def run(jobs: tuple[str, ...]) -> Found:
        order = Order(
            disk=disk,
            log=log,
            work=Path(),
            jobs=jobs,
            suite=recipe.suite,
            architecture=recipe.architecture,
        )
        return _run(order, tell)

    return _prove(recipe, _Host("this computer", _accelerator(), _VSOCK.exists()), log, run)


def prove_on(machine: "Machine", recipe: ImageRecipe, log: Path, tell: Tell) -> Test:
    """Run the jobs of an image on the machine that becomes it, and return what they proved."""
    able = machine.run(ABLE).split()

    def run(jobs: tuple[str, ...]) -> Found:
        found = Found()
        top = machine.run(COPY_ROOT).strip()
        place = _There(machine, log)
        wanted = Wanted(jobs=jobs, suite=recipe.suite, architecture=recipe.architecture)
        try:
            for told in _jobs_in(place, f"{top}/root", wanted):
                _take(told, found, tell)
        finally:
            machine.run(f"rm -rf --one-file-system {quote(top)}")
        return found

    host = _Host("the machine", "kvm" if "kvm" in able else "tcg", "vhost-vsock" in able)
    return _prove(recipe, host, log, run)


@dataclass(frozen=True)
class _Host:
    """The computer that jobs run on."""

    name: str
    accelerator: Literal["kvm", "tcg"]
    has_vsock: bool


def _prove(
    recipe: ImageRecipe, host: _Host, log: Path, run: Callable[[tuple[str, ...]], Found]
) -> Test:
    """Return the test of a recipe's jobs; `run` runs those that can be tried, with this log."""
    at, began = utc_now(), time.monotonic()
    wanted = jobs_of(recipe)
    tried = {each: why for each in wanted if (why := _unproven(each, recipe, host))}
    found = run(tuple(_order_of(wanted, tried)))
    found.jobs |= {each: Job(name=each, unproven=why) for each, why in tried.items()}
    for each in wanted:
        if each not in found.jobs:
            problem = f"it did not end: {last_line(log.read_bytes())} ({log})"
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


def _unproven(job: str, recipe: ImageRecipe, host: _Host) -> str:
    """Return why a job cannot be run there; empty: it can be tried."""
    if job in ("executor:qemu", "executor:incus-vm"):
        if host.accelerator != "kvm":
            return f"{host.name} has no KVM that works"
        if "simplesystemimagebuild" not in recipe.enable_tasks:
            return "task simplesystemimagebuild, which makes a machine for it, is not enabled"
    if job == "executor:incus-vm" and not host.has_vsock:
        return f"{host.name} has no {_VSOCK}"
    if job in ("task:sbuild", "task:autopkgtest") and "unshare" not in recipe.enable_backends:
        return "executor unshare, in which it would run here, is not enabled"
    return ""


def _accelerator() -> Literal["kvm", "tcg"]:
    try:
        return choose_accelerator() if Path("/dev/kvm").exists() else "tcg"
    except FleetError:
        return "tcg"


def _run(order: Order, tell: Tell) -> Found:
    """Run jobs in a process of their own; it and all it started are gone when this returns."""
    found, log = Found(), order.log
    with workplace(order.disk.parent.parent) as work:
        order = order.model_copy(update={"work": work})
        log.write_bytes(b"")
        with (
            log.open("ab") as text,
            subprocess.Popen(  # noqa: S603 - ourselves
                isolated(sys.executable, "-m", "fleet.images.jobs"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=text,
                start_new_session=True,
            ) as child,
        ):
            limit = threading.Timer(_SECONDS, child.kill)
            limit.start()
            try:
                _listen(child, order, found, tell)
            finally:
                limit.cancel()
                child.kill()
    return found


@contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """Make a folder for a copy of a root; copies of runs that are dead are deleted."""
    for left in folder.glob(f"{_COPY}*"):
        with suppress(OSError), _held(left):
            shutil.rmtree(left)
    with TemporaryDirectory(prefix=_COPY, dir=folder) as made, _held(Path(made)):
        yield Path(made)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a folder as long as this process lives; raises BlockingIOError if another one does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _listen(child: "subprocess.Popen[bytes]", order: Order, found: Found, tell: Tell) -> None:
    stdin, stdout = _pipes(child)
    stdin.write(order.model_dump_json().encode())
    stdin.close()
    for line in stdout:
        _take(json.loads(line), found, tell)


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


def main() -> int:
    """Run the jobs of an order in the namespaces that this program was started in."""
    os.umask(0o022)
    order = Order.model_validate_json(sys.stdin.read())
    in_memory_or_on_disk(order.work, order.log, lambda _: _prove_in(order))
    return 0


def _prove_in(order: Order) -> None:
    root = order.work / "root"
    root.mkdir()
    with open_disk(order.disk) as disk:
        disk.root.copy(root)
    wanted = Wanted(jobs=order.jobs, suite=order.suite, architecture=order.architecture)
    for told in _jobs_in(_Here(order.log), str(root), wanted):
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


class Wanted(BaseModel):
    """What `jobs_inside.py` is to run."""

    jobs: tuple[str, ...]
    suite: str
    architecture: str


class Place(Protocol):
    """Where the copy of a root is."""

    log: Path

    def start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start a command of root there; its errors go to the log."""

    def write(self, path: str, content: bytes, mode: int) -> None:
        """Write a file there."""


class Machine(Protocol):
    """A machine that is entered over ssh."""

    def start(self, script: str, log: Path) -> "subprocess.Popen[bytes]":
        """Start a script of sh there; its errors go to the log."""

    def run(self, script: str, sent: bytes = b"") -> str:
        """Run a script of sh there, and return its output."""


_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    **ENVIRONMENT,
}


class _Here:
    """This computer."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        handed = {name: os.environ[name] for name in PROXIES if name in os.environ}
        with self.log.open("ab") as text:
            return subprocess.Popen(  # noqa: S603 - programs of the system with words of ours
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=text,
                env={**handed, **_ENVIRONMENT},
            )

    def write(self, path: str, content: bytes, mode: int) -> None:
        place = Path(path)
        place.write_bytes(content)
        place.chmod(mode)


class _There:
    """A rented machine."""

    def __init__(self, machine: Machine, log: Path) -> None:
        self._machine = machine
        self.log = log

    def start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        settings = (f"{name}={value}" for name, value in _ENVIRONMENT.items())
        script = " ".join(map(quote, ("env", "-i", *settings, *command)))
        return self._machine.start(script, self.log)

    def write(self, path: str, content: bytes, mode: int) -> None:
        self._machine.run(f"cat >{quote(path)} && chmod {mode:o} {quote(path)}", sent=content)


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


def _jobs_in(place: Place, root: str, wanted: Wanted) -> Iterator[Mapping[str, Any]]:
    """Run jobs in a root, and yield what is known of each as soon as it is."""
    plain = [each for each in wanted.jobs if not each.startswith("executor:incus")]
    incus = [each for each in wanted.jobs if each.startswith("executor:incus")]
    yield from _inside(place, root, wanted, plain)
    if incus and (why := _no_network(place)):
        yield {"here": why, "jobs": incus}
    elif incus:
        told = _inside(place, root, wanted, incus, own_network=True)
        yield from (each for each in told if "tags" not in each)


def _no_network(place: Place) -> str:
    """Return why no network of containers can be made there; empty: it can."""
    made = "ip link add b0 type bridge && ip link add v0 type veth peer name v1"
    with place.start(("unshare", "--net", "sh", "-euc", made)) as child:
        _, _ = child.communicate()
    if not child.returncode:
        return ""
    return f"no bridge for incus can be made: {last_line(place.log.read_bytes())}"


# unshare(2) maps no users within a chroot, so the root becomes that of the mount namespace. For
# that it has to be a mount.
_ENTER = """
root=$1; own=$2; shift 2
mount --bind "$root" "$root"; cd "$root"
mount -t proc proc proc; mount -t sysfs sysfs sys; mount --rbind /dev dev
mount -t tmpfs tmpfs run; mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p run/systemd/resolve; cat /etc/resolv.conf >run/systemd/resolve/stub-resolv.conf
if test "$own" = own; then ip link set lo up; mount -t cgroup2 cgroup sys/fs/cgroup; fi
pivot_root . mnt
exec /usr/sbin/chroot . /bin/sh -euc 'umount -l /mnt; exec "$@"' sh "$@"
"""
# incus's daemon is systemd's to start, which no root has: it is started as that would.
_AS_INCUS = f"""
mkdir -p /run/incus /var/lib/incus /var/log/incus
/usr/libexec/incus/incusd --group incus-admin >/var/log/incus/incusd.log 2>&1 </dev/null &
incus admin waitready --timeout 120 </dev/null >&2
{_SET_UP} </dev/null >&2
exec "$@"
"""
_QUICK = b'#!/bin/sh\nexec /usr/bin/xz -0 "$@"\n'
"""Tarballs of jobs are read once: at its usual level xz took longer than all else of a job."""


def _inside(
    place: Place, root: str, wanted: Wanted, jobs: Sequence[str], *, own_network: bool = False
) -> Iterator[Mapping[str, Any]]:
    """Run jobs in the root as its worker, with the machine's network or one of its own."""
    program = Path(__file__).with_name("jobs_inside.py").read_bytes()
    place.write(f"{root}{_HOME}/jobs.py", program, 0o644)
    place.write(f"{root}/usr/local/bin/xz", _QUICK, 0o755)
    worker = (
        *("setpriv", f"--reuid={_WORKER}", f"--regid={_WORKER}", "--init-groups", "--"),
        *("env", f"HOME={_HOME}", "python3", f"{_HOME}/jobs.py"),
    )
    within = ("sh", "-euc", _AS_INCUS, "sh", *worker) if own_network else worker
    apart = ("--net",) if own_network else ()
    child = place.start(
        [
            *("unshare", "--mount", "--propagation=private", "--pid", "--fork"),
            *("--kill-child=KILL", *apart, "--mount-proc", "--", "sh", "-euc", _ENTER, "sh"),
            *(root, "own" if own_network else "shared", *within),
        ]
    )
    stdin, stdout = _pipes(child)
    with child:
        stdin.write(wanted.model_copy(update={"jobs": tuple(jobs)}).model_dump_json().encode())
        stdin.close()
        yield from map(json.loads, stdout)
    if child.returncode:
        what = "incus was not set up" if own_network else "the worker's code cannot be run"
        for name in jobs:
            yield {
                "job": name,
                "seconds": 0.0,
                "error": f"{what}: {last_line(place.log.read_bytes())}",
            }


def _pipes(child: "subprocess.Popen[bytes]") -> tuple[IO[bytes], IO[bytes]]:
    if child.stdin is None or child.stdout is None:
        raise TypeError(child)
    return child.stdin, child.stdout


if __name__ == "__main__":
    sys.exit(main())
