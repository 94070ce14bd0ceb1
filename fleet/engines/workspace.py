"""This module prepares what the Pulumi CLI works in: folders, environment, settings, plugins.

Everything lives in one folder of fleet's own, never in the folder of the stack projects.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fleet.engines.objects import file_root
from fleet.engines.projects import Project
from fleet.engines.pulumi_cli import cache_folder
from fleet.errors import StoreFailed
from fleet.store.files import replace_file

_LOGS_KEPT = 20


def _without_notes(backend: str) -> str:
    """Return a backend's URL with which the CLI writes no notes beside its files.

    It does not write them whole or not at all; see `drop_cut_notes`. The parameter is that of
    gocloud.dev/blob/fileblob.
    """
    if file_root(backend) is None:
        return backend
    return f"{backend}{'&' if '?' in backend else '?'}metadata=skip"


def project_name(project: Project) -> str:
    """Return the name that Pulumi knows the project by."""
    settings = yaml.safe_load((project.folder / "Pulumi.yaml").read_text(encoding="utf-8"))
    return str(settings["name"])


class Home:
    """The engine's own folder: `work/<project>`, `plugins`, the CLI's home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def work(self, project: str) -> Path:
        """Return the stable folder of a project: it holds each stack's encryption salt."""
        return self.folder / "work" / project

    def prepare(self, project: str, state: Path | None) -> None:
        """Make the folders, and the plugin of the simulated cloud."""
        try:
            for folder in (self.work(project), self.folder / "plugins", self.folder / "cli"):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if state:
                state.mkdir(parents=True, exist_ok=True, mode=0o700)
            # The interpreter that runs fleet is the one that has fleet's modules.
            launcher = (
                f'#!/bin/sh\nexec "{sys.executable}" -u -m fleet.providers.sim_plugin "$@"\n'
            )
            replace_file(
                self.folder / "plugins" / "pulumi-resource-sim", launcher.encode(), mode=0o700
            )
        except OSError as error:
            raise StoreFailed(f"{self.folder}: {error.strerror or error}") from error

    def environment(self, backend: str, passphrase: str) -> dict[str, str]:
        """Return what the CLI needs in its environment; secrets never go by its arguments."""
        return {
            "PULUMI_BACKEND_URL": _without_notes(backend),
            "PULUMI_CONFIG_PASSPHRASE": passphrase,
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PATH": os.pathsep.join(self._programs()),
        }

    def _programs(self) -> Iterator[str]:
        """Yield where the CLI looks for programs: whatever is found first is its plugin."""
        if named := os.environ.get("FLEET_PULUMI_PLUGINS"):
            yield named
        yield str(self.folder / "plugins")
        yield os.environ.get("PATH", "")
        # Behind what a person has installed: what tools/pulumi_plugins.py keeps, the latest first.
        kept = cache_folder().glob("pulumi-plugins-*/bin")
        yield from map(str, sorted(kept, key=_written_at, reverse=True))

    def command_root(self, cli: Path) -> Path:
        """Return a folder whose bin/pulumi is this CLI, as the SDK wants it."""
        if cli.name == "pulumi" and cli.parent.name == "bin":
            return cli.parent.parent
        link = self.folder / "cli" / "link" / "bin" / "pulumi"
        link.parent.mkdir(parents=True, exist_ok=True)
        draft = link.with_name(f"{link.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        draft.symlink_to(cli.absolute())
        draft.replace(link)
        return link.parent.parent

    def configure(self, project: str, stack: str, config: Mapping[str, str]) -> None:
        """Write keys into a stack's settings file, leaving its encryption as it is."""
        path = self.work(project) / f"Pulumi.{stack}.yaml"
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            settings: dict[str, Any] = yaml.safe_load(text) or {}
            settings["config"] = {**(settings.get("config") or {}), **config}
            replace_file(path, yaml.safe_dump(settings, sort_keys=True).encode(), mode=0o600)
        except OSError as error:
            raise StoreFailed(f"{path}: {error.strerror or error}") from error

    def prune_logs(self) -> None:
        """Keep the latest of the CLI's own (encrypted) logs; it never deletes one itself."""
        logs = sorted((self.folder / "cli" / "logs").glob("*.log"), key=_written_at)
        for path in logs[:-_LOGS_KEPT]:
            path.unlink(missing_ok=True)


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another run has pruned it
        return 0.0
