"""This module finds the Pulumi CLI: named, on PATH, or where tools/pulumi_cli.py keeps it."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from fleet.errors import EngineAbsent

VERSION = "3.255.0"
"""The release of the SDK in pyproject.toml; the CLI may be newer, within the same major one."""

_SECONDS = 20
_LOOKED_AT = ("FLEET_PULUMI", "PATH", "XDG_CACHE_HOME", "HOME")


def find_cli(environment: Mapping[str, str] = os.environ) -> Path:
    """Return a CLI of a release that fits, or raise EngineAbsent with what to do."""
    problems = []
    for path in _candidates(environment):
        problem = why_unfit(path)
        if problem is None:
            return path
        problems.append(problem)
    found = f" ({'; '.join(problems)})" if problems else ""
    raise EngineAbsent(
        f"the Pulumi CLI {VERSION} or newer is not here{found}; install it from pulumi.com, or "
        "run `python tools/pulumi_cli.py`, or name it in FLEET_PULUMI, or say `engine: embedded` "
        "for providers of kind sim"
    )


def known_cli() -> Path:
    """Return the CLI that fits what the environment says, looked for once."""
    return _known_cli(tuple((name, os.environ[name]) for name in _LOOKED_AT if name in os.environ))


@cache
def _known_cli(environment: tuple[tuple[str, str], ...]) -> Path:
    return find_cli(dict(environment))


def why_unfit(path: Path) -> str | None:
    """Return why this program cannot be used; None when it can."""
    try:
        answer = subprocess.run(  # noqa: S603 - the person's own program, one fixed argument
            [path, "version"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"
    match = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)\S*", answer.stdout.strip())
    if match is None:
        return f"{path} names no version"
    version = tuple(map(int, match.groups()))
    needed = tuple(map(int, VERSION.split(".")))
    if version[0] != needed[0] or version < needed:
        return f"{path} is {answer.stdout.strip()}"
    return None


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where built and downloaded CLIs are kept, outside every checkout."""
    base = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")) / ".cache"
    return Path(base).expanduser() / "fleet"


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("FLEET_PULUMI"):
        yield Path(named)
    if on_path := shutil.which("pulumi", path=environment.get("PATH", "")):
        yield Path(on_path)
    yield from sorted(cache_folder(environment).glob("pulumi-*/bin/pulumi"), reverse=True)
