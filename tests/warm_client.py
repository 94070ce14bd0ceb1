"""This script asks a warm program (see `tests/warm.py`) to run here, and ends as that one did.

It loads next to nothing, for it is started hundreds of times.
"""

import json
import os
import socket
import sys


def main() -> None:
    """Hand over arguments, environment, folder and standard streams, and wait for the end."""
    umask = os.umask(0)
    os.umask(umask)
    asked = {
        "arguments": sys.argv[2:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib is slow to load
        "umask": umask,
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        text = json.dumps(asked).encode()
        socket.send_fds(connection, [len(text).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(text)
        told = connection.recv(16)
    code = os.waitstatus_to_exitcode(int(told))
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
