"""Run small jobs inside the root of an image, as its worker and with the worker's own code.

The image's Python runs this file, without any other module of fleet. The program reads the job
names as JSON from standard input and writes a line of JSON per job. A folder replaces the server:
tasks and executors read and write artifacts in it.
"""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_HOME = Path.home()
_STORE = _HOME / "fleet-jobs"
_TARBALL = "debian:system-tarball"
_IMAGE = "debian:system-image"
_SOURCE = "debian:source-package"
_LOGS = ("debian:package-build-log", "debusine:work-request-debug-logs")
_INIT = ["dbus", "python3-minimal", "systemd-sysv"]
"""Packages to boot a container as a machine, and to run autopkgtest in it."""
_MAX_LOG_CHARACTERS = 1500
"""Maximum number of characters per log in the output."""
SOURCE = "fleet-job"
"""The name of the source package that the jobs build and test."""
_SOURCES = {
    "debian/source/format": "3.0 (native)\n",
    "debian/changelog": (
        f"{SOURCE} (1) unstable; urgency=low\n\n  * A package of a few lines.\n\n"
        " -- fleet <fleet@example.org>  Thu, 01 Jan 2026 00:00:00 +0000\n"
    ),
    "debian/control": (
        f"Source: {SOURCE}\nSection: misc\nPriority: optional\n"
        "Maintainer: fleet <fleet@example.org>\nStandards-Version: 4.7.0\n"
        f"Rules-Requires-Root: no\n\nPackage: {SOURCE}\nArchitecture: any\n"
        "Description: package of a few lines\n It holds one file.\n"
    ),
    "debian/rules": (
        "#!/usr/bin/make -f\nbuild build-arch build-indep binary-indep:\n"
        f"clean:\n\trm -rf debian/{SOURCE} debian/files\n"
        "binary-arch binary:\n"
        f"\tmkdir -p debian/{SOURCE}/DEBIAN debian/{SOURCE}/usr/share/{SOURCE}\n"
        f"\techo built >debian/{SOURCE}/usr/share/{SOURCE}/built\n"
        f"\tdpkg-gencontrol -p{SOURCE} -Pdebian/{SOURCE}\n"
        f"\tdpkg-deb --root-owner-group --build debian/{SOURCE} ..\n"
    ),
    "debian/tests/control": "Test-Command: test -e /etc/debian_version\nDepends:\n",
}
"""Files of a source package without build dependencies."""


class JobFailed(Exception):
    """The failure of a job. The message has the reason."""


class ArtifactStore:
    """Store of artifacts in a folder, with the methods of Debusine's client that jobs call."""

    def keep(self, category: str, data: dict[str, Any], files: dict[str, Path]) -> int:
        """Store an artifact, and return the artifact's number."""
        number = len(self._list()) + 1
        for name, path in files.items():
            place = _STORE / str(number) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        kept = {"category": category, "data": data, "files": sorted(files)}
        (_STORE / f"{number}.json").write_text(json.dumps(kept), encoding="utf-8")
        return number

    def find(self, category: str) -> int:
        """Return the number of the first artifact of a category; raises JobFailed if missing."""
        for number, kept in self._list():
            if kept["category"] == category:
                return number
        raise JobFailed(f"no job before it made a {category}")

    def logs(self) -> str:
        """Return the last characters of the newest log of each category."""
        shown = {kept["category"]: number for number, kept in self._list()}
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-_MAX_LOG_CHARACTERS:]}"
            for number in (shown[each] for each in _LOGS if each in shown)
            for path in sorted((_STORE / str(number)).iterdir())
        )

    def artifact_get(self, artifact_id: int, **_: object) -> SimpleNamespace:
        """Return an artifact by number, in the format that Debusine's client returns."""
        kept = dict(self._list())[artifact_id]
        files = {name: SimpleNamespace(url=f"file:///{name}") for name in kept["files"]}
        return SimpleNamespace(
            id=artifact_id,
            category=kept["category"],
            created_at=datetime.now(UTC),
            data=kept["data"],
            files=files,
        )

    def download_artifact_file(
        self, artifact_id: int, path_in_artifact: str, destination: Path, **_: object
    ) -> None:
        """Copy a file of an artifact to `destination`."""
        shutil.copyfile(_STORE / str(artifact_id) / path_in_artifact, destination)

    def download_artifact(
        self, artifact_id: int, destination: Path, **_: object
    ) -> SimpleNamespace:
        """Copy all files of an artifact into the folder `destination`."""
        found = self.artifact_get(artifact_id)
        for name in found.files:
            place = destination / name
            place.parent.mkdir(parents=True, exist_ok=True)
            self.download_artifact_file(artifact_id, name, place)
        return found

    def upload_artifact(self, artifact: Any, **_: object) -> SimpleNamespace:  # noqa: ANN401 - Debusine's
        """Store the artifact that a task uploads; return its number as `id`."""
        data = json.loads(artifact.data.model_dump_json())
        files = {str(name): Path(path) for name, path in artifact.files.items()}
        return SimpleNamespace(id=self.keep(str(artifact.category), data, files))

    def relation_create(self, *_: object) -> None:
        """Do nothing: relations between artifacts are not needed here."""

    def _list(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the number of each artifact and its content, the oldest first."""
        found = ((int(path.stem), path) for path in _STORE.glob("*.json"))
        return [(number, json.loads(path.read_text("utf-8"))) for number, path in sorted(found)]


class Jobs:
    """The requested jobs. A job runs by its name."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._architecture = order["architecture"]
        self._backend = order["backend"]
        self._repository = {
            "types": ["deb"],
            "mirror": mirror_of(order["suite"]),
            "suite": order["suite"],
            "components": ["main"],
        }
        self.server = ArtifactStore()

    def run(self, name: str) -> None:
        """Run a job by its name; raises an exception if the job fails."""
        kind, _, what = name.partition(":")
        if kind == "executor":
            self._run_executor(what)
        elif what in ("sbuild", "autopkgtest"):
            self._run_package_task(what, self._backend, _TARBALL)
        else:
            is_root = what == "mmdebstrap"
            options = {
                "architecture": self._architecture,
                "variant": "buildd" if is_root else "minbase",
                "extra_packages": _INIT if is_root else ["python3-minimal"],
            }
            partitions = [{"size": 2, "filesystem": "ext4"}]
            disk = {} if is_root else {"disk_image": {"format": "qcow2", "partitions": partitions}}
            repositories = {"bootstrap_repositories": [self._repository]}
            self._run_task(what, {"bootstrap_options": options, **repositories, **disk}, {})

    def _run_package_task(self, name: str, backend: str, environment: str) -> None:
        """Build or test the source package of a few lines with an executor."""
        is_test = name == "autopkgtest"
        data = {
            "input": {"source_artifact": 1, **({"binary_artifacts": []} if is_test else {})},
            "build_architecture": self._architecture,
            "environment": 1,
            "backend": backend,
        }
        dynamic = {
            "environment_id": self.server.find(environment),
            "input_source_artifact_id": self._find_or_create_source(),
            "subject": SOURCE,
            **({"input_binary_artifacts_ids": []} if is_test else {}),
        }
        self._run_task(name, data, dynamic)

    def _run_executor(self, name: str) -> None:
        executors = import_module("debusine.tasks.executors")
        backends = import_module("debusine.tasks.models")
        chosen = executors.executor_class(backends.BackendType(name))
        if not chosen.available():
            raise JobFailed(f"the worker does not offer the executor {name}")
        environment = str(chosen.image_category)
        if name == "qemu":  # This executor has no instances: autopkgtest starts QEMU.
            self._run_package_task("autopkgtest", name, environment)
            return
        folder = _HOME / "workdir" / f"executor-{name}"
        folder.mkdir(parents=True)
        number = self.server.find(environment)
        made = chosen(self.server, number, workspace="fleet", working_directory=folder)
        made.download_image()
        instance = made.create()
        instance.start()
        try:
            instance.run(["test", "-e", "/etc/debian_version"], check=True, run_as_root=True)
        finally:
            instance.stop()

    def _run_task(self, name: str, data: dict[str, Any], dynamic: dict[str, Any]) -> None:
        """Run a task as the worker does; raises JobFailed unless the task succeeds."""
        task = import_module("debusine.tasks").BaseExternalTask
        worker = import_module("debusine.artifacts.models").TaskTypes.WORKER
        one = task.class_from_name(worker, name)(data, dynamic)
        one.set_working_directory(_HOME / "workdir" / name)
        one.configure_server_access(self.server)
        one.workspace_name = "fleet"
        one.work_request_id = 1
        result = str(one.execute())
        if result != "success":
            raise JobFailed(f"the task ended with {result}")

    def _find_or_create_source(self) -> int:
        """Return the number of the artifact with the source package; create it if missing."""
        with suppress(JobFailed):
            return self.server.find(_SOURCE)
        with tempfile.TemporaryDirectory() as top:
            files = pack_source(Path(top))
            data = {"name": SOURCE, "version": "1", "type": "dpkg", "dsc_fields": {}}
            return self.server.keep(_SOURCE, data, files)


def pack_source(top: Path) -> dict[str, Path]:
    """Create a minimal source package in an empty folder; return a map of file name to path."""
    tree = top / f"{SOURCE}-1"
    for name, text in _SOURCES.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tree / "debian/rules").chmod(0o755)
    command = ["dpkg-source", "--build", tree.name]
    subprocess.run(command, cwd=top, check=True, stdout=sys.stderr)  # noqa: S603 - fixed words
    return {path.name: path for path in top.iterdir() if path.is_file()}


def mirror_of(suite: str) -> str:
    """Return the URL of the image's APT source for a suite, or else that of Debian's archive."""
    apt: Any = import_module("apt_pkg")  # each image has it, for Ansible
    apt.init()
    sources = apt.SourceList()
    sources.read_main_list()
    found = (str(each.uri).rstrip("/") for each in sources.list if each.dist == suite)
    return next(found, "http://deb.debian.org/debian")


def tags() -> list[str]:
    """Return the tags that the worker reports; empty if the worker is too old to report tags."""
    try:
        system = import_module("debusine.worker.system_information")
        found: set[str] = import_module("debusine.tasks").get_provided_external_worker_tags()
        found |= system.system_provided_tags(system.WorkerType.EXTERNAL)
    except (ImportError, AttributeError):
        return []
    return sorted(found)


def main() -> None:
    """Run the requested jobs. Print the worker's tags, then the result of each job."""
    order = json.loads(sys.stdin.read())
    setattr(tarfile.TarFile, "xzopen", classmethod(_open_quickly))  # noqa: B010 - typed as fixed
    _STORE.mkdir(exist_ok=True)
    _print_message(tags=tags())
    jobs = Jobs(order)
    for name in order["jobs"]:
        began = time.monotonic()
        problem = ""
        try:
            jobs.run(name)
        except Exception as error:  # noqa: BLE001 - a job may raise any exception
            problem = f"{type(error).__name__}: {error}"
            traceback.print_exc()
            sys.stderr.write(f"{jobs.server.logs()}\n")
        _print_message(name=name, seconds=round(time.monotonic() - began, 1), problem=problem)


_open_xz: Any = vars(tarfile.TarFile)["xzopen"].__func__


def _open_quickly(kind: Any, name: Any, mode: str = "r", *more: Any, **words: Any) -> Any:  # noqa: ANN401 - tarfile's
    """Open an archive with tarfile. Write with xz's fastest level, to save time."""
    if mode != "r":
        words["preset"] = 0
    return _open_xz(kind, name, mode, *more, **words)


def _print_message(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
