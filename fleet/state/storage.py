"""Locations of a fleet's stacks and store, as `state` in fleet.yaml sets them."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from fleet.errors import FileUnreadable, FleetError
from fleet.schema.model import Fleet

_SQLITE = "sqlite:///"
_OTHER_STATE = ("embedded.db", ".pulumi")
"""Other state that older versions kept in the folder of the store."""


@dataclass(frozen=True)
class Storage:
    """The locations of one fleet's state. `folder` is the local folder for state."""

    folder: Path
    store: str
    """SQLAlchemy URL of the store."""
    backend: str
    """URL of Pulumi's backend. Special characters in a folder's path are percent-encoded."""
    uses_folder: bool
    """Whether `folder` contains stacks of a file backend or of the embedded engine."""
    images: Path
    """Folder of the images that this computer builds."""

    @property
    def embedded(self) -> Path:
        """Return the SQLite file with the stacks of the embedded engine."""
        return self.folder / "embedded.db"

    def local(self) -> tuple[Path, ...]:
        """Return all local files and folders with state; empty if all state is on servers."""
        path = self.store.removeprefix(_SQLITE)
        in_file = () if path == self.store else (Path(unquote(path)),)
        return (*in_file, self.folder) if self.uses_folder else in_file


def shipped_folder(name: str) -> Path:
    """Return a folder shipped with fleet, from the installed wheel or else from the checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "_shipped" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FleetError(f"the folder {name} is missing beside {package}; install fleet again")


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return fleet's cache folder, for files that can be built or downloaded again."""
    base = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")) / ".cache"
    try:
        return Path(base).expanduser() / "fleet"
    except RuntimeError:
        # In some containers, HOME is unset and the user is unknown: do not cache.
        return Path(os.devnull) / "fleet"


def sqlite_url(path: Path) -> str:
    """Return the SQLAlchemy URL of an SQLite file, with special characters escaped."""
    return f"{_SQLITE}{_quote_path(path)}"


def _quote_path(path: Path) -> str:
    """Percent-encode a path for a URL; raises FileUnreadable if the path is not UTF-8."""
    try:
        return quote(str(path))
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise FileUnreadable(
            f"{shown}: no state can be kept there, because the name is not UTF-8; rename the "
            "folder, or set state.store and state.backend to another one"
        ) from error


def expand_home(path: str) -> Path:
    """Return a path with the home folder in place of `~` or `~USER`."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise FileUnreadable(
            f"{path}: the home folder is unknown; set HOME, or write the whole path"
        ) from error


def older_store(path: Path) -> tuple[Path, str] | None:
    """Return the older version's file for this path, and the commands that move it to the path.

    None if there is no such file. Older versions used the path as part of a URL: they decoded
    `%XX` and cut the path at a `?`.
    """
    older = Path(unquote(str(path).split("?")[0]))
    if older == path or not older.is_file():
        return None
    beside = [(older.with_name(name), path.with_name(name)) for name in _OTHER_STATE]
    moves = [(older, path), *(move for move in beside if move[0].exists() > move[1].exists())]
    commands = [("mkdir", "-p", path.parent), *(("mv", *move) for move in moves)]
    return older, " && ".join(shlex.join(map(str, command)) for command in commands)


def find_storage(fleet: Fleet, config: str) -> Storage:
    """Return the locations of the fleet's state. Relative paths start at fleet.yaml's folder."""
    base = Path(config).resolve().parent
    backend, store = fleet.state.backend, fleet.state.store
    folder = base / ".fleet"
    if backend.startswith("file://"):
        folder = base / expand_home(backend.removeprefix("file://"))
    if store == "sqlite":
        store = sqlite_url(folder / "store.db")
    elif store.startswith(_SQLITE):
        store = sqlite_url(base / expand_home(store.removeprefix(_SQLITE)))
    is_file = backend == "file" or backend.startswith("file://")
    embedded = any(provider.engine == "embedded" for provider in fleet.providers.values())
    return Storage(
        folder=folder,
        store=store,
        backend=f"file://{_quote_path(folder)}" if is_file else backend,
        uses_folder=is_file or embedded,
        images=base / expand_home(fleet.state.images),
    )
