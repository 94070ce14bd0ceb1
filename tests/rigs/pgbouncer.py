"""Run a pgbouncer before a PostgreSQL: one that gives each transaction a connection.

It is configured as its package leaves it: settings at the start of a connection are refused.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rigs.local_machines import until
from tests.rigs.postgres import NOBODY

_SETTINGS = """\
[databases]
* = host={server}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 2
logfile = {folder}/log
pidfile =
"""


def program() -> str | None:
    """Return where pgbouncer is; None where it is not installed."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


@contextmanager
def pooled(url: str, *users: str) -> Iterator[str]:
    """Yield the URL of a pgbouncer before a server of `tests.rigs.postgres`."""
    found = program()
    assert found is not None
    address, _, server = url.partition("?host=")
    with tempfile.TemporaryDirectory(prefix="fleet-pgbouncer-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "users").write_text("".join(f'"{user}" ""\n' for user in users))
        (folder / "ini").write_text(_SETTINGS.format(server=server, folder=folder))
        user = NOBODY if os.geteuid() == 0 else None
        if user is not None:
            os.chown(folder, user, user)
        process = subprocess.Popen(
            [found, "-q", folder / "ini"],
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with process:
            try:
                until((folder / ".s.PGSQL.6432").exists)
                yield f"{address}?host={folder}&port=6432"
            finally:
                process.terminate()
