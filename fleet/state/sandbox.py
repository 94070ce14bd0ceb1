"""What a process gives up before it runs code that nobody approved.

The kernel's own means need no root: namespaces take away the network and the sight of other
processes, Landlock forbids to write files, to start programs, and to signal or look into
processes outside. Where a kernel or a container has neither, `fleet.state.confined.confine` stands
alone, which stops mistakes and no malice.
"""

import ctypes
import os
import resource
from typing import NoReturn

_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 1 << 27, 1 << 28, 1 << 29, 1 << 30
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIGKILL = 9
# The same numbers on every architecture that Debian releases.
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_VERSION_ASKED = 1
# linux/landlock.h: all rights over files but to read them, by the version that brought them.
_FILES = ((1, 0b1_1111_1111_0011), (2, 1 << 13), (3, 1 << 14), (5, 1 << 15))
_NETWORK_SINCE, _NETWORK = 4, 0b11  # bind and connect over TCP
_SCOPES_SINCE, _SCOPES = 6, 0b11  # abstract sockets and signals

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


def leave_network() -> bool:
    """Go on as the first process of namespaces without a network; say whether that worked.

    The process that called waits for it and ends with it; all that it starts ends with it too.
    """
    namespaces = _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWPID
    if _libc.unshare(namespaces) != 0:
        return False
    child = os.fork()
    if child:
        _follow(child)
    _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    return True


def _follow(child: int) -> NoReturn:
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def give_up_files() -> bool:
    """Forbid this process to write files or start programs, for good; say whether that worked."""
    version = _libc.syscall(_CREATE_RULESET, None, 0, _VERSION_ASKED)
    if version < 1:
        return False
    rules = _Ruleset(
        sum(rights for since, rights in _FILES if since <= version),
        _NETWORK if version >= _NETWORK_SINCE else 0,
        _SCOPES if version >= _SCOPES_SINCE else 0,
    )
    ruleset = _libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset < 0:
        return False
    try:
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return bool(_libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def limit(*, memory: int, seconds: int) -> None:
    """Bound this process: bytes of memory, seconds of processor time, and no file gets longer."""
    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)  # noqa: PLW2901 - not above what is allowed
        resource.setrlimit(what, (most, most))
