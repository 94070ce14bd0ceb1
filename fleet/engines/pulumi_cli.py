"""This module finds the Pulumi CLI: named, on PATH, or where tools/pulumi_cli.py keeps it."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from fleet.errors import EngineAbsent
from fleet.state.files import replace_file

VERSION = "3.255.0"
"""The release of the SDK in pyproject.toml; the CLI may be newer, within the same major one."""

_SECONDS = 20
_DAY = 24 * 60 * 60
_TO_START = ("HOME", "LANG", "PATH", "PULUMI_HOME", "TMPDIR", "USER")
"""All that a program gets of our environment to say its version: secrets are in it."""
_LOOKED_AT = ("FLEET_PULUMI", "PATH", "XDG_CACHE_HOME", "HOME")


def find_cli(environment: Mapping[str, str] = os.environ) -> Path:
    """Return a CLI of a release that fits, or raise EngineAbsent with what to do."""
    problems = []
    for path in _candidates(environment):
        problem = why_unfit(path, environment)
        if problem is None:
            return path
        problems.append(problem)
    found = f" ({'; '.join(problems)})" if problems else ""
    raise EngineAbsent(
        f"the Pulumi CLI {VERSION} or newer is not installed{found}; install it from pulumi.com, "
        "or run `python tools/pulumi_cli.py`, or name it in FLEET_PULUMI, or say "
        "`engine: embedded` for providers of kind sim"
    )


def known_cli() -> Path:
    """Return the CLI that fits what the environment says, looked for once."""
    return _known_cli(tuple((name, os.environ[name]) for name in _LOOKED_AT if name in os.environ))


@cache
def _known_cli(environment: tuple[tuple[str, str], ...]) -> Path:
    return find_cli(dict(environment))


def why_unfit(path: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return why this program cannot be used; None when it can."""
    try:
        return _asked_once_a_day(path, cache_folder(environment) / "pulumi-fits.json")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"


def _asked_once_a_day(path: Path, notes: Path) -> str | None:
    """Return why a program cannot be used; one that fits is asked again tomorrow.

    Each start takes it a while. It may be a launcher that stays the same while what it starts is
    replaced: one that does not fit is asked each time, for somebody may have done as they were
    told.
    """
    program, today = path.stat(), int(time.time()) // _DAY
    key = f"{path.absolute()} {program.st_ino} {program.st_size} {program.st_mtime_ns}"
    day, fit = _noted(notes)
    fit = fit if day == today else []
    if key in fit:
        return None
    problem = _judged(path)
    if problem is None:
        with suppress(OSError):
            notes.parent.mkdir(parents=True, exist_ok=True)
            replace_file(
                notes, json.dumps({"day": today, "fit": [*fit, key]}).encode(), mode=0o600
            )
    return problem


def _judged(path: Path) -> str | None:
    """Ask a program which release it is; return why that cannot be used."""
    answer = subprocess.run(  # noqa: S603 - the person's own program, one fixed argument
        [path, "version"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=_SECONDS,
        check=False,
        env={
            **{name: os.environ[name] for name in _TO_START if name in os.environ},
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        },
    ).stdout.strip()
    match = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)\S*", answer)
    if match is None:
        return f"{path} names no version"
    version = tuple(map(int, match.groups()))
    needed = tuple(map(int, VERSION.split(".")))
    if version[0] != needed[0] or version < needed:
        return f"{path} is {answer}"
    return None


def _noted(notes: Path) -> tuple[object, list[str]]:
    """Return on which day which programs fitted; none where that cannot be read."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        noted = json.loads(notes.read_text(encoding="utf-8"))
        return noted["day"], [str(key) for key in noted["fit"]]
    with suppress(OSError):
        notes.unlink()
    return None, []


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where built and downloaded CLIs are kept, outside every checkout."""
    base = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")) / ".cache"
    try:
        return Path(base).expanduser() / "fleet"
    except RuntimeError:
        # No HOME, and a user of whom nobody knows one, as in some containers: nothing is kept.
        return Path(os.devnull) / "fleet"


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("FLEET_PULUMI"):
        yield Path(named)
    if on_path := shutil.which("pulumi", path=environment.get("PATH", "")):
        yield Path(on_path)
    yield from sorted(cache_folder(environment).glob("pulumi-*/bin/pulumi"), reverse=True)
