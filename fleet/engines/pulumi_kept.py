"""This module keeps a copy of a stack's checkpoint, for a disk that fills up while the CLI writes.

The CLI puts what it could write of the next checkpoint in the place of the last one, and at its
next try copies that over its own backup, `.bak`; only in a folder: other backends take all or
nothing. The copy is made before each change, and says what that is about to delete.
"""

import json
import stat
from collections.abc import Collection
from pathlib import Path

from fleet.engines.backend_file import FileObjects
from fleet.engines.projects import Project
from fleet.engines.pulumi_locks import break_dead_locks
from fleet.engines.pulumi_state import (
    KEPT,
    PACKINGS,
    NotACheckpoint,
    begin_deleting,
    find_checkpoint,
    stack_key,
)
from fleet.errors import StoreFailed
from fleet.store.files import replace_file


class Kept:
    """The copy of one stack's checkpoint, in the folder of a backend."""

    def __init__(self, folder: Path, name: str, stack: str) -> None:
        self._objects = FileObjects(folder)
        self._names = name, stack
        self._key = stack_key(name, stack)
        self._plain = folder / self._key
        self._copy = folder / (self._key + KEPT)

    def keep(self, project: Project, wanted: Collection[str] | None) -> None:
        """Copy the checkpoint; all workers but these are about to be deleted (None: none is).

        StoreFailed where there is no room for it: nothing was begun.
        """
        try:
            file = find_checkpoint(self._objects, self._key)
        except NotACheckpoint:
            return
        try:
            if file is None:
                # Another stack of this name would be taken for the one before it.
                self._copy.unlink(missing_ok=True)
                return
            if wanted is not None:
                begin_deleting(file["checkpoint"].setdefault("latest", {}), wanted, project)
            replace_file(self._copy, json.dumps(file).encode(), mode=self._mode())
        except OSError as error:
            raise StoreFailed(f"{self._copy}: {error.strerror or error}") from error

    def is_cut(self) -> bool:
        """Say whether the checkpoint is not whole."""
        try:
            find_checkpoint(self._objects, self._key)
        except NotACheckpoint:
            return True
        return False

    def restore(self) -> None:
        """Put the copy in the place of a checkpoint that was cut.

        Locked where whoever cut it may still live, and write a whole one at its next try.
        """
        if not self.is_cut() or not self._copy.exists():
            return
        break_dead_locks(self._objects, *self._names)
        try:
            replace_file(self._plain, self._copy.read_bytes(), mode=self._mode())
            self._drop_others()
        except OSError as error:
            raise StoreFailed(f"{self._plain}: {error.strerror or error}") from error

    def drop_cut(self) -> None:
        """Remove what was cut of a stack that was to be made just now."""
        if self.is_cut():
            self._objects.remove(self._key)
            self._drop_others()

    def _drop_others(self) -> None:
        for suffix in filter(None, PACKINGS):
            self._objects.remove(self._key + suffix)

    def _mode(self) -> int:
        files = (self._plain.with_name(self._plain.name + suffix) for suffix in PACKINGS)
        return stat.S_IMODE(next(each for each in files if each.exists()).stat().st_mode)
