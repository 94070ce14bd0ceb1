"""This module holds the SDK's workspace and stack, without the CLI starts that nobody asked for.

Runs of several stacks at once share a folder: nothing is selected in it, for every command names
its stack, and its files are replaced whole.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import yaml
from pulumi import automation
from pulumi.automation._stack import StackInitMode
from semver import VersionInfo

from fleet.engines.pulumi_cli import VERSION
from fleet.engines.workspace import replace_file


class Command(automation.PulumiCommand):
    """The CLI under a folder, whose version is known to fit: it is not asked again."""

    def __init__(self, root: str) -> None:
        self.command = str(Path(root) / "bin" / "pulumi")
        self.version = VersionInfo.parse(VERSION)


class Workspace(automation.LocalWorkspace):
    """A folder that several runs may use at once."""

    def select_stack(self, stack_name: str) -> None:
        """Do nothing: a selection is a file for people who leave `--stack` out."""

    def create_stack(self, stack_name: str) -> None:
        """Make a stack without selecting it."""
        words = ["stack", "init", stack_name, "--no-select"]
        if self.secrets_provider:
            words += ["--secrets-provider", self.secrets_provider]
        self._run_pulumi_cmd_sync(words)

    def save_project_settings(self, settings: automation.ProjectSettings) -> None:
        """Write the project's file whole, where it says something else."""
        text = yaml.safe_dump(settings.to_dict(), sort_keys=True)
        replace_file(Path(self.work_dir) / "Pulumi.yaml", text, mode=0o600)


class Stack(automation.Stack):
    """A stack of which the outputs and the history are not read after each `up`."""

    @classmethod
    def select(cls, stack_name: str, workspace: automation.Workspace) -> "Stack":
        """Return a stack that exists."""
        return cls(stack_name, workspace, StackInitMode.SELECT)

    def outputs(self) -> Mapping[str, automation.OutputValue]:  # type: ignore[override] # the SDK's own alias is of dict, it only hands it on
        """Return none: what was made is read from the state."""
        return {}

    def info(self, show_secrets: bool | None = None) -> automation.UpdateSummary:  # noqa: ARG002, FBT001 - the SDK's own argument
        """Return that an update ended; `up` raises where it did not succeed."""
        return automation.UpdateSummary("update", datetime.now(UTC), "", {}, {}, "succeeded")
