#!/usr/bin/python3
"""Run Copr's `copr-backend-process-build` so that each ticket names its build.

`docs/how-to/serve-tickets.md` says how to install it. Copr itself stays as it is.
"""

import runpy
from typing import Any

PROGRAM = "/usr/bin/copr-backend-process-build"


def name_builds(worker: Any) -> None:  # noqa: ANN401 - a class of Copr
    """Have this class take its tickets with the tag build:OWNER/PROJECT/CHROOT/PACKAGE."""
    allocate = worker._alloc_host  # noqa: SLF001 - Copr has no other place for it

    def allocate_named(self: Any) -> object:  # noqa: ANN401 - a worker of Copr
        job = self.job
        package = getattr(job, "package_name", None) or ""
        tag = f"build:{job.project_owner}/{job.project_dirname}/{job.chroot}/{package}"
        if tag not in job.tags:
            job.tags.append(tag)
        return allocate(self)

    worker._alloc_host = allocate_named  # noqa: SLF001


if __name__ == "__main__":
    from copr_backend.background_worker_build import BuildBackgroundWorker

    name_builds(BuildBackgroundWorker)
    runpy.run_path(PROGRAM, run_name="__main__")
