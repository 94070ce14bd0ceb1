"""Keep the simulated cloud's one file: its format, its lock, its replacement.

A change is made under the lock and replaces the file as a whole, or does not happen.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from fleet.errors import FileUnreadable, SourceUnreachable
from fleet.model.facts import WorkerInputs
from fleet.model.values import Moment, Value
from fleet.state.files import LocalFiles, replace_file

_LIMIT_BYTES = 200 * 1000 * 1000


class Menu(Value):
    """What the simulated provider sells, and what goes wrong there on purpose."""

    boot: int = Field(60, description="Seconds from creation to the worker registering.")
    types: dict[str, int | None] = Field(
        default_factory=dict,
        description="Machine type to its stock, `TYPE/spot` on the spot market; None: no end.",
    )
    create: Literal["out-of-stock", "quota", "error"] | None = None
    never_boots: tuple[str, ...] = ()


class SimMachine(Value):
    """One simulated machine and the worker on it."""

    inputs: WorkerInputs
    created_at: Moment
    boots_at: Moment | None = Field(description="None: never registers.")
    running: str | None = None
    uses: int = Field(0, description="Requests that it has finished.")
    since: Moment | None = Field(
        None, description="Since when it runs what it runs, or is disabled."
    )
    draining: bool = False
    drained_at: Moment | None = Field(None, description="Since when it gets nothing new.")
    disabled: bool = False
    revoked: bool = Field(False, description="Its token was taken back: it never registers.")
    expires: Moment | None = Field(None, description="Until when a run vouched for it.")
    given: str = Field("", description="SHA-256 of the user data that it was given; empty: none.")


class Contents(Value):
    """Everything the file holds."""

    format: Literal["fleet-sim-1"]
    menu: Menu | None = None
    made: int = Field(0, description="How many machines were ever made; ids are never reused.")
    machines: dict[str, SimMachine] = Field(default_factory=dict)


class Change:
    """What the file will hold when its lock is released."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents


@contextmanager
def changing(path: Path) -> Iterator[Change]:
    """Hold the file's lock; what is left in `contents` is written when it differs."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The lock is a file of its own: replacing a locked file would free its lock.
        with path.with_name(path.name + ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = load(path)
            change = Change(before)
            yield change
            if change.contents != before:
                _replace(path, change.contents)
    except OSError as error:
        raise SourceUnreachable(
            f"{path}: the simulated cloud could not be written: "
            f"{error.strerror or error}; nothing was changed"
        ) from error


def load(path: Path) -> Contents:
    """Return what the file holds; a missing file is an empty cloud without a menu."""
    try:
        path.lstat()
        return Contents.model_validate_json(LocalFiles().read(str(path), _LIMIT_BYTES))
    except FileNotFoundError:
        return Contents(format="fleet-sim-1")
    except (FileUnreadable, OSError) as error:
        raise SourceUnreachable(f"the simulated cloud could not be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise SourceUnreachable(
            f"{path}: not a simulated cloud (format fleet-sim-1): {place}: "
            f"{first['msg']}; restore it, or move it away to start with an empty cloud"
        ) from error


def _replace(path: Path, contents: Contents) -> None:
    text = json.dumps(contents.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"
    replace_file(path, text.encode(), mode=0o600)
