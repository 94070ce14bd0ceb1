"""Values that have broken a program that reads them."""

FORGED = "fleet.yaml: valid, says whoever wrote this"
"""What no line of any output begins with."""
HOSTILE = (
    "",
    " ",
    "a" * 300,
    "\x1b[2J\x1b[31mred",
    "\x07\x08\x7f",
    "\x85\x9b31m",
    "\u202eright to left\u202c",
    "\u2066isolated",
    f"x\n{FORGED}",
    f"x\r{FORGED}",
    f"x\u2028{FORGED}",
    "<script>alert(1)</script>",
    "](javascript:alert(1)) | `x` /approve @all",
    "%s{0}{value.x}$(id)`id`",
    "../../../etc/passwd",
    "*",
    "(" * 40,
    "é\U000e0041\ud800",
    "-1",
    "NaN",
)
NUMBERS = (0, -1, 1, 0.5, 1e308, -1e308, 10**40, -(10**40), 2**31, 2**63, 1e-320)
TIMES = (
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-12:00",
    "2026-02-30T00:00:00Z",
    "2026-11-21T00:15:00",
    "not a time",
)
