"""This module makes a Fleet of what was written, or says everything that is wrong with it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from fleet.schema.findings import Finding, has_errors, in_order
from fleet.schema.mistakes import explain
from fleet.schema.model import Fleet
from fleet.schema.salvage import salvage
from fleet.schema.source import Document, Files, read_document


@dataclass(frozen=True)
class Loaded:
    """What became of a fleet.yaml; no fleet where anything is an error.

    `rest` is the fleet without its wrong parts, for checks that look across it.
    """

    fleet: Fleet | None
    rest: Fleet | None
    document: Document
    findings: tuple[Finding, ...]


def load(name: str, files: Files) -> Loaded:
    """Return the fleet that a file and those it includes describe."""
    document = read_document(name, files)
    rest = None
    findings = list(document.findings)
    if isinstance(document.value, dict):
        try:
            rest = Fleet.model_validate(document.value)
        except ValidationError as error:
            findings += _mistakes(error, document)
            rest = salvage(document.value, error)
    ordered = in_order(map(document.locate, findings), name)
    return Loaded(None if has_errors(ordered) else rest, rest, document, ordered)


def _mistakes(error: ValidationError, document: Document) -> Iterator[Finding]:
    errors: list[Any] = error.errors(include_url=False)
    for finding in explain(errors):
        is_pools = finding.path[:1] == ("pools",) and finding.rule == "missing-key"
        if is_pools and document.partial.intersection(finding.path[1:2]):
            continue  # the template that may say it could not be read, and that is told
        if finding.at == "key" or not document.is_secret(finding.path):
            yield finding
