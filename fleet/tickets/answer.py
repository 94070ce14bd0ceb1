"""This module writes what a ticket's client is told of its machine, as `answer` of its queue says.

What a machine has nothing of is empty, but for its port, which is that of ssh.
"""

import re
from collections.abc import Mapping

_FIELD = re.compile(r"\{(\w+)\}")
_SSH = "22"


def fill(template: str, particulars: Mapping[str, str]) -> str:
    """Return an answer, filled in one go: nothing that is told is looked at again."""
    known = {"port": _SSH, **{key: text for key, text in particulars.items() if text}}
    return _FIELD.sub(lambda found: known.get(found[1], ""), template).strip()
