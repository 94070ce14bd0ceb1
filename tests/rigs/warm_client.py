"""This script asks a warm program (see `tests/rigs/warm.py`) to run here, and ends as it did.

It loads next to nothing: what documents show is run by a shell, which starts it each time. So
words go by `marshal`, and a socket is the interpreter's own.
"""

from __future__ import annotations

import marshal
import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATIENCE = 3600.0
PROGRAM = "fleet.__main__"


def begin(
    connection: socket,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: str,
    streams: Sequence[int],
) -> int:
    """Have a module's `main` run with all this, and return its process.

    `connection` leads to a warm program; where the run ends, it is told there.
    """
    umask = os.umask(0)
    os.umask(umask)
    asked = marshal.dumps([list(argv), dict(environment), folder, umask])
    connection.settimeout(PATIENCE)
    passed = b"".join(each.to_bytes(4, sys.byteorder) for each in streams)
    connection.sendmsg([len(asked).to_bytes(4, "big")], [(SOL_SOCKET, SCM_RIGHTS, passed)])
    connection.sendall(asked)
    return int.from_bytes(connection.recv(4), "big")


def end(connection: socket) -> int:
    """Wait for the end; return the exit code, or minus what killed it."""
    return os.waitstatus_to_exitcode(int(connection.recv(16)))


def main() -> None:
    """Hand over arguments, environment, folder and standard streams, and wait for the end."""
    connection = socket(AF_UNIX)
    connection.connect(sys.argv[1])
    begin(
        connection,
        sys.argv[2:],
        environment=os.environ,
        folder=os.getcwd(),  # noqa: PTH109 - pathlib is slow to load
        streams=(0, 1, 2),
    )
    code = end(connection)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
