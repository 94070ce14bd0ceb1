"""A small Copr backend: how its worker takes a ticket for a build, in words of our own.

Written after Copr's documented call of August 2026: the worker has a `job`; to allocate, it asks a
factory for a host with the job's tags and sandbox, again after each failure; the factory adds
`copr_builder`, removes repeated tags and calls `takeTicket`.
"""

from types import SimpleNamespace
from typing import Any

from tests.rigs.resalloc_client import OldClient


def a_job(record: dict[str, Any]) -> SimpleNamespace:
    """Return a job as the backend makes one of a frontend's record of a build."""
    job = SimpleNamespace(**record)
    architecture = job.chroot.rsplit("-", 2)[2] if job.chroot else "noarch"
    job.tags = [f"arch_{architecture}", *record.get("tags", ())]
    if str(job.task_id) == str(job.build_id):
        job.chroot = "srpm-builds"
    return job


def a_worker_class(server: OldClient, *, failures: int = 0) -> type:
    """Return a new class of workers that take their tickets from this server."""

    class BuildWorker:
        def __init__(self, record: dict[str, Any]) -> None:
            self.job = a_job(record)
            self.tickets: list[int] = []

        def _alloc_host(self) -> None:
            for _ in range(failures + 1):
                tags = sorted({"copr_builder", *self.job.tags})
                self.tickets.append(server.take(*tags, sandbox=self.job.sandbox or ""))

        def process(self) -> None:
            self._alloc_host()

    return BuildWorker
