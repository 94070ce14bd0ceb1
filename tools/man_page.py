"""Generate docs/man/fleet.1 from the argument parser; the wheel installs it as a man page.

`pytest --update-golden tests/docs/test_cli_reference.py` writes it.
"""

import os
from pathlib import Path

from argparse_manpage.manpage import Manpage

from fleet.program import build_parser

PAGE = Path(__file__).parent.parent / "docs/man/fleet.1"


def page() -> str:
    """Return the man page in roff; it does not contain the date of its generation."""
    parser = build_parser()
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"  # argparse folds by it: that of this terminal is no matter
    try:
        lines = str(Manpage(parser)).splitlines()
    finally:
        if width is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = width
    title = lines.index(next(line for line in lines if line.startswith(".TH")))
    lines[title] = '.TH FLEET 1 "" fleet "User Commands"'
    name = lines.index(".SH NAME") + 1
    about = (parser.description or "").rstrip(".")
    lines[name] = f"fleet \\- {about[:1].lower()}{about[1:]}"
    # A heading alone on its line would take the next as its text.
    text = "\n".join(line.rstrip() for line in lines[title:])
    return text.replace(".SH\nPOSITIONAL ARGUMENTS", ".SH COMMANDS") + "\n"
