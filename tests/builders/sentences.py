"""What a sentence of the program names, whatever its wording."""

import re


def tells(text: str, *parts: object) -> bool:
    """Return whether a line holds these names and figures as whole words, in this order."""
    return any(_holds(line, *map(str, parts)) for line in text.splitlines())


def _holds(line: str, *parts: str) -> bool:
    place = 0
    for part in parts:
        before, after = (r"\b" if end.isalnum() else "" for end in (part[:1], part[-1:]))
        found = re.compile(f"{before}{re.escape(part)}{after}").search(line, place)
        if found is None:
            return False
        place = found.end()
    return True
