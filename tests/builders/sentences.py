"""What a sentence of the program names, whatever its wording."""

import re


def tells(sentence: str, *parts: str) -> bool:
    """Return whether a sentence holds these names and figures as whole words, in this order."""
    place = 0
    for part in parts:
        found = re.compile(rf"(?<!\w){re.escape(part)}(?!\w)").search(sentence, place)
        if found is None:
            return False
        place = found.end()
    return True
