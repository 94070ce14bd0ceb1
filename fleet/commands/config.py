"""This module holds a valid fleet.yaml as commands use it, with what it warns of."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from fleet.commands.clock import SystemClock
from fleet.commands.loading import Checked, check_file
from fleet.errors import ConfigInvalid, PlanRefused
from fleet.plan import Warning_
from fleet.ports import Console
from fleet.render.findings import to_summary, to_text
from fleet.schema.model import Fleet
from fleet.schema.source import Document
from fleet.store.places import find_places


@dataclass(frozen=True)
class Config:
    """A valid fleet.yaml, where each key of it stands, and what it warns of."""

    fleet: Fleet
    document: Document
    warnings: tuple[Warning_, ...]


def load_config(args: argparse.Namespace, console: Console) -> Config:
    """Return the fleet.yaml named; says all that is wrong and raises when it is invalid."""
    checked = check_file(args.file, SystemClock().now().date())
    config = to_config(checked)
    if config is None:
        console.note(to_text(checked.findings, checked.document))
        raise ConfigInvalid(to_summary(checked.findings, checked.document))
    return config


def to_config(checked: Checked) -> Config | None:
    """Return what was loaded with what it warns of; None where it is invalid."""
    if checked.fleet is None:
        return None
    warnings = tuple(
        Warning_(
            rule=finding.rule,
            message=finding.message,
            place=checked.document.place(finding.path, finding.at),
        )
        for finding in checked.findings
    )
    return Config(checked.fleet, checked.document, warnings)


def refuse_throwaway_state(fleet: Fleet, config: str) -> None:
    """Refuse state that a CI job would lose with its checkout."""
    checkout = os.environ.get("CI_PROJECT_DIR")
    if not checkout:
        return
    for path in find_places(fleet, config).local():
        if path.resolve().is_relative_to(Path(checkout).resolve()):
            raise PlanRefused(
                f"refused: state at {path} is inside this job's checkout and would be lost with "
                "it; set state.backend and state.store to a place that outlives the job "
                "(docs/how-to/run-in-gitlab.md)"
            )
