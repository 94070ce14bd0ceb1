"""Runs jobs of GitLab CI on this machine with gitlab-ci-local; GitLab itself is on loopback."""

import os
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import yaml

from tests.rigs.process import Completed, clean_environment, run_process

MERGE_REQUEST = ("--variable", "CI_PIPELINE_SOURCE=merge_request_event")
SCHEDULE = ("--variable", "CI_PIPELINE_SOURCE=schedule")
ARTIFACT = "/api/v4/projects/7/jobs/artifacts/main/raw/world.json.zst"
TOKEN = "made-up-job-token"
_IGNORED = "CI_COMMIT_BRANCH,CI_PIPELINE_SOURCE,CI_PROJECT_DIR"


class Gitlab(AbstractContextManager["Gitlab"]):
    """GitLab's API on loopback, as far as a job asks it for an artifact of the default branch."""

    def __init__(self, observed: bytes | None) -> None:
        self.asked: list[tuple[str, str | None]] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers["JOB-TOKEN"]))
                self.send_response(404 if observed is None else 200)
                self.end_headers()
                self.wfile.write(observed or b"")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        values = {
            "CI_API_V4_URL": f"http://127.0.0.1:{self._server.server_port}/api/v4",
            "CI_DEFAULT_BRANCH": "main",
            "CI_JOB_TOKEN": TOKEN,
            "CI_MERGE_REQUEST_PROJECT_ID": "7",
        }
        self.variables = [w for n, v in values.items() for w in ("--variable", f"{n}={v}")]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Checkout:
    """A repository whose jobs can be run; `origin` is where its GitLab would have it.

    `served` are addresses of repositories, and the folders that answer in their place.
    """

    def __init__(
        self, folder: Path, home: Path, origin: str, *, served: Mapping[str, Path] | None = None
    ) -> None:
        self.folder = folder
        self.home = home
        self.origin = origin
        self._served = served or {}

    def git(self, *arguments: str) -> str:
        """Return what git prints."""
        done = run_process("git", *arguments, cwd=self.folder, env=self.environment())
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self) -> None:
        """Make a history of one commit out of what is there."""
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("config", "user.email", "ci@example.org")
        self.git("config", "user.name", "ci")
        self.git("remote", "add", "origin", self.origin)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "as it is")

    def run(self, *arguments: str) -> Completed:
        """Run jobs, or list them."""
        return run_process(
            *(os.environ["FLEET_GITLAB_CI_LOCAL"], *arguments),
            *("--force-shell-executor", "--no-color", "--home", str(self.home)),
            # It names the container's folder even where it starts no container.
            *("--variable", f"CI_PROJECT_DIR={self.folder}"),
            cwd=self.folder,
            env=self.environment(),
            timeout=3600,
        )

    def expanded(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """Return every job as GitLab would have it, with what it includes and extends."""
        printed = self.run("--preview", *arguments)
        assert printed.returncode == 0, printed.stderr
        found = yaml.safe_load(printed.stdout)
        return {name: job for name, job in found.items() if "script" in job or "trigger" in job}

    def target_branch(self, address: str) -> tuple[str, ...]:
        """Return variables by which a job finds main in a folder, not over a net."""
        return (
            *("--variable", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME=main"),
            *("--variable", "GIT_CONFIG_COUNT=1"),
            *("--variable", f"GIT_CONFIG_KEY_0=url.{address}.insteadOf"),
            *("--variable", f"GIT_CONFIG_VALUE_0={self.origin}"),
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of git and of gitlab-ci-local."""
        # Where packages come from is this machine's own configuration of pip.
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("PIP_", "SSL_", "REQUESTS_", "XDG_")) or name == "HOME"
        }
        git = {"GIT_CONFIG_COUNT": str(len(self._served))}
        for number, (address, folder) in enumerate(self._served.items()):
            git[f"GIT_CONFIG_KEY_{number}"] = f"url.file://{folder}.insteadOf"
            git[f"GIT_CONFIG_VALUE_{number}"] = address
        own = {"PYTHONWARNINGS": "default", "GCL_IGNORE_PREDEFINED_VARS": _IGNORED}
        return clean_environment(self.home, {**kept, **git, **own})


def jobs(listed: Completed) -> set[str]:
    """Return the names of the jobs of `--list-csv`."""
    header, *rows = listed.stdout.splitlines() or [""]
    assert header.startswith("name;stage;"), listed.stdout + listed.stderr
    return {row.partition(";")[0] for row in rows}
