"""Findings of a rule; `check_all` adds the rule's id."""

from fleet.schema.findings import At, Finding, Path

Part = tuple[int, int]


def wrong(
    message: str, path: Path, *, hint: str = "", at: At = "value", part: Part | None = None
) -> Finding:
    """Return an error."""
    return Finding("", message, path, at=at, hint=hint, part=part)


def unwise(
    message: str, path: Path, *, hint: str = "", at: At = "value", part: Part | None = None
) -> Finding:
    """Return a warning."""
    return Finding("", message, path, "warning", at, hint, part=part)
