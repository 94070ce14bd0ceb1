"""This module writes files whole: who reads one meanwhile sees the old content or the new."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file whole, where it says something else; others may read it meanwhile."""
    if path.exists() and path.read_bytes() == content:
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        draft.replace(path)
    except OSError:
        draft.unlink()
        raise
