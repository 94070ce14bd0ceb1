"""This module reads and writes the stacks of both engines as they are recorded, untouched."""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from fleet.engines.backends import open_objects
from fleet.engines.objects import Objects, place_of
from fleet.engines.projects import load_project, stacks_folder
from fleet.engines.pulumi_locks import Lock, find_locks
from fleet.engines.pulumi_state import find_checkpoint, stack_key
from fleet.engines.records import Records, StackRows
from fleet.engines.workspace import project_name
from fleet.errors import StoreFailed
from fleet.operate.stacks import base_ref, stack_ref
from fleet.ports.store import StackRecord
from fleet.schema.model import Fleet, Pool
from fleet.store.files import replace_file
from fleet.store.places import Places

_META = ".pulumi/meta.yaml"
_LAYOUT = b"version: 1\n"
"""Without it the CLI takes stacks that it finds for those of an old layout."""

Name = tuple[str, str]
"""A stack: the name that Pulumi knows its project by, and its own."""


def stacks_of(fleet: Fleet, records: Iterable[StackRecord]) -> tuple[Name, ...]:
    """Return every stack that a fleet may have: remembered ones, each pool's, each provider's."""
    known = {(record.project, record.name) for record in records}
    for name, pool in fleet.pools.items():
        if isinstance(pool, Pool):
            ref = stack_ref(fleet, name, pool.provider)
            known.add((ref.project, ref.name))
    bases = (base_ref(fleet, name) for name in fleet.providers)
    known |= {(ref.project, ref.name) for ref in bases}
    return tuple(
        (project_name(load_project(project)), name)
        for project, name in sorted(known)
        if (stacks_folder() / project).is_dir()
    )


class Stacks:
    """The stacks where one fleet.yaml keeps them."""

    def __init__(self, places: Places) -> None:
        self.place = place_of(places.backend)
        self.settings_folder = places.folder / "pulumi" / "work"
        self._records = Records(places.embedded)
        self._backend = places.backend

    @cached_property
    def _objects(self) -> Objects:
        objects = open_objects(self._backend)
        if objects is None:
            raise StoreFailed(
                f"{self.place} is reached by the Pulumi CLI only; carry its stacks with `pulumi "
                "stack export` and `pulumi stack import`"
            )
        return objects

    def locks(self, project: str, name: str) -> tuple[Lock, ...]:
        """Return who holds a stack of the real engine."""
        return find_locks(self._objects, project, name)

    def embedded(self, stacks: Iterable[Name]) -> dict[str, StackRows]:
        """Return what the embedded engine recorded of these stacks, of those that it has."""
        found = {name: self._records.read(name) for _, name in stacks}
        return {name: rows for name, rows in found.items() if rows is not None}

    def checkpoints(self, stacks: Iterable[Name]) -> dict[str, dict[str, Any]]:
        """Return the real engine's checkpoints by key, unpacked, of those that it has."""
        return self.read(stack_key(project, name) for project, name in stacks)

    def read(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the checkpoints behind these keys, where there are any."""
        found = {key: find_checkpoint(self._objects, key) for key in keys}
        return {key: checkpoint for key, checkpoint in found.items() if checkpoint is not None}

    def settings(self, stacks: Iterable[Name]) -> dict[str, str]:
        """Return the settings of these stacks, by path: with what their secrets are salted."""
        return self.read_settings(f"{project}/Pulumi.{name}.yaml" for project, name in stacks)

    def read_settings(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the settings in these files, where there are any."""
        found = {}
        for path in paths:
            try:
                found[path] = (self.settings_folder / path).read_text(encoding="utf-8")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreFailed(f"{path}: {error.strerror}") from error
        return found

    def write(
        self,
        embedded: Mapping[str, StackRows],
        checkpoints: Mapping[str, dict[str, Any]],
        settings: Mapping[str, str],
    ) -> None:
        """Write what is not there yet."""
        if checkpoints and self._objects.read(_META) is None:
            self._objects.create(_META, _LAYOUT)
        for key, checkpoint in checkpoints.items():
            if find_checkpoint(self._objects, key) is None:
                self._objects.create(key, json.dumps(checkpoint, indent=4).encode())
        for path, text in settings.items():
            file = self.settings_folder / path
            try:
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                replace_file(file, text.encode(), mode=0o600)
            except OSError as error:
                raise StoreFailed(f"{file}: {error.strerror}") from error
        self._records.fill(embedded)
