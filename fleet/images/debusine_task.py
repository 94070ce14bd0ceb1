"""Create the data of the Debusine task that bakes an image.

The task creates a root file system from packages, runs one script in it and converts it to a disk.
The script contains the role debusine_worker and runs it, so that all builders use one role.
"""

import gzip
import io
import json
import shlex
import tarfile
from base64 import b64encode
from collections.abc import Mapping, Sequence
from posixpath import dirname

from fleet.images.packages import LIST_PACKAGES
from fleet.images.programs import last_of
from fleet.images.roots import FORGET, kernel_of, packages_of
from fleet.images.sources import mirror_suites
from fleet.model.images import BuildOrder, role_variables
from fleet.schema.pools import ImageRecipe
from fleet.state.storage import shipped_folder

TASK = "simplesystemimagebuild"
_ANSIBLE_PACKAGE = "ansible-core"
_TASK_PACKAGES = ("ca-certificates", "zstd")
"""Packages that the task itself installs: to reach the archive and to pack the initrd.

The script installs all other packages. Debusine writes the task's packages into a name that is
limited to 255 characters. With all packages in the task, Debusine could not record the end of the
request: it aborted and retried the request although the worker succeeded.
"""
_LINE_WIDTH = 76
_ROOT_GIB = 4
"""Size of the root file system. It grows to the size of the disk at the first boot."""
_SCRIPT = """\
#!/bin/sh
# Written by fleet: runs the Ansible role debusine_worker in the root of an image.
set -eu
export HOME=/root LC_ALL=C.UTF-8 ANSIBLE_NOCOLOR=1
work=$(mktemp -d)
base64 --decode >"$work/role.tar" <<'END_OF_ROLE'
{role}END_OF_ROLE
tar --extract --file "$work/role.tar" --directory "$work"
apt-get --quiet update
DEBIAN_FRONTEND=noninteractive apt-get --yes --quiet --no-install-recommends install \\
    {wanted}
ansible-playbook --inventory localhost, --connection local \\
    --extra-vars {variables} "$work/ansible/worker.yml"
rm -rf "$work"
apt-get --yes --quiet purge --autoremove {runner}
# The task runs mkfs.ext4 in the locale C, which refuses other than ASCII names: a CA has one.
LC_ALL=C find / -xdev -depth -name '*[! -~]*' -print -delete
LC_ALL=C sed --in-place '/[^ -~]/d' /etc/ca-certificates.conf
update-ca-certificates --fresh
# The task's debefivm-create sets no root password, names the machine and keeps apt's lists.
usermod --password '*' root
rm -f /etc/systemd/system/serial-getty@.service.d/autologin.conf
sed --in-place '/^127[.]0[.]1[.]1 /d' /etc/hosts
apt-get clean
mkdir -p {folder}
{{
{packages}}} >{listed}
cd /
{forget}"""
LISTED = "/usr/share/fleet/packages.tsv"
"""File with the package list in the image. The server does not know package origins."""


def why_not(recipe: ImageRecipe, mirror: str | None) -> str:
    """Return the reason why Debusine's task cannot build this image; empty if it can."""
    if mirror is None:
        return (
            "Debusine's task needs the archive that its worker bakes from: use --mirror URL, or "
            "set `mirror` in the recipe"
        )
    if recipe.snapshot:
        return "Debusine's task cannot use an archive whose lists have expired (`snapshot`)"
    return ""


def task_data(recipe: ImageRecipe, mirror: str, kernel: str, script: str) -> dict[str, object]:
    """Return the data of the task. `kernel` is the name of the kernel package."""
    return {
        "bootstrap_options": {
            "architecture": recipe.architecture,
            "variant": "minbase",
            "extra_packages": list(_TASK_PACKAGES),
        },
        "bootstrap_repositories": [
            {"mirror": uri, "suite": suite, "components": ["main"]}
            for uri, suite in mirror_suites(recipe.suite, mirror)
        ],
        "customization_script": script,
        "disk_image": {
            "format": "qcow2",
            "kernel_package": kernel,
            "partitions": [{"size": _ROOT_GIB, "filesystem": "ext4", "mountpoint": "/"}],
        },
    }


def customization_script(
    role: bytes, variables: Mapping[str, object], packages: Sequence[str]
) -> str:
    """Return the script to run in the image. `role` is a tar archive of the folder `ansible`.

    `packages` are the packages that every image has before the role runs.
    """
    encoded = b64encode(role).decode()
    lines = (encoded[at : at + _LINE_WIDTH] + "\n" for at in range(0, len(encoded), _LINE_WIDTH))
    quoted = shlex.quote(json.dumps(variables, sort_keys=True))
    return _SCRIPT.format(
        role="".join(lines),
        variables=quoted,
        runner=_ANSIBLE_PACKAGE,
        wanted=" ".join(sorted({*packages, _ANSIBLE_PACKAGE, "python3-apt"})),
        packages=LIST_PACKAGES,
        forget=FORGET,
        folder=dirname(LISTED),
        listed=LISTED,
    )


def request_data(order: BuildOrder, mirror: str) -> dict[str, object]:
    """Return the data of the Debusine task for a build."""
    architecture = order.debian.architecture
    kernel = kernel_of(architecture)
    packages = [each for each in packages_of(architecture) if each != kernel]
    variables = role_variables(order.debian)
    script = customization_script(archive_of_the_role(), variables, packages)
    # Make the scripts of two builds differ, so that a request never looks like a retry.
    script += f"# Image {order.image}, version {order.version}.\n"
    return task_data(order.debian, mirror, kernel, script)


def archive_of_the_role() -> bytes:
    """Return a reproducible tar archive of the folder `ansible`, with the role and its play."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(shipped_folder("ansible"), "ansible", filter=_normalize)
    return gzip.compress(archive.getvalue(), mtime=0)


def _normalize(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Set owner and time of a file to 0. Return None to leave out the caches of Python."""
    if "__pycache__" in member.name:
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    return member


_FATAL_PREFIX = "fatal: "
"""Start of the line in which Ansible prints the error of a task."""
_MAX_LINE = 2000
"""Maximum length, in the error message, of the line with Ansible's error."""


def failure_of(log: str) -> str:
    """Return the failed task and its error from Ansible's log, or else the log's last lines."""
    lines = log.splitlines()
    fatal = next((at for at, line in enumerate(lines) if line.startswith(_FATAL_PREFIX)), None)
    if fatal is None:
        return last_of(log)
    tasks = [line.rstrip(" *") for line in lines[:fatal] if line.startswith("TASK [")]
    return "\n".join(f"  {line[:_MAX_LINE]}" for line in (*tasks[-1:], lines[fatal]))
