"""Read what an importer writes the way `fleet validate` does."""

from datetime import date

from fleet.apply.config import check_file
from fleet.migrate.reading import Imported
from fleet.schema.model import Fleet
from tests.fakes.files import FakeFiles

TODAY = date(2026, 11, 21)


def fleet_of(imported: Imported) -> Fleet:
    """Return the fleet that was written; it has to be valid."""
    assert imported.findings == ()
    assert imported.text is not None
    checked = check_file("fleet.yaml", TODAY, FakeFiles({"fleet.yaml": imported.text}))
    assert checked.fleet is not None, (imported.text, checked.findings)
    return checked.fleet


def said(imported: Imported, kind: str) -> list[str]:
    """Return the changes of one kind, with their line."""
    changes = [change for change in imported.changes if change.kind == kind]
    return [f"{change.place.line}: {change.what}: {change.now}" for change in changes]


def wrong(imported: Imported) -> list[str]:
    """Return the place and the rule of each finding."""
    assert imported.text is None
    return [f"{finding.span}: {finding.rule}" for finding in imported.findings]
