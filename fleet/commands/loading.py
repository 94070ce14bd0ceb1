"""This module loads fleet.yaml for every command: read, validated, checked across its keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from posixpath import dirname
from typing import TYPE_CHECKING

from fleet.checks import check_all
from fleet.schema.findings import Finding, has_errors, in_order
from fleet.schema.load import Loaded, load
from fleet.schema.model import Fleet
from fleet.schema.source import Document, Files
from fleet.store.files import LocalFiles

if TYPE_CHECKING:
    from fleet.tagrules.names import Recorded


@dataclass(frozen=True)
class Checked:
    """A fleet.yaml and all that is wrong with it; no fleet where anything is an error."""

    fleet: Fleet | None
    document: Document
    findings: tuple[Finding, ...]


def check_file(
    name: str,
    today: date,
    files: Files | None = None,
    recorded: "Recorded | None" = None,
) -> Checked:
    """Return everything that is to be said about a file, and a recorded queue if one is given."""
    loaded = load(name, files or LocalFiles(within=dirname(name)))
    found = [*loaded.findings, *map(loaded.document.locate, _across(loaded, today, recorded))]
    findings = in_order(found, name)
    return Checked(None if has_errors(findings) else loaded.fleet, loaded.document, findings)


def _across(loaded: Loaded, today: date, recorded: "Recorded | None") -> Iterator[Finding]:
    """Yield what the checks say; of a file that is partly wrong, what surely holds of the rest."""
    if loaded.rest is None:
        return
    for finding in check_all(loaded.rest, today, recorded):
        is_sure = finding.severity == "error" and not _may_be_there(loaded, finding)
        if loaded.fleet is not None or is_sure:
            yield finding


def _may_be_there(loaded: Loaded, finding: Finding) -> bool:
    """Say whether what a finding misses is written, only not rightly."""
    if not finding.rule.startswith("unknown-"):
        return False
    if finding.rule == "unknown-currency":
        return any(other.path[:1] == ("money",) for other in loaded.findings)
    value = loaded.document.value
    names = {
        name
        for section in (value.values() if isinstance(value, dict) else ())
        if isinstance(section, dict)
        for name in section
    }
    for step in finding.path:
        value = _at(value, step)
    return finding.path[-1] in names or (isinstance(value, str) and value in names)


def _at(value: object, step: str | int) -> object:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    return None
