"""This module says where what images are made of is kept, for every fleet of this user."""

import os
from pathlib import Path


def image_cache() -> Path:
    """Return the folder of bases, roots and lists of packages."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fleet" / "images"
