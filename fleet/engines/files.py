"""This module writes files whole, so that who reads one meanwhile sees the old or the new text."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, text: str, *, mode: int) -> None:
    """Write a file whole, where it says something else; others may read it meanwhile."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)
    Path(name).replace(path)
