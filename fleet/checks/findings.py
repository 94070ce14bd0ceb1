"""Create findings of a rule, to which `check_all` adds the id of the rule."""

from fleet.schema.findings import At, Finding, Path

Part = tuple[int, int]


def wrong(
    message: str, path: Path, *, hint: str = "", at: At = "value", part: Part | None = None
) -> Finding:
    """Return a finding that is an error."""
    return Finding("", message, path, at=at, hint=hint, part=part)


def unwise(
    message: str, path: Path, *, hint: str = "", at: At = "value", part: Part | None = None
) -> Finding:
    """Return a finding that is a warning."""
    return Finding("", message, path, "warning", at, hint, part=part)
