"""What a sentence of the program names, whatever its wording."""

import re


def tells(sentence: str, *parts: object) -> bool:
    """Return whether a sentence holds these names and figures as whole words, in this order."""
    place = 0
    for part in map(str, parts):
        before, after = (r"\b" if end.isalnum() else "" for end in (part[:1], part[-1:]))
        found = re.compile(f"{before}{re.escape(part)}{after}").search(sentence, place)
        if found is None:
            return False
        place = found.end()
    return True
