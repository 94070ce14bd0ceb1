"""The list of workers, and a page for each worker and pool."""

from collections.abc import Iterator

from fleet.report.site.links import WORKERS
from fleet.report.site.pages import Page, Shown


def workers(shown: Shown) -> Iterator[Page]:
    """Yield the list of workers, and a page for each of them."""
    yield Page(f"{WORKERS}/index.html", "workers.html")
    pools = {pool.pool: pool for pool in shown.status.pools}
    for worker in shown.status.workers:
        values = {"worker": worker, "pool": pools.get(worker.pool)}
        yield Page(shown.addresses.of_worker(worker), "worker.html", values)


def pools(shown: Shown) -> Iterator[Page]:
    """Yield a page for each pool."""
    status = shown.status
    for pool in status.pools:
        values = {
            "pool": pool,
            "workers": [worker for worker in status.workers if worker.pool == pool.pool],
            "changes": [action for action in shown.plan.actions if action.pool == pool.pool],
            "fitting": [entry for entry in status.waiting if pool.pool in entry.pools],
        }
        yield Page(shown.addresses.pools[pool.pool], "pool.html", values)
